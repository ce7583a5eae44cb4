"""Which cluster a source reads from: by its brokers' addresses, else by the alias it was told."""

from __future__ import annotations

import pytest

from sparklag_schemas import Settings
from sparklag_schemas.clusters import ClusterNames
from sparklag_schemas.settings import ClusterSettings

EAST = ClusterSettings(bootstrap_servers="east-1:9092, east-2:9092", addresses="10.0.0.1:19092")


@pytest.mark.parametrize(
    ("bootstrap_servers", "told", "alias"),
    [
        ("home-2:9092,home-1:9092", "east", "home"),
        ("10.0.0.1:19092", "home", "east"),
        (" EAST-1:9092 , other:9092", "home", "east"),
        ("proxy:9092", "east", "east"),
        (" , ", "home", "home"),
        ("", "east", "east"),
        (None, "home", "home"),
        (None, "west", None),
        ("proxy:9092", "west", None),
        ("east-1:9093", "west", None),
    ],
)
def test_a_known_address_says_more_than_the_alias_that_the_driver_was_told(
    bootstrap_servers: str | None, told: str, alias: str | None
) -> None:
    settings = Settings(cluster="home", clusters={"east": EAST})
    names = ClusterNames(settings.resolved("home-1:9092,home-2:9092"))
    assert names.alias_of(bootstrap_servers, told) == alias


def test_sparklags_own_brokers_are_its_own_cluster_also_where_another_lists_them() -> None:
    settings = Settings(clusters={"east": ClusterSettings(bootstrap_servers="home-1:9092")})
    assert (
        ClusterNames(settings.resolved("home-1:9092")).alias_of("home-1:9092", "east") == "default"
    )
