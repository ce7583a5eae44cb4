"""Which cluster a source reads from: by its brokers' addresses, else by the alias it was told."""

from __future__ import annotations

import pytest

from sparklag_schemas import Settings
from sparklag_schemas.clusters import ClusterNames
from sparklag_schemas.settings import ClusterSettings

EAST = ClusterSettings(bootstrap_servers="east-1:9092, east-2:9092", addresses="10.0.0.1:19092")


def names() -> ClusterNames:
    settings = Settings(cluster="home", clusters={"east": EAST})
    return ClusterNames(settings.resolved("home-1:9092,home-2:9092"))


@pytest.mark.parametrize(
    ("bootstrap_servers", "alias"),
    [
        ("home-1:9092", "home"),
        ("home-2:9092,home-1:9092", "home"),
        ("east-2:9092", "east"),
        ("10.0.0.1:19092", "east"),
        (" EAST-1:9092 , other:9092", "east"),
        ("other:9092,east-1:9092", "east"),
        ("SASL_SSL://east-1:9092", "east"),
    ],
)
def test_a_source_is_of_the_cluster_that_one_of_its_addresses_is_of(
    bootstrap_servers: str, alias: str
) -> None:
    assert names().alias_of(bootstrap_servers, "default") == alias


def test_an_address_says_more_than_the_alias_the_driver_was_told() -> None:
    assert names().alias_of("east-1:9092", "home") == "east"


@pytest.mark.parametrize("bootstrap_servers", ["proxy:9092", "", " , ", None])
@pytest.mark.parametrize("told", ["home", "east"])
def test_an_unknown_address_is_of_the_cluster_the_driver_names(
    bootstrap_servers: str | None, told: str
) -> None:
    assert names().alias_of(bootstrap_servers, told) == told


@pytest.mark.parametrize("bootstrap_servers", ["proxy:9092", None])
def test_neither_a_known_address_nor_a_known_alias_is_no_cluster(
    bootstrap_servers: str | None,
) -> None:
    assert names().alias_of(bootstrap_servers, "west") is None


def test_another_port_of_a_known_host_is_another_address() -> None:
    assert names().alias_of("east-1:9093", "west") is None


def test_sparklags_own_brokers_are_its_own_cluster_also_where_another_lists_them() -> None:
    settings = Settings(clusters={"east": ClusterSettings(bootstrap_servers="home-1:9092")})
    assert (
        ClusterNames(settings.resolved("home-1:9092")).alias_of("home-1:9092", "east") == "default"
    )
