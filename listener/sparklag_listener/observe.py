"""`observe(spark)`: two lines in a driver, and its queries' lag is known."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from sparklag_listener.counters import Stats
from sparklag_listener.driver_pipeline import Sink
from sparklag_listener.errors import MissingService
from sparklag_listener.handle import ObserverHandle
from sparklag_listener.publisher import OffsetsPublisher
from sparklag_listener.spark_session import require_observable
from sparklag_schemas import Observation, Settings, load_settings
from sparklag_schemas.queue import NewestQueue

# A session is observed once, whoever asks: the JVM holds a listener for each registration.
_handles: list[ObserverHandle] = []
_observing = threading.Lock()


def observe(
    spark: Any,
    bootstrap_servers: str | None = None,
    *,
    embedded: bool = False,
    config: str | Path | None = None,
    **settings: Any,
) -> ObserverHandle:
    """Observe every streaming query of `spark`, those already running too.

    `bootstrap_servers`: the Kafka that carries sparklag's topics; without it (and without
    SPARKLAG_BOOTSTRAP_SERVERS) that of the first query with a Kafka source.
    `embedded`: run the whole service in this process; needs the `service` extra.
    `settings`: any field of `Settings`, over `config` (a TOML file) and the environment.

    Returns at once, Kafka there or not; from then on nothing is raised into the driver. A session
    that is observed already answers with the handle it has.
    Raises ListenerError for a session that cannot be observed, SettingsError for a wrong setting.
    """
    require_observable(spark)
    with _observing:
        known = next((handle for handle in _handles if handle.observes(spark)), None)
        if known is not None:
            return known
        resolved = load_settings(
            config=Path(config) if config is not None else None,
            overrides={"bootstrap_servers": bootstrap_servers, **settings},
        )
        handle = ObserverHandle(spark, resolved, _embedded_sink() if embedded else _publish)
        _handles[:] = [handle, *(other for other in _handles if not other.closed)]
        return handle


async def _publish(
    queue: NewestQueue[Observation], settings: Settings, bootstrap_servers: str, stats: Stats
) -> None:
    await OffsetsPublisher(queue, settings, bootstrap_servers, stats).run()


def _embedded_sink() -> Sink:
    try:
        from sparklag_service.embedded import serve_embedded
    except ModuleNotFoundError as error:
        raise MissingService(
            f"embedded=True needs {error.name}: pip install 'sparklag[service]'"
        ) from error
    return serve_embedded
