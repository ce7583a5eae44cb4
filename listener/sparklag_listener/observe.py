"""`observe(spark)`: two lines in a driver publish the lag of its queries."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from sparklag_listener.classic.session import ClassicSession, require_classic_session
from sparklag_listener.connect.session import (
    ConnectSession,
    is_connect_session,
    require_connect_session,
)
from sparklag_listener.driver_pipeline import Record, Sink
from sparklag_listener.errors import (
    AlreadyObserved,
    ListenerError,
    MissingService,
    NoBrokers,
    UnsupportedSession,
)
from sparklag_listener.handle import ObserverHandle
from sparklag_listener.lag.source import EmbeddedService
from sparklag_listener.stats import Stats
from sparklag_offsets.store.batch_record import OffsetStore
from sparklag_offsets.store.stores import open_store
from sparklag_schemas import Observation, ResolvedSettings, Settings, load_settings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.text.redaction import shown_url

Method = Literal["listener", "connect", "poll"]

_log = logging.getLogger("sparklag")


@dataclass(frozen=True)
class _Arguments:
    """Those of `observe`, but the session."""

    bootstrap_servers: str | None = None
    embedded: bool = False
    store: str | None = None
    publish: bool = True
    method: Method | None = None
    config: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def names_of_others(self, other: _Arguments) -> list[str]:
        """Names of the arguments that `other` has another value of."""
        ours, theirs = ({**vars(each), "settings": None, **each.settings} for each in (self, other))
        return sorted(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n))


class _Observed(NamedTuple):
    handle: ObserverHandle
    arguments: _Arguments
    is_automatic: bool
    """Whether `observe_automatically` made it."""


# A session has one handle: the JVM would hold a listener for each registration.
_observed: list[_Observed] = []
_handles_lock = threading.Lock()


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
    `store`: URL of an offset store, `sqlite:///offsets.db`: this driver also records every batch's
    offsets there; needs the extra of its database (`sqlite`). None: setting `store.url`.
    `publish`: False publishes nothing to Kafka; needs a store.
    `method`: "listener" receives each event from the JVM's listener bus, "connect" from Spark
    Connect's client, "poll" polls each query's last progress every `refresh_interval_s`, and so
    sees the newest batch only. None: by the kind of session, "poll" where there is no listener.
    `settings`: any field of `Settings`, over `config` (a TOML file), the environment and Spark's
    configuration (`spark.sparklag.*`).

    Under Spark Connect `bootstrap_servers` is required: the client cannot read a query's options.
    Returns at once, also without Kafka; from then on nothing is raised into the driver. For an
    observed session it returns the existing handle; where the session is observed automatically,
    and the arguments are others, that handle is closed and a new one made.
    Raises AlreadyObserved where `observe` had other arguments, ListenerError for a session that
    cannot be observed, SettingsError for a wrong setting, StoreError for an unusable store,
    MissingPackage for Avro without its packages.
    """
    path = Path(config) if config is not None else None
    arguments = _Arguments(bootstrap_servers, embedded, store, publish, method, path, settings)
    with _handles_lock:
        _require_observable(spark, method)
        existing = _existing(spark)
        if existing is not None:
            others = existing.arguments.names_of_others(arguments)
            if others and not existing.is_automatic:
                # Without the values: they may hold secrets.
                raise AlreadyObserved(
                    "observe() was called before for this session with another"
                    f" {', '.join(others)}: close() its handle first, or pass the same arguments"
                )
            if not others:
                return existing.handle
            existing.handle.close()
        return _observe_anew(spark, arguments)


def observe_automatically(spark: Any) -> None:
    """`observe(spark)`, unless it is observed already. Raises as `observe` does."""
    with _handles_lock:
        _require_observable(spark, None)
        if _existing(spark) is None:
            _observe_anew(spark, _Arguments(), is_automatic=True)


def newest_handle() -> ObserverHandle | None:
    """The open handle that was made last in this process."""
    handles = (observed.handle for observed in tuple(_observed))
    return next((handle for handle in handles if not handle.closed), None)


def _existing(spark: Any) -> _Observed | None:
    return next((each for each in _observed if each.handle.observes(spark)), None)


def _observe_anew(
    spark: Any, arguments: _Arguments, *, is_automatic: bool = False
) -> ObserverHandle:
    publish, embedded = arguments.publish, arguments.embedded
    session = ConnectSession(spark) if is_connect_session(spark) else ClassicSession(spark)
    settings = load_settings(
        config=arguments.config,
        spark_configuration=session.configuration(),
        overrides={
            "bootstrap_servers": arguments.bootstrap_servers,
            "store": {"url": arguments.store} if arguments.store is not None else None,
            **arguments.settings,
        },
    )
    record: Record | None = None
    if settings.store.url is not None:
        record = partial(_record, open_store(settings.store.url, create=True), settings)
    if not publish and (embedded or record is None):
        raise ListenerError(
            "observe(publish=False) only records: it needs store=, and no embedded=True"
        )
    if publish and is_connect_session(spark) and not settings.bootstrap_servers:
        raise NoBrokers(
            "observe() of a Spark Connect session needs bootstrap_servers: its client cannot"
            " read the brokers of a query"
        )
    service: EmbeddedService | None = None
    sink: Sink | None = None
    if publish:
        # Raises MissingPackage here, to the user, and not later in the loop.
        MessageFormats(settings)
        service = _embedded_service() if embedded else None
        sink = _publish if service is None else service.run
    destination = _destination(settings, publish=publish, embedded=embedded)
    handle = ObserverHandle(session, settings, sink, arguments.method, record, service, destination)
    others = (other for other in _observed if not other.handle.closed)
    _observed[:] = [_Observed(handle, arguments, is_automatic), *others]
    _log.info("sparklag: observing %s, method %s; %s", handle.label, handle.method, destination)
    return handle


# Neither is imported before it is needed, and then on a thread of its own: aiokafka alone takes as
# long as the rest of this package.
async def _publish(
    queue: NewestQueue[Observation], settings: ResolvedSettings, stats: Stats
) -> None:
    """A Sink."""

    def load() -> Sink:
        from sparklag_listener.publishing import publish_offsets

        return publish_offsets

    await (await asyncio.to_thread(load))(queue, settings, stats)


async def _record(
    store: OffsetStore, settings: Settings, queue: NewestQueue[Observation], stats: Stats
) -> None:
    """With the first two arguments, a Record."""

    def load() -> Callable[..., Awaitable[None]]:
        from sparklag_listener.publishing import record_offsets

        return record_offsets

    await (await asyncio.to_thread(load))(store, settings, queue, stats)


def _destination(settings: Settings, *, publish: bool, embedded: bool) -> str:
    """Where observations go, in a sentence."""
    servers = settings.bootstrap_servers
    brokers = shown_url(servers) if servers else "the brokers of its queries"
    parts = []
    if embedded:
        host, port = settings.http_host, settings.http_port
        url = f"http://{host}:{port}" if port else f"a free port of {host}"
        parts.append(f"publishing to topic {settings.lag_topic} on {brokers}, serving {url}")
    elif publish:
        parts.append(f"publishing to topic {settings.offsets_topic} on {brokers}")
    if settings.store.url is not None:
        parts.append(f"recording to {shown_url(settings.store.url)}")
    return ", ".join(parts)


def _require_observable(spark: Any, method: Method | None) -> None:
    """Raise ListenerError where `spark` cannot be observed by `method`."""
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
        require_classic_session(spark)
        if method == "connect":
            raise UnsupportedSession(
                "observe(method='connect') needs a Spark Connect session, this is a classic one:"
                " its method is 'listener' or 'poll'"
            )


def _embedded_service() -> EmbeddedService:
    """The service, whose `run` is a Sink."""
    try:
        from sparklag_service import server
    except ModuleNotFoundError as error:
        raise MissingService(
            f"embedded=True needs {error.name}: pip install 'sparklag[service]'"
        ) from error
    return server.EmbeddedService()
