"""Addresses in messages choose among the configured clusters, and nothing else."""

from __future__ import annotations

import pytest

from sparklag_schemas import ClusterAccess, KafkaSettings, Settings
from sparklag_schemas.clusters import ClusterNames
from sparklag_schemas.settings import ClusterSettings

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
def test_nothing_but_configured_brokers_is_connected_to(named: str, alias: str | None) -> None:
    expected = {
        "default": ClusterAccess("home-1:9092,home-2:9092", _LOGIN),
        "east": ClusterAccess("east:1"),
        None: None,
    }
    assert _NAMES.access_to(named) == expected[alias]


def test_a_position_that_says_no_brokers_is_of_the_home_cluster() -> None:
    assert _NAMES.access_to(None) == ClusterAccess("home-1:9092,home-2:9092", _LOGIN)
    assert ClusterNames(Settings()).access_to(None) is None


def test_a_driver_that_was_told_nothing_asks_the_brokers_of_its_query() -> None:
    assert ClusterNames(Settings()).access_to("any:9092") == ClusterAccess(
        "any:9092", KafkaSettings()
    )
    with_password = ClusterNames(Settings(kafka=_LOGIN))
    assert with_password.access_to("any:9092") is None


def test_measuring_goes_by_the_drivers_word_where_no_address_is_known() -> None:
    assert _NAMES.alias_of("kafka.internal:9092", "default") == "default"
    assert _NAMES.alias_of("kafka.internal:9092", "west") is None
    assert _NAMES.alias_of("east:1,home-1:9092", "default") is None
