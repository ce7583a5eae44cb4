"""What `GET /lag/{query}/history` may be asked. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from sparklag_schemas.timestamps import duration_s, moment_ms

MOST_POINTS: Final = 1_000
_USUAL_POINTS: Final = 300
_USUAL_S: Final = 3_600.0

_Told = TypeVar("_Told", int, float)


class BadQuestion(ValueError):
    """`parameter` is not what it may be; the text says what it may be."""

    def __init__(self, parameter: str, expectation: str) -> None:
        super().__init__(expectation)
        self.parameter = parameter


class Question(NamedTuple):
    """From `since_ms` up to and without `until_ms`, in steps of about `step_ms`."""

    since_ms: int
    until_ms: int
    step_ms: int


def question(since: str | None, until: str | None, step: str | None, now_ms: int) -> Question:
    """What is asked for; without parameters, the last hour. Raises BadQuestion."""
    until_ms = now_ms + 1 if until is None else _told("until", lambda: moment_ms(until, now_ms))
    if since is None:
        since_ms = until_ms - int(_USUAL_S * 1000)
    else:
        since_ms = _told("since", lambda: moment_ms(since, now_ms))
    if since_ms >= until_ms:
        raise BadQuestion("since", "it is not before `until`")
    if step is None:
        step_ms = (until_ms - since_ms) // _USUAL_POINTS
    else:
        step_ms = round(_told("step", lambda: duration_s(step)) * 1000)
    return Question(since_ms, until_ms, max(step_ms, 1))


def _told(parameter: str, read: Callable[[], _Told]) -> _Told:
    try:
        return read()
    except ValueError as error:
        raise BadQuestion(parameter, str(error)) from None
