"""The queries of a session of either kind, compared with its client's own objects."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sparklag_listener.events.session import KEPT_PROGRESSES, Queries
from tests.waiting import wait_for


def assert_answers(spark: Any, queries: Queries, start: Callable[[], Any]) -> Any:
    """The query that was started, the session's only one, and stopped."""
    assert queries.list_active().queries == ()
    # Spark's 100 are the updates of half a minute, since an idle query of the tests makes three a
    # second: then the update of its last batch is gone, and only those of the next one are there.
    spark.conf.set(KEPT_PROGRESSES, "10000")
    assert queries.kept_progresses() == 10_000
    try:
        query = start()
        _assert_answers(queries, query)
    finally:
        # Spark reads it at each update.
        spark.conf.unset(KEPT_PROGRESSES)
    return query


def _assert_answers(queries: Queries, query: Any) -> None:
    query.processAllAvailable()
    wait_for(lambda: "addBatch" not in query.recentProgress[-1]["durationMs"], "it is idle")
    ran = [each for each in query.recentProgress if "addBatch" in each["durationMs"]][-1]
    (active,) = queries.list_active().queries
    assert (active.query_id, active.run_id, active.name) == (query.id, query.runId, "orders")
    assert active.batch_id == ran["batchId"]
    assert active.activity is None, "it was not requested"
    assert queries.list_active(with_activity={active.run_id}).queries[0].activity == "waiting"
    progress = queries.last_progress(active.run_id, None)
    assert progress is not None
    message = json.loads(progress.text)
    assert (message["batchId"], message["timestamp"]) == (ran["batchId"], ran["timestamp"])
    assert queries.last_progress(active.run_id, active.batch_id) is None
    assert queries.last_progress("no such run", None) is None
    assert queries.is_active(active.run_id)
    query.stop()
    snapshot = queries.list_active(retain={active.run_id})
    assert (snapshot.queries, snapshot.is_session_stopped) == ((), False)
    assert not queries.is_active(active.run_id)
    assert queries.last_progress(active.run_id, None) is not None, "it is kept"
    assert queries.termination(active.query_id, active.run_id).exception is None
    assert queries.list_active().queries == ()
    assert not queries.is_active(active.run_id), "it is forgotten"
