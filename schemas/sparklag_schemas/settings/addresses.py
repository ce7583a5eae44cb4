"""Addresses of Kafka's brokers, as Java's clients take them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv6Address
from typing import Final

from sparklag_schemas.text.locations import shown_url

_ADDRESS: Final = re.compile(
    r"(?:([0-9a-zA-Z\-%._]*)://)?\[?([0-9a-zA-Z\-%._:]*)\]?:0*([1-9][0-9]{0,4})"
)
"""As Kafka's `Utils.HOST_PORT_PATTERN` since 4.4; before, it took any text in front of the host."""
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LAST_PORT: Final = 65_535
_TAKES: Final = "takes host:port, several with commas, each with or without a prefix (SASL_SSL://)"


def parse_addresses(
    listed: str, setting: str = "bootstrap_servers", security_protocol: str | None = None
) -> list[tuple[str, int]]:
    """Host and port of each address in a list with commas. Prefixes (`SASL_SSL://`) are dropped.

    Raises ValueError, one line that begins with `setting`, for an address that is malformed or has
    a user, or whose prefix contradicts `security_protocol`; None: no prefix does.
    """
    items = list(_items(listed))
    if "@" in listed:
        # Logs and errors show addresses. A comma may be part of a password.
        raise ValueError(
            f"{setting} = {shown_url(listed)!r}: {_TAKES}; a user is set by kafka.sasl_username and"
            " kafka.sasl_password"
        )
    malformed = ", ".join(shown_url(item) for item, _, address in items if address is None)
    if malformed or (listed and not items):
        raise ValueError(f"{setting} = {malformed or listed!r}: {_TAKES}")
    contradicting = ", ".join(
        item
        for item, prefix, _ in items
        if prefix in _PROTOCOLS and security_protocol not in (None, prefix)
    )
    if contradicting:
        raise ValueError(
            f"{setting} = {contradicting!r} contradicts kafka.security_protocol ="
            f" {security_protocol!r}: set that to the protocol of the brokers, or leave out the"
            " prefix"
        )
    return list(dict.fromkeys(address for _, _, address in items if address is not None))


def normal_addresses(
    listed: str, setting: str = "bootstrap_servers", security_protocol: str | None = None
) -> str:
    """The list as host:port with commas. Raises ValueError as `parse_addresses` does."""
    return ",".join(map(joined, parse_addresses(listed, setting, security_protocol)))


def address_keys(listed: str) -> set[str]:
    """What the addresses of a list are compared by; malformed ones are left out."""
    addresses = (address for _, _, address in _items(listed) if address is not None)
    return {joined((host.lower().rstrip("."), port)) for host, port in addresses}


def joined(address: tuple[str, int]) -> str:
    """host:port, an IPv6 address in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _items(listed: str) -> Iterator[tuple[str, str, tuple[str, int] | None]]:
    """Each item of the list, its prefix in capitals, and its address; None: malformed."""
    for part in listed.split(","):
        item = part.strip()
        if not item:
            continue
        match = _ADDRESS.fullmatch(item)
        host = _host(match[2]) if match is not None and int(match[3]) <= _LAST_PORT else None
        if match is None or host is None:
            yield item, "", None
        else:
            yield item, (match[1] or "").upper(), (host, int(match[3]))


def _host(text: str) -> str | None:
    if ":" not in text:
        # Java takes no host as the loopback address.
        return text or "localhost"
    try:
        return str(IPv6Address(text))
    except ValueError:
        return None
