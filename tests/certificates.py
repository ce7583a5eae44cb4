"""Certificates for tests of TLS: an authority, what it has signed, and another authority."""

from __future__ import annotations

import ssl
from datetime import datetime
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives import serialization

from sparklag_schemas import KafkaSettings
from sparklag_schemas.settings import HttpTlsSettings


class Certificates:
    """PEM files: an authority, a server's key and certificate, a client's; another authority, and
    its client's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca, self.ca_key, self.other_ca = (
            folder / name for name in ("ca.crt", "ca.key", "other.crt")
        )
        self.server = folder / "server.pem"
        self.client_certificate, self.client_key = folder / "client.crt", folder / "client.key"
        self.other_client = folder / "other-client.pem"
        self.client = {
            "ssl_cafile": str(self.ca),
            "ssl_certfile": str(self.client_certificate),
            "ssl_keyfile": str(self.client_key),
        }
        """Settings by which a client trusts the server and shows who it is."""

    def kafka_settings(self, **fields: Any) -> KafkaSettings:
        return KafkaSettings(**{"security_protocol": "SSL", **self.client, **fields})

    def http_tls(self, client_cafile: Path | None = None) -> HttpTlsSettings:
        ca = None if client_cafile is None else str(client_cafile)
        return HttpTlsSettings(certfile=str(self.server), client_cafile=ca)

    def client_context(self, *, with_certificate: bool = True) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        if with_certificate:
            context.load_cert_chain(self.client_certificate, self.client_key)
        return context

    def server_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca))
        context.load_cert_chain(self.server)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def other_server_context(
        self, host: str = "127.0.0.1", not_after: datetime | None = None
    ) -> ssl.SSLContext:
        authority = trustme.CA.from_pem(self.ca.read_bytes(), self.ca_key.read_bytes())
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(host, not_after=not_after).configure_cert(context)
        return context


def make_certificates(folder: Path) -> Certificates:
    made = Certificates(folder)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(made.ca)
    authority.private_key_pem.write_to_path(made.ca_key)
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("client")
    made.server.write_bytes(_key(server) + server.cert_chain_pems[0].bytes())
    client.cert_chain_pems[0].write_to_path(made.client_certificate)
    made.client_key.write_bytes(_key(client))
    other = trustme.CA()
    other.cert_pem.write_to_path(made.other_ca)
    stranger = other.issue_cert("client")
    made.other_client.write_bytes(_key(stranger) + stranger.cert_chain_pems[0].bytes())
    return made


def _key(leaf: trustme.LeafCert) -> bytes:
    # Java reads no other form.
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
