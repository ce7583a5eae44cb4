"""A program: the history goes on after fields were added to the messages, and to these alone.

python -m tests.jobs.history_new_fields BOOTSTRAP_SERVERS FOLDER FORMAT...: continues the tables
and topics of `history_session` in FOLDER; FOLDER/new_fields.json is the result.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

import sparklag_schemas
from sparklag_schemas.messages import lag_event
from sparklag_schemas.messages.bounds import Count, Index


class PartitionLag(lag_event.PartitionLag, frozen=True, kw_only=True):
    replicas: Annotated[Index | None, Meta(description="New.")] = None


class TopicLag(lag_event.TopicLag, frozen=True, kw_only=True):
    partitions: list[PartitionLag]  # type: ignore[assignment]  # a list of the subclass
    owner: str | None = None


class LagEvent(lag_event.LagEvent, frozen=True, kw_only=True):
    topics: list[TopicLag]  # type: ignore[assignment]  # a list of the subclass
    retries: Annotated[Count | None, Meta(description="New.")] = None
    labels: dict[str, str] | None = None


def main(servers: str, folder: Path) -> None:
    for module in (sparklag_schemas, lag_event):
        for message in (LagEvent, TopicLag, PartitionLag):
            setattr(module, message.__name__, message)
    # Not before: the history takes its columns from the messages when it is imported.
    from sparklag_jobs.history import partition_rows
    from sparklag_jobs.history.lag_history import create_tables
    from sparklag_jobs.history.tables import FORMATS, open_tables
    from tests.jobs import history_session as session
    from tests.second_client import SecondClient

    tables = {name: open_tables(name, str(folder / name)) for name in FORMATS}
    spark = session.session_for(list(tables.values()))
    result: dict[str, list[dict[str, Any]]] = {}
    for name, history in tables.items():
        SecondClient(servers).produce(f"history-{name}", [msgspec.json.encode(_event())])
        create_tables(spark, history)
        session.ingest_once(spark, servers, history, f"history-{name}")
        rows = history.read(spark, partition_rows.NAME, partition_rows.COLUMNS)
        shown = rows.select("event_id", "partition", "retries", "labels", "owner", "replicas")
        result[name] = session.as_dicts(shown)
    (folder / "new_fields.json").write_text(json.dumps(result))
    spark.stop()


def _event() -> LagEvent:
    partitions = [PartitionLag(partition=0, replicas=3), PartitionLag(partition=1)]
    return LagEvent(
        event_id="with new fields",
        query_id="id-a",
        run_id=None,
        cause="progress",
        measured_by="service",
        status="OK",
        observed_at=1_790_035_500_000,
        measured_at=1_790_035_500_000,
        retries=7,
        labels={"team": "billing"},
        topics=[TopicLag(topic="t", source=0, partitions=partitions, owner="billing")],
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
