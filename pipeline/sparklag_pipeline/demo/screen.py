"""Where the demo's story is shown: a terminal, live, or a log, line by line."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Protocol

from rich.console import Console, RenderableType
from rich.live import Live

from sparklag_pipeline.demo.drawing import draw, plain_line
from sparklag_pipeline.demo.progress import StepState, Story
from sparklag_schemas.runtime.clock import epoch_ms

_LINE_EVERY_S: Final = 3.0


class Screen(Protocol):
    """A context manager; what it shows stays when it ends."""

    def __enter__(self) -> Screen: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def refresh(self) -> None:
        """Show the story as it is now."""

    def say(self, text: str) -> None:
        """Write lines below."""


def open_screen(story: Story) -> Screen:
    """Live in a terminal; plain lines where the output is a file or a pipe."""
    console = Console(highlight=False)
    return _LiveScreen(story, console) if console.is_terminal else _LineScreen(story)


class _LiveScreen:
    def __init__(self, story: Story, console: Console) -> None:
        self._story = story
        self._console = console
        # It draws from a thread of its own: during the start the main thread is busy.
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=8)

    def __enter__(self) -> _LiveScreen:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def refresh(self) -> None:
        """Nothing to do."""

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, emoji=False, soft_wrap=True)

    def _draw(self) -> RenderableType:
        return draw(
            self._story,
            now=time.monotonic(),
            wall_ms=epoch_ms(),
            width=self._console.width,
            height=self._console.height,
        )


class _LineScreen:
    def __init__(self, story: Story) -> None:
        self._story = story
        self._console = Console(highlight=False, soft_wrap=True)
        self._states: dict[str, StepState] = {}
        self._last_line_at = 0.0
        self._addresses_said = False

    def __enter__(self) -> _LineScreen:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.refresh()

    def refresh(self) -> None:
        now = time.monotonic()
        for step in self._story.steps:
            if step.state != self._states.get(step.title, "waiting"):
                self._states[step.title] = step.state
                word = {"busy": "...", "done": "ready", "failed": "FAILED"}[step.state]
                self.say(f"{now - self._story.started_at:6.1f} s  {step.title}: {step.note} {word}")
        if self._story.event is not None and not self._addresses_said:
            self._addresses_said = True
            self.say(f"          curl {self._story.http_url}/lag/{self._story.query}")
        if now - self._last_line_at >= _LINE_EVERY_S:
            self._last_line_at = now
            self.say(plain_line(self._story, now=now))

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, emoji=False)
