"""`lag(query)`: the lag of a query, in any Python process that reaches Kafka or the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparklag_listener.lag import LAG_TIMEOUT_S, require_name
from sparklag_listener.lag.lags import show_in_notebooks
from sparklag_listener.observe import newest_handle
from sparklag_schemas import LagEvent, load_settings


def lag(
    query: str,
    bootstrap_servers: str | None = None,
    *,
    timeout_s: float = LAG_TIMEOUT_S,
    config: str | Path | None = None,
    **settings: Any,
) -> LagEvent:
    """The newest lag of a query, by its name, its id or the first characters of the id.

    In a process that observes a session, and without settings, it is `handle.lag(query)` of the
    newest handle. Otherwise it comes from the service at `service_url`, where that is set, else
    from the topic `consumer-lag` of `bootstrap_servers`; `settings` are fields of `Settings`, over
    `config` and the environment. Blocks, for at most `timeout_s`.
    Raises QueryNotFound, AmbiguousQueryName, LagUnavailable, SettingsError.
    """
    require_name(query)
    show_in_notebooks()
    handle = newest_handle()
    if handle is not None and bootstrap_servers is None and config is None and not settings:
        return handle.lag(query, timeout_s=timeout_s)
    loaded = load_settings(
        config=Path(config) if config is not None else None,
        overrides={"bootstrap_servers": bootstrap_servers, **settings},
    )
    # Neither is imported by a driver that only observes.
    if loaded.service_url is not None:
        from sparklag_listener.lag.rest_source import RestSource
        from sparklag_schemas.service_access import ServiceAccess

        service = ServiceAccess(loaded.service_url, loaded.service_client)
        return RestSource(service).find(query, timeout_s)
    from sparklag_listener.lag.topic_source import TopicSource

    return TopicSource(loaded.resolved()).find(query, timeout_s)
