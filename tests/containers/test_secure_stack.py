"""The profile `secure` of docker-compose.yml on a real engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pytest

from tests.containers.docker import compose, docker, image, in_image, run, up, variable
from tests.containers.stacks import lag_of_orders, require_hardened

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]

SECURE: Final = ("producer-secure", "query-secure", "service-secure")
_READ_SECRETS: Final = """
import pathlib
for file in pathlib.Path("/secrets").rglob("*"):
    if file.is_file() and file.suffix != ".crt":
        print(file.read_text())
"""


@pytest.fixture(scope="module")
def secure() -> Iterator[None]:
    up(*SECURE, profile="secure")
    yield
    compose("down", "-v", "--timeout", "15", profile="*")


def read_secrets() -> list[str]:
    """Passwords, the key of signatures, and a line of each private key."""
    project = variable("COMPOSE_PROJECT_NAME")
    volumes = [f"{owner}-secrets" for owner in ("kafka", "admin", "producer", "query", "service")]
    mounts = [f"--volume={project}_{volume}:/secrets/{volume}:ro" for volume in volumes]
    options = (*mounts, "--user", "0:0")
    lines = in_image("service", "-c", _READ_SECRETS, options=options).splitlines()
    certificate = False
    secrets = []
    for line in lines:
        certificate = (certificate or "BEGIN CERT" in line) and "END CERT" not in line
        if not certificate and len(line) >= 48 and "=/" not in line and "---" not in line:
            secrets.append(line)
    return secrets


def check(*options: str, servers: str = "kafka:19092") -> str:
    """`sparklag check` on the network of the profile; it must fail."""
    network = f"{variable('COMPOSE_PROJECT_NAME')}_secure"
    command = ("docker", "run", "--rm", "--network", network, *options, image("service"), "check")
    done = run(*command, "--bootstrap-servers", servers)
    assert done.returncode != 0, done.stdout
    return done.stdout


@pytest.mark.usefixtures("secure")
def test_the_secure_profile_knows_the_lag_of_its_query_with_the_least_rights() -> None:
    assert lag_of_orders(variable("SECURE_HTTP_PORT"))["query"] == "orders"
    require_hardened("kafka-secure", *SECURE)
    command = ("docker", "compose", "--profile", "secure", "exec", "-T", "service-secure")
    checked = run(*command, "sparklag", "check", "--json").stdout
    results = json.loads(checked)
    assert not [each for each in results if each["state"] == "bad"], checked
    # What only drivers need.
    missing = [each["text"] for each in results if each["text"].startswith("no right to ")]
    assert missing == ["no right to write to topic processed-offsets"], checked


@pytest.mark.usefixtures("secure")
def test_the_secure_profile_refuses_who_has_no_credentials_or_no_right() -> None:
    project = variable("COMPOSE_PROJECT_NAME")
    assert "the broker ended the connection" in check()
    authority = ("-e", "SPARKLAG_KAFKA__SSL_CAFILE=/run/secrets/ca.crt")
    secrets = (f"--volume={project}_producer-secrets:/run/secrets:ro", *authority)
    tls = ("-e", "SPARKLAG_KAFKA__SECURITY_PROTOCOL=SSL", "-e", "SPARKLAG_SECRETS_DIR=/tmp")
    assert "the broker ended the TLS connection" in check(*secrets, *tls, servers="kafka:19091")
    login = (
        *("-e", "SPARKLAG_KAFKA__SECURITY_PROTOCOL=SASL_SSL"),
        *("-e", "SPARKLAG_KAFKA__SASL_MECHANISM=SCRAM-SHA-512"),
    )
    # The password of another user.
    wrong = check(*secrets, *login, "-e", "SPARKLAG_KAFKA__SASL_USERNAME=service")
    assert "wrong user name or password for 'service'" in wrong
    right = check(*secrets, *login, "-e", "SPARKLAG_KAFKA__SASL_USERNAME=producer")
    assert "processed-offsets" in right
    assert "password" not in right


@pytest.mark.usefixtures("secure")
def test_no_secret_of_the_secure_profile_is_shown_and_all_of_them_are_kept() -> None:
    secrets = read_secrets()
    # Three passwords in two volumes each, a signing key in three, two private keys.
    assert len(set(secrets)) > 3 + 1 + 2
    containers = compose("ps", "-aq").split()
    shown = docker("inspect", *containers) + compose("logs", "--no-color") + compose("config")
    assert not [secret for secret in secrets if secret in shown]
    compose("run", "--rm", "-T", "credentials")
    assert sorted(read_secrets()) == sorted(secrets)
