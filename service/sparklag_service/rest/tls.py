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
    """The context of a listening socket. Each handshake uses the files as last read."""

    def __init__(self, settings: HttpTlsSettings, *, asks_client: bool) -> None:
        """`asks_client`: require a certificate of `client_cafile`, if that is set. Raises
        SettingsError."""
        self._settings = settings
        self._client_cafile = settings.client_cafile if asks_client else None
        self._versions = self._read_versions()
        self._current = self._load()
        self.context = self._load()
        self.context.sni_callback = lambda handshake, *_: setattr(
            handshake, "context", self._current
        )

    def reload(self) -> None:
        """Read the files again if one has changed. Until all fit together, the last ones count."""
        versions = self._read_versions()
        if versions == self._versions:
            return
        self._versions = versions
        try:
            self._current = self._load()
        except SettingsError as error:
            _log.error("%s; the files that were read before are used", error)
        else:
            _log.info("the certificate of http_tls was read again")

    def _read_versions(self) -> list[object]:
        settings = self._settings
        files = (settings.certfile, settings.keyfile, self._client_cafile)
        return [file_version(Path(file)) for file in files if file is not None]

    def _load(self) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        assert settings.certfile is not None
        try:
            # Without a password OpenSSL would ask the terminal for one.
            password = settings.key_password or ""
            context.load_cert_chain(settings.certfile, settings.keyfile, lambda: password)
            if self._client_cafile is not None:
                context.load_verify_locations(self._client_cafile)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ValueError) as error:
            # ssl.SSLError is an OSError. None of them names the file.
            files = f"{settings.certfile}, {settings.keyfile or 'the same'}"
            if self._client_cafile is not None:
                files += f", {self._client_cafile}"
            raise SettingsError(f"files of http_tls ({files}): {error}") from error
        return context
