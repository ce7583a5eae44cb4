"""The programs that deploy/ is for."""

from __future__ import annotations

import pytest

from tests.deploy.programs import Programs, ProgramsMissing, prometheus_programs


@pytest.fixture(scope="session")
def programs() -> Programs:
    """Prometheus' and Alertmanager's."""
    try:
        return prometheus_programs()
    except ProgramsMissing as missing:
        pytest.fail(str(missing), pytrace=False)
