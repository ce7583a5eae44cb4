"""How sparklag's own clients reach a service: its URL, a token and TLS."""

from __future__ import annotations

import ssl
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from sparklag_schemas.errors import SettingsError
from sparklag_schemas.settings.http_access import ServiceClientSettings, is_loopback
from sparklag_schemas.text.locations import shown_url


class ServiceAccess:
    """A service at a URL, and the credentials for it."""

    def __init__(self, url: str, settings: ServiceClientSettings | None = None) -> None:
        """`url`: a valid one."""
        self.url = url
        self.shown = shown_url(url)
        self._settings = settings or ServiceClientSettings()

    @cached_property
    def context(self) -> ssl.SSLContext | None:
        """The TLS context for an https URL. Raises SettingsError."""
        if not self.url.startswith("https:"):
            return None
        return self._settings.client_context("service_client")

    def headers(self) -> dict[str, str]:
        """The header with the token, as its file has it now. Raises SettingsError, also if others
        could read the token on its way."""
        setting, token = "service_client.token", self._settings.token
        if (file := self._settings.token_file) is not None:
            setting = f"service_client.token_file = {file!r}"
            try:
                token = Path(file).read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", "it is not ASCII")
                raise SettingsError(f"{setting} cannot be read: {why}") from None
        if token is None:
            return {}
        if not (token.isascii() and token.isprintable() and len(token.split()) == 1):
            raise SettingsError(
                f"{setting} is no token: takes what `sparklag tokens create` prints"
            )
        is_private = self.context is not None or is_loopback(urlsplit(self.url).hostname or "")
        if not (is_private or self._settings.allow_http):
            raise SettingsError(
                f"{setting} is not sent to {self.shown}, where others could read it: use https, or"
                " set service_client.allow_http = true"
            )
        return {"Authorization": f"Bearer {token}"}

    def refusal(self, status: int) -> str:
        """What to set after a response with this status, as the end of a line; may be empty."""
        if status != 401:
            return ""
        is_set = self._settings.token is not None or self._settings.token_file is not None
        return (
            f": {'correct' if is_set else 'set'} service_client.token or service_client.token_file"
        )

    def tls_problem(self, error: BaseException, *, was_ended: bool) -> str | None:
        """What a failed request says about TLS, and what to set. None: nothing. `was_ended`: the
        service ended the connection."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, ssl.SSLCertVerificationError):
            trust = "service_client.ssl_cafile names the trusted authorities"
            return f"its certificate is not accepted ({cause.verify_message.rstrip('.')}): {trust}"
        if cause is not None and "ALERT" not in (cause.reason or ""):
            return f"it does not answer by TLS ({cause.reason}): is it http://?"
        if cause is None and not was_ended:
            return None
        want = "https://" if self.context is None else "another service_client.ssl_certfile"
        return f"it ended the connection: does it want {want}?"
