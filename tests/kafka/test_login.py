"""Logins by tokens, and secrets and certificates that change on disk."""

from __future__ import annotations

import asyncio
import base64
import hmac
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from sparklag_jobs.broker.child_process import free_port
from sparklag_kafka.access import connection_problem
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.errors import LoginUnavailable
from sparklag_kafka.login import Login
from sparklag_schemas import KafkaSettings
from sparklag_schemas.settings import ClusterAccess
from tests.certificates import Certificates
from tests.issuer import CLIENT_SECRET, KafkaIssuer
from tests.local_kafka import LocalKafka
from tests.secured_kafka import ExpiringKafka

pytestmark = pytest.mark.kafka

CONNECT = "kafka-cluster:Connect"


@pytest.fixture(scope="module")
def issuer() -> Iterator[KafkaIssuer]:
    with KafkaIssuer() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def servers(issuer: KafkaIssuer) -> Iterator[str]:
    with ExpiringKafka(3600, issuer.url) as kafka:
        yield kafka.bootstrap_servers


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"client_secret": "wrong"}, r"/token: invalid_client for 'sparklag'$"),
        ({"token_endpoint_url": "{url}/moved"}, r"/moved: status 302$"),
        ({"token_endpoint_url": f"http://127.0.0.1:{free_port()}/"}, r"Connection refused$"),
        ({"token_endpoint_url": "{url}/keys"}, r"/keys: .*`access_token`"),
        ({"client_secret_file": "/missing"}, r"_file: /missing cannot be read: No such file"),
        ({"token_file": "/missing"}, r"_file: /missing cannot be read: No such file"),
        ({"token_file": "/dev/zero"}, r"_file: /dev/zero is empty, too long or malformed"),
        ({"cafile": "/missing"}, r"sasl_oauthbearer_cafile /missing: .* No such file"),
    ],
)
async def test_a_token_that_cannot_be_had_has_its_cause(
    fields: dict[str, str], cause: str, issuer: KafkaIssuer, servers: str
) -> None:
    named = {f"sasl_oauthbearer_{n}": text.format(url=issuer.url) for n, text in fields.items()}
    message = await connection_problem(ClusterAccess(servers, issuer.login(**named)))
    assert message is not None
    assert re.search(cause, message), message
    assert CLIENT_SECRET not in message
    assert "\n" not in message


async def test_a_token_of_a_file_is_read_again_and_the_broker_may_refuse_it(
    issuer: KafkaIssuer, servers: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(issuer.token(aud="another"))
    access = ClusterAccess(servers, issuer.login(sasl_oauthbearer_token_file=str(file)))
    async with BrokerPool(access) as pool:
        assert await pool.refresh() is None
        assert (await pool.explain_unreachable()).endswith(
            'the broker refuses the token (OAUTHBEARER): {"status":"invalid_token"}'
        )
        file.write_text(f"{issuer.token()}\n")
        assert await pool.refresh() is not None


async def test_a_token_endpoint_is_trusted_by_the_ca_of_the_settings(
    issuer: KafkaIssuer, servers: str, certificates: Certificates
) -> None:
    with KafkaIssuer(tls=certificates.other_server_context()) as other:
        for cafile, cause in ((None, "certificate verify failed"), (certificates.ca, "refuses")):
            login = other.login(sasl_oauthbearer_cafile=cafile and str(cafile))
            assert cause in str(await connection_problem(ClusterAccess(servers, login)))


async def test_certificates_that_change_on_disk_are_used_by_the_next_connection(
    tls_kafka: LocalKafka, certificates: Certificates, tmp_path: Path
) -> None:
    ca, client = tmp_path / "ca.crt", tmp_path / "client.pem"
    ca.write_bytes(certificates.other_ca.read_bytes())
    client.write_bytes(certificates.other_client.read_bytes())
    settings = certificates.kafka_settings(
        ssl_cafile=str(ca), ssl_certfile=str(client), ssl_keyfile=None
    )
    async with BrokerPool(ClusterAccess(tls_kafka.bootstrap_servers, settings)) as pool:
        assert await pool.refresh() is None
        ca.write_bytes(certificates.ca.read_bytes())
        pair = (certificates.client_key, certificates.client_certificate)
        client.write_bytes(b"".join(path.read_bytes() for path in pair))
        assert await pool.refresh() is not None
        ca.unlink()
        assert f"({ca}, {client})" in await pool.explain_unreachable()


AWS: Final = KafkaSettings(
    security_protocol="SASL_SSL", sasl_mechanism="AWS_MSK_IAM", sasl_aws_region="eu-west-1"
)


async def test_the_cause_of_missing_aws_credentials_shows_no_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = f"sh -c 'echo {CLIENT_SECRET} >&2; exit 1'"
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {program}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with pytest.raises(LoginUnavailable, match=r"AWS: Error when retrieving credentials.*\*$"):
        await Login(AWS).token()


def test_an_aws_token_is_the_request_that_the_credentials_sign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The signature is calculated anew as AWS documents it (SigV4 of a query)."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CLIENT_SECRET)
    token = asyncio.run(Login(AWS).token())
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    query = dict(parse_qsl(url.query))
    signature, _ = query.pop("X-Amz-Signature"), query.pop("User-Agent")
    assert (url.hostname, query["Action"]) == ("kafka.eu-west-1.amazonaws.com", CONNECT)
    scope = f"{query['X-Amz-Date'][:8]}/eu-west-1/kafka-cluster/aws4_request"
    assert query["X-Amz-Credential"] == f"AKIDEXAMPLE/{scope}"
    sent = "&".join(f"{quote(n, '')}={quote(query[n], '')}" for n in sorted(query))
    empty = sha256(b"").hexdigest()
    canonical = f"GET\n/\n{sent}\nhost:{url.hostname}\n\nhost\n{empty}"
    digest = sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{query['X-Amz-Date']}\n{scope}\n{digest}"
    key = f"AWS4{CLIENT_SECRET}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    assert signature == key.hex()
