"""The messages of `processed-offsets`, read by a client that is not ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Message

from sparklag_schemas import Observation, decode_observation
from tests.second_client import SecondClient
from tests.waiting import DEADLINE_S, wait_for


class OffsetsTopic:
    def __init__(self, client: SecondClient, name: str) -> None:
        self.name = name
        self._client = client

    def messages(self, query_id: object) -> list[Message]:
        wanted = str(query_id).encode()
        return [message for message in self._client.read_all(self.name) if message.key() == wanted]

    def observations(self, query_id: object) -> list[Observation]:
        """The query's observations, without repeated ones."""
        result: dict[str, Observation] = {}
        for message in self.messages(query_id):
            observation = decode_observation(message.value() or b"")
            result.setdefault(observation.observation_id, observation)
        return list(result.values())

    def all_text(self) -> str:
        """Everything in the topic: keys, values and headers."""
        return "\n".join(
            f"{message.key()!r} {message.value()!r} {message.headers()!r}"
            for message in self._client.read_all(self.name)
        )

    def until(
        self,
        query_id: object,
        holds: Callable[[Sequence[Observation]], Any],
        what: str,
        timeout_s: float = DEADLINE_S,
    ) -> list[Observation]:
        """The query's observations once there is one and `holds` is true of them."""
        received: list[Observation] = []

        def look() -> bool:
            received[:] = self.observations(query_id)
            return bool(received and holds(received))

        try:
            wait_for(look, f"{what} on {self.name}", timeout_s)
        except AssertionError as error:
            causes = [(one.cause, one.batch_id) for one in received]
            raise AssertionError(f"{error}: {causes}") from None
        return received

    def await_cause(self, query_id: object, cause: str) -> Observation:
        """The first observation of the query with that cause."""
        observations = self.until(
            query_id, lambda observations: cause in causes(observations), f"{cause} of {query_id}"
        )
        return next(observation for observation in observations if observation.cause == cause)


def causes(observations: Sequence[Observation]) -> list[str]:
    return [observation.cause for observation in observations]


def in_order(observations: Sequence[Observation]) -> None:
    """Neither position nor time of observation goes back, and nothing comes after an end."""
    batches = [-1 if each.batch_id is None else each.batch_id for each in observations]
    assert batches == sorted(batches)
    times = [observation.observed_at for observation in observations]
    assert times == sorted(times)
    assert "terminated" not in causes(observations)[:-1]
