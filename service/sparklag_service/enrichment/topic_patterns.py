"""The topics of a cluster that match patterns of `subscribePattern`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_schemas.runtime.tasks import with_pauses
from sparklag_schemas.text.java_patterns import python_pattern
from sparklag_schemas.text.printable import printable

_TIMEOUT_S: Final = 2.0
_TOPICS_PER_PAUSE: Final = 100
_NOT_COUNTED: Final = "topics that match its subscribePattern and are not read yet are not counted"
# Spark reads each topic in whose name the pattern occurs.
_MATCH: Final = r"""
import json, re, sys
try:
    pattern, topics = json.load(sys.stdin)
    json.dump(list(filter(re.compile(pattern).search, topics)), sys.stdout)
except Exception as error:
    sys.exit(str(error))
"""


class Matches(NamedTuple):
    """The `topics` of those `listed` that match a pattern. `problem`: why topics may be missing."""

    listed: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    problem: str | None = None


class TopicPatterns:
    """The patterns that the queries of a cluster have, with their matches."""

    def __init__(self, pool: BrokerPool, is_absent: Callable[[str], bool]) -> None:
        """`is_absent`: returns whether a topic is known not to exist."""
        self.matches: dict[str, Matches] = {}
        self._pool = pool
        self._is_absent = is_absent

    async def update(self, patterns: set[str]) -> None:
        """List the topics, if there are `patterns`, and match those that are new."""
        self.matches = {pattern: self.matches.get(pattern, Matches()) for pattern in patterns}
        described = await self._pool.refresh(None) if patterns else None
        topics = with_pauses(described or (), _TOPICS_PER_PAUSE)
        listed = frozenset([topic.name async for topic in topics if not topic.is_internal])
        for pattern, before in list(self.matches.items()):
            if described is None and not before.listed:
                problem = f"no broker lists the topics of its cluster: {_NOT_COUNTED}"
                self.matches[pattern] = Matches(problem=problem)
            elif listed != before.listed and not (before.listed and before.problem):
                self.matches[pattern] = await self._match(pattern, listed, before.topics)

    async def _match(self, pattern: str, listed: frozenset[str], before: frozenset[str]) -> Matches:
        # A broker may not list a topic for a while.
        kept = frozenset(topic for topic in before if not self._is_absent(topic))
        try:
            matched = await asyncio.to_thread(match_topics, pattern, listed)
        except (OSError, ValueError) as error:
            problem = f"cannot evaluate its pattern ({error}): {_NOT_COUNTED}"
            return Matches(frozenset() if isinstance(error, OSError) else listed, kept, problem)
        return Matches(listed, matched | kept)


def match_topics(pattern: str, topics: Iterable[str]) -> frozenset[str]:
    """The topics in which Java finds `pattern`. Raises ValueError for one that is not translated,
    and OSError.

    A process of its own bounds the time: nobody vouches for a pattern, and Python cannot interrupt
    its evaluation.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-W", "error", "-c", _MATCH],
            input=json.dumps([python_pattern(pattern), [*topics]]),
            capture_output=True,
            encoding="ascii",
            errors="replace",
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"it takes longer than {_TIMEOUT_S:.0f} s") from None
    if done.returncode:
        raise ValueError(printable(done.stderr.strip() or f"exit code {done.returncode}", 200))
    return frozenset(json.loads(done.stdout))
