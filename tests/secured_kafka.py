"""Brokers that take no client without a login or a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
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
    def __init__(self, **properties: str) -> None:
        super().__init__(
            security_protocol="SASL_PLAINTEXT",
            scram_users=dict.fromkeys(_USERS, _PASSWORD),
            properties={
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                # The internal listener knows no users: who comes by it may do all.
                "super.users": "User:ANONYMOUS",
                **properties,
            },
        )


class _SessionLog(LocalKafka):
    """Logs the sessions that it ends."""

    def expired_sessions(self) -> int:
        return self.log_path.read_text().count("Disconnecting expired channel")

    def _write_configuration(self) -> Path:
        path = super()._write_configuration()
        with (self.directory / "log4j2.properties").open("a") as file:
            file.write("logger.a.name = kafka.network.Processor\nlogger.a.level = DEBUG\n")
        return path


def _ending(session_s: float) -> dict[str, str]:
    return {"connections.max.reauth.ms": str(round(session_s * 1000))}


class ExpiringKafka(_SessionLog, ScramKafka):
    """Ends sessions that are older than `session_s`. User `sparklag` may do all."""

    def __init__(self, session_s: float) -> None:
        super().__init__(**_ending(session_s), **{"super.users": "User:ANONYMOUS;User:sparklag"})


class OAuthKafka(_SessionLog):
    """The same, for those who have a token of the issuer at `url`."""

    def __init__(self, url: str, session_s: float = 3600) -> None:
        listener, package = "listener.name.client", "org.apache.kafka.common.security.oauthbearer"
        mechanism = f"{listener}.oauthbearer.sasl"
        properties = {
            f"{listener}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{mechanism}.jaas.config": f"{package}.OAuthBearerLoginModule required;",
            f"{mechanism}.server.callback.handler.class": (
                f"{package}.OAuthBearerValidatorCallbackHandler"
            ),
            f"{mechanism}.oauthbearer.jwks.endpoint.url": f"{url}/keys",
            f"{mechanism}.oauthbearer.expected.audience": "kafka",
            f"{mechanism}.oauthbearer.expected.issuer": url,
        }
        super().__init__(
            security_protocol="SASL_PLAINTEXT", properties={**properties, **_ending(session_s)}
        )
        self.jvm_options = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}/keys"]


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
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    bindings = [
        AclBinding(kind, name, literal, f"User:{user}", "*", operation, allow)
        for operation in operations
    ]
    for granted in admin.create_acls(bindings).values():
        granted.result(60)
