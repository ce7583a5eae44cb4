"""What of a store's URL may be shown. Pure."""

from __future__ import annotations


def shown_url(url: str) -> str:
    """As it may be shown: without a password, or options that may hold one."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        # A scheme was forgotten: all of it may be a password.
        scheme, rest = "", url
    # Whatever stands before the last @: passwords come unescaped too, and users with an @.
    credentials, at, place = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    hidden = f"{user}:***@" if colon else user + at
    return f"{scheme}{separator}{hidden}{place.partition('?')[0]}"


def reason(error: Exception, url: str) -> str:
    """Why a URL cannot be used, as far as that may be shown: it may quote what is in it."""
    return "" if "@" in url or "?" in url else f": {error}"
