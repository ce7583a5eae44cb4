"""Measures the lag of observed queries, publishes it as events and serves it over REST."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def _installed_version() -> str:
    try:
        return version("sparklag")
    except PackageNotFoundError:
        # A source tree on the path, not installed.
        return "0.0.0"


VERSION = _installed_version()
