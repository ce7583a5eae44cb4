"""TLS of the REST interface: certificates that are read again when their files change."""

from __future__ import annotations

import ssl
from functools import partial
from pathlib import Path

from sparklag_schemas import SettingsError
from sparklag_schemas.runtime.reloading import Reloaded
from sparklag_schemas.settings import HttpTlsSettings

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]
"""Of `http_port`, which requires a certificate of `client_cafile` if that is set, and of
`http_monitoring_port`, which does not."""


def server_contexts(settings: HttpTlsSettings) -> Reloaded[Contexts]:
    """The contexts of new connections. Raises SettingsError."""
    files = (settings.certfile, settings.keyfile, settings.client_cafile)
    return Reloaded(partial(_contexts, settings), files)


def _contexts(settings: HttpTlsSettings) -> Contexts:
    clients, monitoring = _context(settings), _context(settings)
    if (file := settings.client_cafile) is not None:
        _read("client_cafile", file, "CERTIFICATE")
        try:
            clients.load_verify_locations(file)
        except ssl.SSLError as error:
            raise _wrong("client_cafile", file, "OpenSSL cannot read it") from error
        clients.verify_mode = ssl.CERT_REQUIRED
    return clients, monitoring


def _context(settings: HttpTlsSettings) -> ssl.SSLContext:
    assert settings.certfile is not None
    _read("certfile", settings.certfile, "CERTIFICATE")
    setting = "keyfile" if settings.keyfile else "certfile"
    file = settings.keyfile or settings.certfile
    key = _read(setting, file, "PRIVATE KEY")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password OpenSSL would ask the terminal for one.
        context.load_cert_chain(settings.certfile, file, lambda: settings.key_password or "")
    except (OSError, ValueError) as error:
        cause = "OpenSSL cannot read it"
        if "MISMATCH" in (getattr(error, "reason", "") or ""):
            cause = "its key is not that of the certificate in certfile"
        elif b"ENCRYPTED" in key:
            cause = "its key is encrypted, and http_tls.key_password is missing or wrong"
        raise _wrong(setting, file, cause) from error
    return context


def _read(setting: str, file: str, label: str) -> bytes:
    """The content of a PEM file. The errors of OpenSSL say neither the file nor what is missing."""
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise _wrong(setting, file, error.strerror or str(error)) from error
    if f"{label}-----".encode() not in content:
        raise _wrong(setting, file, f"it has no {label} in PEM")
    return content


def _wrong(setting: str, file: str, cause: str) -> SettingsError:
    return SettingsError(f"setting http_tls.{setting} = {file!r}: {cause}")
