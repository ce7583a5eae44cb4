"""Certificates for tests of TLS: an authority, what it has signed, and a stranger."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparklag_schemas import KafkaSettings


@dataclass(frozen=True)
class Certificates:
    """PEM files: an authority, a server's key and certificate, a client's, another authority."""

    ca: Path
    server: Path
    client_certificate: Path
    client_key: Path
    other_ca: Path

    @property
    def client(self) -> dict[str, str]:
        """Settings by which a client trusts the server and shows who it is."""
        return {
            "ssl_cafile": str(self.ca),
            "ssl_certfile": str(self.client_certificate),
            "ssl_keyfile": str(self.client_key),
        }

    def kafka_settings(self, **fields: Any) -> KafkaSettings:
        """The client's, with `fields` instead."""
        return KafkaSettings(**{"security_protocol": "SSL", **self.client, **fields})

    def server_context(self) -> ssl.SSLContext:
        """Of a server that asks for a client's certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca))
        context.load_cert_chain(self.server)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


def server_context_of(
    certificates: Certificates, name: str, *, subject: str = "IP:127.0.0.1", days: int = 2
) -> ssl.SSLContext:
    """Of a server with another certificate of the same authority, which asks for none."""
    certificate, key = _signed(certificates.ca.parent, name, subject, days)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


def make_certificates(folder: Path) -> Certificates:
    """In that folder, good for a day or two, for 127.0.0.1."""
    _authority(folder, "ca")
    server_certificate, server_key = _signed(folder, "server")
    server = folder / "server.pem"
    server.write_text(server_key.read_text() + server_certificate.read_text())
    client_certificate, client_key = _signed(folder, "client")
    return Certificates(
        folder / "ca.crt", server, client_certificate, client_key, _authority(folder, "other")
    )


def _authority(folder: Path, name: str) -> Path:
    certificate = folder / f"{name}.crt"
    _openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
        *("-keyout", str(folder / f"{name}.key"), "-out", str(certificate)),
    )
    return certificate


def _signed(
    folder: Path, name: str, subject: str = "IP:127.0.0.1", days: int = 2
) -> tuple[Path, Path]:
    key, request = folder / f"{name}.key", folder / f"{name}.csr"
    certificate, extension = folder / f"{name}.crt", folder / f"{name}.ext"
    extension.write_text(f"subjectAltName={subject}\n")
    _openssl(
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
        *("-keyout", str(key), "-out", str(request)),
    )
    _openssl(
        *("x509", "-req", "-in", str(request), "-days", str(days), "-CAcreateserial"),
        *("-CA", str(folder / "ca.crt"), "-CAkey", str(folder / "ca.key")),
        *("-extfile", str(extension), "-out", str(certificate)),
    )
    return certificate, key


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
