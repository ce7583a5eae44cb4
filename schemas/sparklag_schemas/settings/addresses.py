"""Addresses of Kafka's brokers, as Java's clients take them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv6Address
from typing import Final

from sparklag_schemas.text.locations import shown_url
from sparklag_schemas.text.redaction import redact

_ADDRESS: Final = re.compile(
    r"(?:([0-9a-zA-Z\-%._]*)://)?\[?([0-9a-zA-Z\-%._:]*)\]?:0*([1-9][0-9]{0,4})"
)
"""As Kafka's `Utils.HOST_PORT_PATTERN` since 4.4; before, it took any text in front of the host."""
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def parse_addresses(
    listed: str, setting: str = "bootstrap_servers", security_protocol: str | None = None
) -> list[tuple[str, int]]:
    """Host and port of each address in a list with commas. Prefixes (`SASL_SSL://`) are dropped.

    Raises ValueError, one line that begins with `setting`, for an address that is malformed or has
    a user, or whose prefix contradicts `security_protocol`; None: no prefix does.
    """
    items = list(_items(listed))
    problem = "takes host:port, several with commas, each with or without a prefix (SASL_SSL://)"
    wrong = [redact(shown_url(item)) for item, _, address in items if address is None]
    if "@" in listed:
        # Logs and errors show addresses. A comma may be part of a password.
        wrong = [shown_url(listed)]
        problem += "; a user is set by kafka.sasl_username and kafka.sasl_password"
    elif listed and not items:
        wrong = [listed]
    elif not wrong:
        others = {*_PROTOCOLS} - {security_protocol} if security_protocol else ()
        wrong = [item for item, prefix, _ in items if prefix in others]
        problem = (
            f"contradicts kafka.security_protocol = {security_protocol!r}: set that to the protocol"
            " of the brokers, or leave out the prefix"
        )
    if wrong:
        raise ValueError(f"{setting} = {', '.join(wrong)!r}: {problem}")
    return list(dict.fromkeys(address for _, _, address in items if address is not None))


def address_keys(listed: str) -> set[str]:
    """What the addresses of a list are compared by; malformed ones are left out."""
    addresses = (address for _, _, address in _items(listed) if address is not None)
    return {joined([(host.lower().rstrip("."), port)]) for host, port in addresses}


def joined(addresses: Iterable[tuple[str, int]]) -> str:
    """host:port with commas, IPv6 addresses in brackets."""
    hosts = ((f"[{host}]" if ":" in host else host, port) for host, port in addresses)
    return ",".join(f"{host}:{port}" for host, port in hosts)


def _items(listed: str) -> Iterator[tuple[str, str, tuple[str, int] | None]]:
    """Each item of the list, its prefix in capitals, and its address; None: malformed."""
    for item in filter(None, map(str.strip, listed.split(","))):
        match = _ADDRESS.fullmatch(item)
        prefix, address = "", None
        with suppress(ValueError):
            if match is not None and int(match[3]) < 65_536:
                # Java takes no host as the loopback address.
                host = str(IPv6Address(match[2])) if ":" in match[2] else match[2] or "localhost"
                prefix, address = (match[1] or "").upper(), (host, int(match[3]))
        yield item, prefix, address
