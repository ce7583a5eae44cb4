"""`observe(spark)`: two lines in a driver publish the lag of its queries."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from sparklag_listener.background_loop import process_exit
from sparklag_listener.classic.session import ClassicSession, require_classic_session
from sparklag_listener.connect.session import ConnectSession, is_connect_session
from sparklag_listener.driver_pipeline import Record, Sink
from sparklag_listener.errors import (
    AlreadyObserved,
    ListenerError,
    MissingService,
    NoBrokers,
    SessionStopped,
    UnsupportedSession,
)
from sparklag_listener.handle import ObserverHandle
from sparklag_listener.lag import EmbeddedService
from sparklag_offsets.store import open_store
from sparklag_schemas import Settings, load_settings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.errors import install_command
from sparklag_schemas.text.locations import shown_url

Method = Literal["listener", "connect", "poll"]

_AUTO_TIMEOUT_S = 60.0
_log = logging.getLogger("sparklag")


@dataclass(frozen=True)
class _Arguments:
    """The arguments of `observe`, without the session."""

    bootstrap_servers: str | None = None
    embedded: bool = False
    store: str | None = None
    publish: bool = True
    method: Method | None = None
    config: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def different_from(self, other: _Arguments) -> list[str]:
        """The names of the arguments that have another value in `other`."""
        ours, theirs = ({**vars(each), "settings": None, **each.settings} for each in (self, other))
        return sorted(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n))


class _Observed(NamedTuple):
    handle: ObserverHandle
    arguments: _Arguments
    is_automatic: bool


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
    """Observe every streaming query of `spark`, including those already running.

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
    _await_automatic()
    path = Path(config) if config is not None else None
    arguments = _Arguments(bootstrap_servers, embedded, store, publish, method, path, settings)
    with _handles_lock:
        _require_observable(spark, method)
        existing = _existing(spark)
        if existing is not None:
            different = existing.arguments.different_from(arguments)
            if not different:
                return existing.handle
            if not existing.is_automatic:
                # Without the values: they may hold secrets.
                raise AlreadyObserved(
                    "observe() was called before for this session with another"
                    f" {', '.join(different)}: close() its handle first, or pass the same arguments"
                )
            existing.handle.close()
        return _observe_anew(spark, arguments)


def observe_automatically(spark: Any) -> None:
    """`observe(spark)`, unless `spark` is already observed. Raises as `observe` does."""
    with _handles_lock:
        _require_observable(spark, None)
        if _existing(spark) is None:
            _observe_anew(spark, _Arguments(), is_automatic=True)


def newest_handle() -> ObserverHandle | None:
    """The newest open handle of this process."""
    _await_automatic()
    handles = (observed.handle for observed in tuple(_observed))
    return next((handle for handle in handles if not handle.closed), None)


def _await_automatic() -> None:
    """Wait for the threads in which SPARKLAG_AUTO observes, which cannot handle signals."""
    for thread in threading.enumerate():
        if thread.name == "sparklag-auto":
            thread.join(_AUTO_TIMEOUT_S)
    process_exit.handle_sigterm()


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
    if embedded:
        settings.check_http()
    record: Record | None = None
    if settings.store.url is not None:
        store = open_store(settings.store.url, create=True)
        record = partial(_call_publishing, "record_offsets", store, settings)
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
        sink = service.run if service is not None else partial(_call_publishing, "publish_offsets")
    destination = _destination(settings, publish=publish, embedded=embedded)
    handle = ObserverHandle(session, settings, sink, arguments.method, record, service, destination)
    still_open = (item for item in _observed if not item.handle.closed)
    _observed[:] = [_Observed(handle, arguments, is_automatic), *still_open]
    # Python shows no INFO before logs are configured. A notebook shows the handle.
    is_shown = _log.hasHandlers() or "ipykernel" in sys.modules
    level = logging.INFO if is_shown else logging.WARNING
    line = "sparklag: observing %s, method %s; %s"
    _log.log(level, line, handle.label, handle.method, destination)
    return handle


async def _call_publishing(function: str, *arguments: Any) -> None:
    # Imported on demand, on a thread: aiokafka takes as long to import as the rest of this package.
    publishing = await asyncio.to_thread(import_module, "sparklag_listener.publishing")
    await getattr(publishing, function)(*arguments)


def _destination(settings: Settings, *, publish: bool, embedded: bool) -> str:
    servers = settings.bootstrap_servers
    brokers = shown_url(servers) if servers else "the brokers of its queries"
    parts = []
    if embedded:
        host, port = settings.http_host, settings.http_port
        url = f"{settings.http_scheme}://{host}:{port}" if port else f"a free port of {host}"
        parts.append(f"publishing to topic {settings.lag_topic} on {brokers}, serving {url}")
    elif publish:
        parts.append(f"publishing to topic {settings.offsets_topic} on {brokers}")
    if settings.store.url is not None:
        parts.append(f"recording to {shown_url(settings.store.url)}")
    return ", ".join(parts)


def _require_observable(spark: Any, method: Method | None) -> None:
    if method is not None and method not in get_args(Method):
        raise ListenerError(
            f"observe(method={method!r}): method takes 'listener', 'connect', 'poll' or None"
        )
    if is_connect_session(spark):
        if spark.is_stopped:
            raise SessionStopped("observe() was called on a Spark Connect session that is stopped")
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
    try:
        from sparklag_service import server
    except ModuleNotFoundError as error:
        raise MissingService(
            f"embedded=True needs {error.name}: {install_command('service')}"
        ) from error
    return server.EmbeddedService()
