"""Which format a reader gets."""

from __future__ import annotations

import pytest

from sparklag_service.metrics.negotiation import wants_gzip, wants_open_metrics

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1"
    ";q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/"
    "openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "open_metrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/html,*/*;q=0.8", False),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; version=1.0.0; charset=utf-8", True),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.9", False),
        ("application/openmetrics-text;q=nonsense", False),
        (PROMETHEUS_2, True),
        (PROMETHEUS_3, True),
    ],
)
def test_open_metrics_goes_to_whoever_likes_it_best(accept: str, open_metrics: bool) -> None:
    assert wants_open_metrics(accept) is open_metrics


@pytest.mark.parametrize(
    ("accept_encoding", "gzip"),
    [
        ("", False),
        ("identity", False),
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("*", True),
        ("gzip;q=0, *", False),
    ],
)
def test_gzip_goes_to_whoever_accepts_it(accept_encoding: str, gzip: bool) -> None:
    assert wants_gzip(accept_encoding) is gzip
