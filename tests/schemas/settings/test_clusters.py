"""The Kafka clusters that the settings name."""

from __future__ import annotations

import pytest

from sparklag_schemas import ClusterAccess, KafkaSettings, Settings
from sparklag_schemas.settings import ClusterSettings
from sparklag_schemas.settings.clusters import ClusterNames

_LOGIN = KafkaSettings(
    security_protocol="SASL_SSL", sasl_username="sparklag", sasl_password="hidden"
)
_SETTINGS = Settings(
    bootstrap_servers="home-1:9092,home-2:9092",
    addresses="proxy:19092",
    kafka=_LOGIN,
    clusters={"east": ClusterSettings(bootstrap_servers="east:1", addresses="far-east:1")},
)
_NAMES = ClusterNames(_SETTINGS)


@pytest.mark.parametrize(
    ("named", "alias"),
    [
        ("home-1:9092", "default"),
        ("SASL_SSL://HOME-2:9092", "default"),
        ("proxy:19092", "default"),
        ("home-3:9092, home-2:9092", "default"),
        ("east:1", "east"),
        ("far-east:1", "east"),
        ("east:1,attacker:9092", "east"),
        ("attacker:9092", None),
        ("attacker:9092,", None),
        ("east:1,home-1:9092", None),
        ("home-1:9093", None),
        ("", None),
    ],
)
def test_only_configured_brokers_are_accessed(named: str, alias: str | None) -> None:
    expected = {
        "default": ClusterAccess("home-1:9092,home-2:9092", _LOGIN),
        "east": ClusterAccess("east:1"),
        None: None,
    }
    assert _NAMES.access_to(named) == expected[alias]


def test_a_position_without_brokers_is_of_the_home_cluster() -> None:
    assert _NAMES.access_to(None) == ClusterAccess("home-1:9092,home-2:9092", _LOGIN)
    assert ClusterNames(Settings()).access_to(None) is None


def test_a_driver_without_settings_uses_the_brokers_of_its_query() -> None:
    assert ClusterNames(Settings()).access_to("any:9092") == ClusterAccess("any:9092")
    assert ClusterNames(Settings(kafka=_LOGIN)).access_to("any:9092") is None


def test_the_alias_of_the_driver_counts_for_unknown_addresses() -> None:
    assert _NAMES.alias_of("kafka.internal:9092", "default") == "default"
    assert _NAMES.alias_of("kafka.internal:9092", "west") is None
    assert _NAMES.alias_of("east:1,home-1:9092", "default") is None


EAST = ClusterSettings(bootstrap_servers="east-1:9092, east-2:9092", addresses="10.0.0.1:19092")


@pytest.mark.parametrize(
    ("bootstrap_servers", "reported", "alias"),
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
def test_a_known_address_overrides_the_alias_that_the_driver_reports(
    bootstrap_servers: str | None, reported: str, alias: str | None
) -> None:
    settings = Settings(cluster="home", clusters={"east": EAST})
    names = ClusterNames(settings.resolved("home-1:9092,home-2:9092"))
    assert names.alias_of(bootstrap_servers, reported) == alias


def test_the_home_cluster_keeps_brokers_that_another_cluster_lists() -> None:
    settings = Settings(clusters={"east": ClusterSettings(bootstrap_servers="home-1:9092")})
    names = ClusterNames(settings.resolved("home-1:9092"))
    assert names.alias_of("home-1:9092", "east") == "default"
