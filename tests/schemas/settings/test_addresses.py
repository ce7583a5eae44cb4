"""Addresses of brokers are taken as Java's clients take them, and refused in one line."""

from __future__ import annotations

import pytest

from sparklag_schemas import ClusterAccess, KafkaSettings, Settings, SettingsError, load_settings
from sparklag_schemas.settings import ClusterSettings
from sparklag_schemas.settings.addresses import address_keys

LOGIN = KafkaSettings(security_protocol="SASL_SSL", sasl_username="me", sasl_password="hidden")
TAKES = "takes host:port, several with commas"


@pytest.mark.parametrize(
    ("listed", "normal"),
    [
        (" kafka-1:9092 ,\n\tkafka_2:9093,", "kafka-1:9092,kafka_2:9093"),
        (",kafka:9092,,kafka:9092", "kafka:9092"),
        ("SASL_SSL://a:1,sasl_ssl://b:2", "a:1,b:2"),
        ("CLIENT-1.eu://a:1,ssl_internal://b:65535", "a:1,b:65535"),
        ("SASL_SSL://[fe80::1%eth0]:9092", "[fe80::1%eth0]:9092"),
        ("2001:DB8:0:0::1:9092", "[2001:db8::1]:9092"),
        ("PLAINTEXT_2://:9092,h:0009", "localhost:9092,h:9"),
    ],
)
def test_addresses_are_kept_as_host_and_port(listed: str, normal: str) -> None:
    for kind in (Settings, ClusterSettings):
        section = kind(bootstrap_servers=listed, addresses=listed, kafka=LOGIN)
        assert (section.bootstrap_servers, section.addresses) == (normal, normal)
    assert ClusterAccess(listed, LOGIN).addresses == ClusterAccess(normal, LOGIN).addresses


@pytest.mark.parametrize(
    ("listed", "refused"),
    [
        ("kafka", f"'kafka': {TAKES}"),
        ("a:1,SSL://kafka,b:70000", f"'SSL://kafka, b:70000': {TAKES}"),
        ("kafka:0", f"'kafka:0': {TAKES}"),
        ("kafka:9092/", f"'kafka:9092/': {TAKES}"),
        ("kafka-1:9092 kafka-2:9092", f"'kafka-1:9092 kafka-2:9092': {TAKES}"),
        ("SSL:kafka:9092", f"'SSL:kafka:9092': {TAKES}"),
        ("me:hidden", f"'me:***': {TAKES}"),
        ("Endpoint=sb://ns.test/;SharedAccessKey=hid=", f"'Endpoint=sb://ns.test/;***': {TAKES}"),
        ("SASL_SSL://me:hid,den@kafka:9092", f"'SASL_SSL://me:***@kafka:9092': {TAKES}"),
        (
            "ssl://a:1,SASL_PLAINTEXT://b:2,c:3,PLAINTEXT://d:4",
            "'ssl://a:1, SASL_PLAINTEXT://b:2': contradicts kafka.security_protocol = 'PLAINTEXT'",
        ),
    ],
)
def test_what_is_no_address_or_contradicts_is_one_line(listed: str, refused: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        load_settings(environ={"SPARKLAG_BOOTSTRAP_SERVERS": listed})
    assert str(refusal.value).startswith(f"settings: bootstrap_servers = {refused}")
    with pytest.raises(SettingsError) as refusal:
        load_settings(environ={"SPARKLAG_CLUSTERS__EAST__BOOTSTRAP_SERVERS": listed})
    assert str(refusal.value).startswith(f"setting clusters.east: bootstrap_servers = {refused}")
    with pytest.raises(SettingsError) as refusal:
        _ = ClusterAccess(listed).addresses
    assert str(refusal.value).startswith(f"bootstrap_servers = {refused}")


def test_the_same_broker_has_one_key_however_it_is_written() -> None:
    assert address_keys("SSL://Kafka.EU.:9092, kafka.eu:09092,nonsense") == {"kafka.eu:9092"}
    assert address_keys("[::1]:1,0:0:0:0:0:0:0:1:1") == {"[::1]:1"}
