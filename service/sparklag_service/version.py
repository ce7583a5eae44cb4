"""The version of the installed distribution."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def _installed() -> str:
    try:
        return version("sparklag")
    except PackageNotFoundError:
        # A source tree on the path, not installed.
        return "0.0.0"


VERSION = _installed()
