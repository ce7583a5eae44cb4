"""Why a store's URL cannot be used, as far as that may be shown. Pure."""

from __future__ import annotations


def reason(error: Exception, url: str) -> str:
    """It may quote what is in the URL, which is left out then."""
    return "" if "@" in url or "?" in url else f": {error}"
