"""`observe(spark)`: two lines in a driver, and its queries' lag is known."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Literal, get_args

from sparklag_listener.classic.jvm_session import JvmSession, require_jvm_session
from sparklag_listener.connect.session import (
    ConnectSession,
    is_connect_session,
    require_connect_session,
)
from sparklag_listener.errors import (
    ListenerError,
    MissingService,
    NoBrokers,
    UnsupportedSession,
)
from sparklag_listener.handle import ObserverHandle
from sparklag_listener.publishing.counters import Stats
from sparklag_listener.publishing.driver_pipeline import Record, Sink
from sparklag_listener.publishing.offset_recorder import OffsetRecorder
from sparklag_listener.publishing.publisher import OffsetsPublisher
from sparklag_offsets.store.offset_store import open_store
from sparklag_schemas import Observation, ResolvedSettings, Settings, load_settings
from sparklag_schemas.formats import MessageFormats
from sparklag_schemas.runtime.queue import NewestQueue

Method = Literal["listener", "connect", "poll"]

# A session is observed once, whoever asks: the JVM holds a listener for each registration.
_handles: list[ObserverHandle] = []
_observing = threading.Lock()


def observe(
    spark: Any,
    bootstrap_servers: str | None = None,
    *,
    embedded: bool = False,
    store: str | None = None,
    publish: bool = True,
    method: Method | None = None,
    config: str | Path | None = None,
    **settings: Any,
) -> ObserverHandle:
    """Observe every streaming query of `spark`, those already running too.

    `bootstrap_servers`: the Kafka that carries sparklag's topics; without it (and without
    SPARKLAG_BOOTSTRAP_SERVERS) that of the first query with a Kafka source.
    `embedded`: run the whole service in this process; needs the `service` extra.
    `store`: URL of an offset store, `sqlite:///offsets.db`: every batch's offsets are kept there
    too, by this driver; needs the extra of its database (`sqlite`). None: setting `store.url`.
    `publish`: False says nothing to Kafka, and asks for a store.
    `method`: "listener" is told of each event by the JVM's listener bus, "connect" by Spark
    Connect's client, "poll" asks for each query's last progress every `refresh_interval_s`, and so
    sees the newest batch only. None: the first or second as the session is, "poll" where it cannot.
    `settings`: any field of `Settings`, over `config` (a TOML file) and the environment.

    Under Spark Connect `bootstrap_servers` must be given (or set): the client does not learn what
    a query reads from.
    Returns at once, Kafka there or not; from then on nothing is raised into the driver. A session
    that is observed already answers with the handle it has.
    Raises ListenerError for a session that cannot be observed, SettingsError for a wrong setting,
    StoreError for a store that cannot be one, MissingPackage where Avro is wanted without what it
    needs.
    """
    _require_observable(spark, method)
    with _observing:
        known = next((handle for handle in _handles if handle.observes(spark)), None)
        if known is not None:
            return known
        resolved = load_settings(
            config=Path(config) if config is not None else None,
            overrides={
                "bootstrap_servers": bootstrap_servers,
                "store": {"url": store} if store is not None else None,
                **settings,
            },
        )
        record = _recorder(resolved)
        if not publish and (embedded or record is None):
            raise ListenerError(
                "observe(publish=False) only records: it needs store=, and no embedded=True"
            )
        if publish and is_connect_session(spark) and not resolved.bootstrap_servers:
            raise NoBrokers(
                "observe() of a Spark Connect session needs bootstrap_servers: its client does not"
                " learn which brokers a query reads from"
            )
        sink = None
        if publish:
            # Here, where it is raised to whoever can install what is missing.
            MessageFormats(resolved)
            sink = _embedded_sink() if embedded else _publish
        session = ConnectSession(spark) if is_connect_session(spark) else JvmSession(spark)
        handle = ObserverHandle(session, resolved, sink, method, record)
        _handles[:] = [handle, *(other for other in _handles if not other.closed)]
        return handle


def _require_observable(spark: Any, method: Method | None) -> None:
    """Raise the error that says why `spark` cannot be observed by `method`, if it cannot."""
    if method is not None and method not in get_args(Method):
        raise ListenerError(
            f"observe(method={method!r}): method takes 'listener', 'connect', 'poll' or None"
        )
    if is_connect_session(spark):
        require_connect_session(spark)
        if method == "listener":
            raise UnsupportedSession(
                "observe(method='listener') needs a classic Spark session, this is a Spark Connect"
                " session: its method is 'connect' or 'poll'"
            )
    else:
        require_jvm_session(spark)
        if method == "connect":
            raise UnsupportedSession(
                "observe(method='connect') needs a Spark Connect session, this is a classic one:"
                " its method is 'listener' or 'poll'"
            )


async def _publish(
    queue: NewestQueue[Observation], settings: ResolvedSettings, stats: Stats
) -> None:
    await OffsetsPublisher(queue, settings, stats).run()


def _recorder(settings: Settings) -> Record | None:
    """What keeps offsets in the store, where there is to be one. Raises UnusableStore."""
    if settings.store.url is None:
        return None
    return OffsetRecorder(open_store(settings.store.url, create=True), settings)


def _embedded_sink() -> Sink:
    try:
        from sparklag_service.embedded import serve_embedded
    except ModuleNotFoundError as error:
        raise MissingService(
            f"embedded=True needs {error.name}: pip install 'sparklag[service]'"
        ) from error
    return serve_embedded
