"""Names that others chose: no terminal, log line, label or cell obeys them."""

from __future__ import annotations

import json
import logging
from io import StringIO

import msgspec
import pytest
from msgspec import inspect
from rich.console import Console

from scripts.message_examples import example_value
from sparklag_schemas import LagEvent
from sparklag_schemas.presentation.tables import escape, event_view
from sparklag_schemas.runtime.log_output import log_formatter
from sparklag_schemas.runtime.logs import log_fields
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.cli import tail
from sparklag_service.cli.terminal import ascii_json, console
from tests.message_types import with_texts
from tests.service.metrics.scraped import exposed, parse_text, settings

HOSTILE = {
    "newline": "a\nsparklag: all is well",
    "carriage return": "a\rb",
    "erases the screen": "\x1b[2J\x1b[H",
    "sets the title": "\x1b]0;owned\x07",
    "C1 control": "\x9b2J",
    "NUL": "a\0b",
    "backspaces": "bad\b\b\bgood",
    "written from the right": "\u202eKO\u202c",
    "isolate": "\u2066x\u2069",
    "no width": "or\u200bders",
    "line separator": "a\u2028b",
    "markup": "[bold red]x[/]",
    "a tag": "<script>alert(1)</script>",
    "a label": 'x"} 1\nsparklag_ready 1',
    "long": "x" * 1_000,
}


def is_harmless(text: str) -> bool:
    return all(character.isprintable() or character == "\n" for character in text)


def hostile_event(name: str) -> LagEvent:
    """Every text in it is `name`: query, topics, cluster, ids, reasons, patterns."""
    document = with_texts(example_value(LagEvent), inspect.type_info(LagEvent), name)
    return msgspec.convert(document, LagEvent)


each = pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)


@each
def test_on_a_terminal(name: str) -> None:
    event = hostile_event(name)
    screen = Console(file=StringIO(), width=200, highlight=False)
    screen.print(event_view(event, epoch_ms(), most=None))
    assert isinstance(screen.file, StringIO)
    assert is_harmless(screen.file.getvalue())
    line = tail._line(event)
    assert is_harmless(line)
    assert "\n" not in line
    plain = Console(file=StringIO(), width=4_000, highlight=False)
    plain.print(escape(name), end="")
    assert isinstance(plain.file, StringIO)
    if name.isprintable():
        assert plain.file.getvalue() == name


@each
def test_in_json_on_a_terminal(name: str) -> None:
    text = ascii_json(msgspec.json.encode({"query": name}))
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text) == {"query": name}


@each
def test_in_a_log_line(name: str) -> None:
    try:
        raise ValueError(name)
    except ValueError as error:
        result = (ValueError, error, error.__traceback__)
    record = logging.getLogger("x").makeRecord(
        "x", logging.INFO, "x", 1, "of %s", (name,), result, extra=log_fields(name, name)
    )
    text = log_formatter("console").format(record)
    assert is_harmless(text)
    first, *trace = text.splitlines()
    assert "INFO    x: of " in first
    assert trace[0] == "Traceback (most recent call last):"
    line = log_formatter("json").format(record)
    assert line.isascii()
    assert line.isprintable()
    read = json.loads(line)
    assert (read["event"], read["query_id"], read["reason"]) == (f"of {name}", name, name)
    assert f"ValueError: {name}" in read["exception"]


@each
async def test_in_a_label(name: str) -> None:
    text = await exposed(settings(), hostile_event(name))
    assert is_harmless(text)
    ready = [line for line in text.splitlines() if line.startswith("sparklag_ready ")]
    assert ready == ["sparklag_ready 0.0"]
    assert parse_text(text)


def test_a_name_is_not_drawn_as_a_symbol(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(escape(":warning:"))
    assert capsys.readouterr().out == ":warning:\n"
