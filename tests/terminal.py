"""A terminal for tests: tmux, installed on this machine, or taken out of Debian's packages."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.commands import succeed
from tests.debian_packages import library_path, unpacked_packages
from tests.processes import descendants
from tests.waiting import wait_for

_OPTIONS: Final = ("-u", "-f", "/dev/null")
"""UTF-8, and no settings of whoever runs the tests."""


class Terminal:
    """Runs one command in a terminal of that size. A context manager; on exit both are gone.

    Raises ProgramsMissing where there is no tmux.
    """

    def __init__(
        self, command: Sequence[str], width: int, height: int, environment: Mapping[str, str]
    ) -> None:
        self._command = command
        self._size = ("-x", str(width), "-y", str(height))
        self._environment = {"TERM": "screen-256color", **environment}
        for size in ("COLUMNS", "LINES"):
            # Textual believes these two before the terminal.
            self._environment.pop(size, None)
        self._tmux, libraries = tmux_program()
        if libraries:
            self._environment["LD_LIBRARY_PATH"] = libraries
        self._folder = TemporaryDirectory(prefix="sparklag-tmux-")
        self._exit_code = Path(self._folder.name) / "exit"

    def __enter__(self) -> Terminal:
        # tmux itself sets TERM.
        term = shlex.quote(f"TERM={self._environment['TERM']}")
        code = shlex.quote(str(self._exit_code))
        # Ctrl-C is for the command: the shell has to tell how that ended.
        script = f"trap : INT; env {term} {shlex.join(self._command)}; echo $? > {code}; cat"
        self._run("new-session", "-d", *self._size, script)
        return self

    def __exit__(self, *_: object) -> None:
        self._run("kill-server")
        self._folder.cleanup()

    def press(self, *keys: str) -> None:
        """Keys by tmux's names; other texts are typed."""
        self._run("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-x", str(width), "-y", str(height))

    def screen(self, *, escapes: bool = False) -> str:
        """The visible text once it is complete, with the escape sequences of colours on request."""
        shown = ""

        def is_still() -> bool:
            nonlocal shown
            before, shown = shown, self._run("capture-pane", "-p", *(["-e"] if escapes else []))
            return shown == before

        wait_for(is_still, "the terminal is drawn")
        return shown

    def shows(self, text: str) -> str:
        shown = ""

        def is_observed() -> bool:
            nonlocal shown
            shown = self.screen()
            return text in shown

        try:
            wait_for(is_observed, f"the terminal shows {text!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{shown}") from None
        return shown

    def signal(self, number: int) -> None:
        (shell,) = self._run("list-panes", "-F", "#{pane_pid}").split()
        (command,) = descendants(int(shell))
        os.kill(command, number)

    def exit_code(self) -> int:
        wait_for(
            lambda: self._exit_code.exists() and bool(self._exit_code.read_text()),
            "the command has ended",
        )
        return int(self._exit_code.read_text())

    def _run(self, *arguments: str) -> str:
        socket = str(Path(self._folder.name) / "socket")
        return succeed(self._tmux, *_OPTIONS, "-S", socket, *arguments, env=self._environment)


def tmux_program() -> tuple[str, str]:
    installed = shutil.which("tmux")
    if installed is not None:
        return installed, ""
    unpacked = unpacked_packages("tmux", ["tmux"], needs="lib.*", instead="install tmux")
    return str(unpacked / "usr/bin/tmux"), library_path(unpacked)
