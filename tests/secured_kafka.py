"""Brokers that take no client without a login or a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from sparklag_schemas import KafkaSettings
from tests.certificates import Certificates
from tests.local_kafka import LocalKafka

_PASSWORD: Final = "right"
_USERS: Final = ("sparklag", "driver", "history", "stranger", "admin")


class ScramKafka(LocalKafka):
    def __init__(self) -> None:
        super().__init__(
            security_protocol="SASL_PLAINTEXT",
            scram_users=dict.fromkeys(_USERS, _PASSWORD),
            properties={
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                # The internal listener knows no users: who comes by it may do all.
                "super.users": "User:ANONYMOUS",
            },
        )


class ExpiringKafka(LocalKafka):
    """Ends sessions that are older than `session_s`, and logs it. Takes the user `sparklag`, and
    those who have a token of the issuer at `issuer_url`."""

    def __init__(self, session_s: float, issuer_url: str = "") -> None:
        listener, package = "listener.name.client", "org.apache.kafka.common.security.oauthbearer"
        oauth = f"{listener}.oauthbearer"
        properties = {
            f"{listener}.sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
            f"{oauth}.sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
            f"{oauth}.sasl.server.callback.handler.class": (
                f"{package}.OAuthBearerValidatorCallbackHandler"
            ),
            f"{oauth}.sasl.oauthbearer.jwks.endpoint.url": f"{issuer_url}/keys",
            f"{oauth}.sasl.oauthbearer.expected.audience": "kafka",
            f"{oauth}.sasl.oauthbearer.expected.issuer": issuer_url,
        }
        super().__init__(
            security_protocol="SASL_PLAINTEXT",
            scram_users={"sparklag": _PASSWORD},
            properties={
                "connections.max.reauth.ms": str(round(session_s * 1000)),
                **(properties if issuer_url else {}),
            },
        )
        if issuer_url:
            self.jvm_options = [
                f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer_url}/keys"
            ]

    def expired_sessions(self) -> int:
        return self.log_path.read_text().count("Disconnecting expired channel")

    def _write_configuration(self) -> Path:
        path = super()._write_configuration()
        with (self.directory / "log4j2.properties").open("a") as file:
            file.write("logger.a.name = kafka.network.Processor\nlogger.a.level = DEBUG\n")
        return path


class TlsKafka(LocalKafka):
    """It requires a client certificate. `folder`: of its `Certificates`."""

    def __init__(self, folder: str) -> None:
        certificates = Certificates(Path(folder))
        listener = "listener.name.client"
        properties = {
            f"{listener}.ssl.keystore.type": "PEM",
            f"{listener}.ssl.keystore.location": str(certificates.server),
            f"{listener}.ssl.truststore.type": "PEM",
            f"{listener}.ssl.truststore.location": str(certificates.ca),
            f"{listener}.ssl.client.auth": "required",
        }
        super().__init__(security_protocol="SSL", properties=properties)


def login(
    user: str = "sparklag", password: str = _PASSWORD, mechanism: Any = "SCRAM-SHA-256"
) -> KafkaSettings:
    return KafkaSettings(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username=user,
        sasl_password=password,
    )


def change_password(broker: LocalKafka, password: str) -> None:
    """Of the user `sparklag`."""
    admin = AdminClient({"bootstrap.servers": broker.internal_servers})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("sparklag", info, password.encode())
    for changed in admin.alter_user_scram_credentials([change]).values():
        changed.result(60)


def grant(
    broker: LocalKafka,
    kind: ResourceType,
    name: str,
    *operations: AclOperation,
    user: str = "sparklag",
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.internal_servers})
    bindings = [
        AclBinding(kind, name, "literal", f"User:{user}", "*", operation, "allow")
        for operation in operations
    ]
    for granted in admin.create_acls(bindings).values():
        granted.result(60)
