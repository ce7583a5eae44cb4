"""What the documents show as code: each block, or each command of one, and how a test treats it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = sorted(
    [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "deploy/README.md")]
    + [ROOT / "examples" / "README.md", *(ROOT / "docs").rglob("*.md")]
)
SHELL: Final = {"console", "bash", "sh"}
RUN: Final = {"shell", "json", "python", "sql", "toml", "yaml"}
"""Run, or loaded by the program that they are for."""
NOT_CODE: Final = {"", "text"}
_FENCE: Final = re.compile(
    r"(?:^ *<!-- (not run|run by): ([^\n]+?) -->\n+)?"
    r"^( *)```(\w*)[^\n]*\n(.*?)^\3```$",
    re.DOTALL | re.MULTILINE,
)

_FIELDS: Final = {"not run": "reason", "run by": "run_by"}
Treatment = Literal["run", "checked", "named"]


@dataclass(frozen=True)
class Item:
    """A block; of a shell's, one command with what the page shows that it writes."""

    page: str
    line: int
    language: str
    code: str
    output: str
    reason: str | None
    """Why it is not run: the comment `<!-- not run: … -->` above its block."""
    run_by: str | None
    """The file that takes it from the page and runs it: `<!-- run by: … -->`."""

    @property
    def treatment(self) -> Treatment:
        """What the tests do with it. `checked`: read, but not by the program it is for."""
        if self.reason is not None:
            return "named"
        return "run" if self.run_by or self.language in RUN else "checked"

    @property
    def is_run_here(self) -> bool:
        return self.reason is None and self.run_by is None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def items() -> list[Item]:
    return [item for page in PAGES for item in _items(page)]


def command_in(page: str, text: str) -> str:
    (command,) = (i.code for i in _items(ROOT / page) if i.language == "shell" and text in i.code)
    return command


def _items(page: Path) -> Iterator[Item]:
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix()
    for match in _FENCE.finditer(text):
        kind, remark, indent, language, code = match.groups()
        by = {"reason": None, "run_by": None, _FIELDS.get(kind, "reason"): remark}
        first = text.count("\n", 0, match.start(5)) + 1
        code = re.sub(f"^{indent}", "", code, flags=re.MULTILINE)
        if language in NOT_CODE:
            continue
        if language not in SHELL:
            yield Item(name, first, language, code, "", **by)
            continue
        for line, command, output in _commands(code, prompted=language == "console"):
            yield Item(name, first + line, "shell", command, output, **by)


def _commands(code: str, *, prompted: bool) -> Iterator[tuple[int, str, str]]:
    lines = code.splitlines()
    at = 0
    while at < len(lines):
        begin = at
        command = lines[at].removeprefix("$ ")
        while command.endswith("\\"):
            at += 1
            command = f"{command[:-1]} {lines[at].strip()}"
        at += 1
        output: list[str] = []
        while prompted and at < len(lines) and not lines[at].startswith("$ "):
            output.append(lines[at])
            at += 1
        if command.strip() and not command.startswith("#"):
            yield begin, command, "\n".join(output)
