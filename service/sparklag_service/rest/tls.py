"""TLS of the REST interface: certificates that are read again when their files change."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from sparklag_schemas import SettingsError
from sparklag_schemas.settings import HttpTlsSettings
from sparklag_service.access.token_file import file_version

_log = logging.getLogger(__name__)


class ServerTls:
    """The contexts of new connections, by the files as last read."""

    def __init__(self, settings: HttpTlsSettings) -> None:
        """Raises SettingsError."""
        self._settings = settings
        self._versions = self._read_versions()
        self.contexts = self._load()
        """Of `http_port`, which requires a certificate of `client_cafile` if that is set, and of
        `http_monitoring_port`, which does not."""

    def reload(self) -> None:
        """Read the files again if one has changed. Until all fit together, the last ones count."""
        versions = self._read_versions()
        if versions == self._versions:
            return
        self._versions = versions
        try:
            self.contexts = self._load()
        except SettingsError as error:
            _log.error("%s; the files that were read before are used", error)
        else:
            _log.info("the certificate of http_tls was read again")

    def _read_versions(self) -> list[object]:
        settings = self._settings
        files = (settings.certfile, settings.keyfile, settings.client_cafile)
        return [file_version(Path(file)) for file in files if file is not None]

    def _load(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        clients, monitoring = self._context(), self._context()
        if (file := self._settings.client_cafile) is not None:
            _read("client_cafile", file, "CERTIFICATE")
            try:
                clients.load_verify_locations(file)
            except ssl.SSLError as error:
                raise _wrong("client_cafile", file, "OpenSSL cannot read it") from error
            clients.verify_mode = ssl.CERT_REQUIRED
        return clients, monitoring

    def _context(self) -> ssl.SSLContext:
        settings = self._settings
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
