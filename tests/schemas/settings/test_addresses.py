"""Addresses of brokers are taken as Java's clients take them, and refused in one line."""

from __future__ import annotations

import pytest

from sparklag_schemas import ClusterAccess, KafkaSettings, Settings, SettingsError, load_settings
from sparklag_schemas.settings import ClusterSettings
from sparklag_schemas.settings.addresses import address_keys
from sparklag_schemas.settings.clusters import access_by_address

LOGIN = KafkaSettings(security_protocol="SASL_SSL", sasl_username="me", sasl_password="hidden")


@pytest.mark.parametrize(
    ("listed", "normal"),
    [
        ("kafka:9092", "kafka:9092"),
        (" kafka-1:9092 ,\n\tkafka_2:9093,", "kafka-1:9092,kafka_2:9093"),
        (",kafka:9092,,kafka:9092", "kafka:9092"),
        ("SASL_SSL://a:1,sasl_ssl://b:2", "a:1,b:2"),
        ("CLIENT-1.eu://a:1,ssl_internal://b:65535", "a:1,b:65535"),
        ("[::1]:9092", "[::1]:9092"),
        ("SASL_SSL://[fe80::1%eth0]:9092", "[fe80::1%eth0]:9092"),
        ("2001:DB8:0:0::1:9092", "[2001:db8::1]:9092"),
        ("PLAINTEXT_2://:9092,h:0009", "localhost:9092,h:9"),
    ],
)
def test_addresses_are_kept_as_host_and_port(listed: str, normal: str) -> None:
    east = ClusterSettings(bootstrap_servers=listed, addresses=listed, kafka=LOGIN)
    settings = Settings(bootstrap_servers=listed, addresses=listed, kafka=LOGIN)
    for section in (east, settings):
        assert (section.bootstrap_servers, section.addresses) == (normal, normal)
    assert ClusterAccess(listed, LOGIN).bootstrap_servers == normal
    assert settings.resolved() == settings.resolved(listed)


@pytest.mark.parametrize(
    ("listed", "shown"),
    [
        ("kafka", "'kafka'"),
        ("a:1,SSL://kafka,b:70000", "'SSL://kafka, b:70000'"),
        ("kafka:0", "'kafka:0'"),
        ("kafka:9092/", "'kafka:9092/'"),
        ("kafka-1:9092 kafka-2:9092", "'kafka-1:9092 kafka-2:9092'"),
        ("SSL:kafka:9092", "'SSL:kafka:9092'"),
        ("me:hidden", "'me:***'"),
        ("SASL_SSL://me:hid,den@kafka:9092", "'SASL_SSL://me:***@kafka:9092'"),
    ],
)
def test_a_malformed_address_is_one_line_without_a_secret(listed: str, shown: str) -> None:
    line = f"bootstrap_servers = {shown}: takes host:port, several with commas"
    with pytest.raises(SettingsError) as refusal:
        load_settings(environ={"SPARKLAG_BOOTSTRAP_SERVERS": listed})
    assert str(refusal.value).startswith(f"settings: {line}")
    with pytest.raises(SettingsError) as refusal:
        access_by_address(Settings(), listed)
    assert str(refusal.value).startswith(line)
    clusters = {"clusters": {"east": {"bootstrap_servers": "east:1", "addresses": listed}}}
    with pytest.raises(SettingsError) as refusal:
        load_settings(environ={}, overrides=clusters)
    line = line.replace("bootstrap_servers", "addresses")
    assert str(refusal.value).startswith(f"setting clusters.east: {line}")


def test_prefixes_that_contradict_the_protocol_are_one_line() -> None:
    listed = "ssl://a:1,SASL_SSL://b:2,c:3,PLAINTEXT://d:4"
    line = (
        "bootstrap_servers = 'ssl://a:1, PLAINTEXT://d:4' contradicts kafka.security_protocol ="
        " 'SASL_SSL': set that to the protocol of the brokers, or leave out the prefix"
    )
    with pytest.raises(ValueError, match="SASL_SSL") as refusal:
        Settings(bootstrap_servers=listed, kafka=LOGIN)
    assert str(refusal.value) == line
    with pytest.raises(SettingsError) as wrong_access:
        ClusterAccess(listed, LOGIN)
    assert str(wrong_access.value) == line
    # Other clients may reach the same brokers by another listener.
    assert Settings(addresses="SSL://a:1").addresses == "a:1"


def test_the_same_broker_has_one_key_however_it_is_written() -> None:
    assert address_keys("SSL://Kafka.EU.:9092, kafka.eu:09092,nonsense") == {"kafka.eu:9092"}
    assert address_keys("[::1]:1,0:0:0:0:0:0:0:1:1") == {"[::1]:1"}
