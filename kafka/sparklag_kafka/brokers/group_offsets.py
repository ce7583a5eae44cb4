"""Requests about many consumer groups, to brokers of any version."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.admin import ListGroupsRequest
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest

from sparklag_kafka.brokers.pool import BrokerConnection, BrokerPool
from sparklag_kafka.errors import KAFKA_FAILURES, UNKNOWN_GROUP
from sparklag_kafka.protocol.groups import (
    DEAD,
    CommittedGroup,
    DescribeGroupsRequest,
    GroupDescription,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from sparklag_schemas import Offsets
from sparklag_schemas.runtime.queue import by_count
from sparklag_schemas.runtime.tasks import cancel_and_wait

_log = logging.getLogger("sparklag.kafka")

GROUPS_PER_REQUEST: Final = 500
_IN_FLIGHT: Final = 100
_CONSUMER_GROUP: Final = 0
_NO_MEMBER: Final = ""


async def list_groups(connection: BrokerConnection) -> tuple[int, Sequence[tuple[str, str]]]:
    """The error code, and the ids and protocol types of the groups that this broker coordinates.
    With an error some groups may be missing. Raises one of KAFKA_FAILURES."""
    response = await connection.send(ListGroupsRequest())
    return response.error_code, response.groups or ()


async def find_coordinators(
    brokers: BrokerPool, groups: Sequence[str]
) -> AsyncIterator[tuple[str, int, int]]:
    """Each group, the node id of its coordinator, and the error code of the lookup. Ends where no
    broker responds, or the responder fails."""
    for chunk in by_count(groups, _IN_FLIGHT):
        requests = [FindCoordinatorRequest(group, _CONSUMER_GROUP) for group in chunk]
        first = await brokers.first_response(requests[0])
        if first is None:
            return
        responder = brokers.connections()[0]
        try:
            further = await asyncio.gather(*(responder.send(request) for request in requests[1:]))
        except KAFKA_FAILURES:
            return
        for group, response in zip(chunk, (first, *further), strict=True):
            yield group, response.coordinator_id, response.error_code


async def fetch_offsets(
    connection: BrokerConnection,
    groups: Sequence[str],
    decoded: Mapping[OffsetFetchResponse, Mapping[str, CommittedGroup]] | None = None,
) -> dict[OffsetFetchResponse, Mapping[str, CommittedGroup]]:
    """The committed offsets of these groups, at most GROUPS_PER_REQUEST, from their coordinator. A
    response that equals one in `decoded` is not decoded again. Raises one of KAFKA_FAILURES."""
    try:
        responses = [await connection.send(OffsetFetchRequest(groups))]
    except IncompatibleBrokerVersion:
        responses = await asyncio.gather(
            *(connection.send(OffsetFetchRequest([group])) for group in groups)
        )
    contents = {r: decoded[r] for r in responses if decoded is not None and r in decoded}
    new = [response for response in responses if response not in contents]
    if new:
        # In a thread: a response may have thousands of partitions.
        contents |= await asyncio.to_thread(
            lambda: {response: response.decode() for response in new}
        )
    return contents


async def describe_groups(
    connection: BrokerConnection, groups: Sequence[str]
) -> dict[str, GroupDescription]:
    """The descriptions of these groups, at most GROUPS_PER_REQUEST, by their coordinator. Raises
    one of KAFKA_FAILURES."""
    response = await connection.send(DescribeGroupsRequest(groups, classic=True))
    # In a thread: a group may have many members.
    described: dict[str, GroupDescription] = await asyncio.to_thread(response.decode)
    dead = [group for group, description in described.items() if description.state == DEAD]
    if dead:
        try:
            response = await connection.send(DescribeGroupsRequest(dead, classic=False))
        except IncompatibleBrokerVersion:
            return described  # it has classic groups only
        newer: dict[str, GroupDescription] = await asyncio.to_thread(response.decode)
        described |= {g: d for g, d in newer.items() if d.error_code != UNKNOWN_GROUP}
    return described


async def commit_offsets(
    connection: BrokerConnection, group: str, offsets: Offsets, metadata: str
) -> dict[str, dict[int, int]]:
    """Commit to a group without joining it; the coordinator refuses that while it has members.
    Returns the error code of each partition. Raises one of KAFKA_FAILURES."""
    topics = [
        (topic, [(number, offset, metadata) for number, offset in partitions.items()])
        for topic, partitions in offsets.items()
    ]
    response = await connection.send(commit_request(group, topics))
    return {topic: dict(error_codes) for topic, error_codes in response.topics}


def commit_request(group: str, topics: Sequence[tuple[str, Sequence[tuple[int, int, str]]]]) -> Any:
    """The request to commit, by topic, partitions with their offset and metadata."""
    return OffsetCommitRequest(
        group,
        OffsetCommitRequest.DEFAULT_GENERATION_ID,
        _NO_MEMBER,
        OffsetCommitRequest.DEFAULT_RETENTION_TIME,
        topics,
    )


class CoordinatorTasks:
    """At most one task for each coordinator: a coordinator that hangs delays only its own groups.

    `action` is what a task does, in log lines.
    """

    def __init__(self, action: str) -> None:
        self._action = action
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, node_id: int, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task for the coordinator, unless its previous one still runs."""
        if node_id not in self._tasks:
            task = self._tasks[node_id] = asyncio.create_task(run())
            task.add_done_callback(partial(self._ended, node_id))

    async def wait(self) -> None:
        """Return when no task runs."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def aclose(self) -> None:
        """Cancel the tasks and wait for them."""
        await cancel_and_wait(*self._tasks.values())

    def _ended(self, node_id: int, task: asyncio.Task[None]) -> None:
        del self._tasks[node_id]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("%s broker %s failed", self._action, node_id, exc_info=error)
