"""docs/program/words.md: its words are on each surface, and no other word for the same thing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

import pytest
import yaml

from sparklag_schemas.presentation.rows import CELLS
from sparklag_schemas.presentation.sentences import lines
from sparklag_service.cli.top.columns import COLUMNS
from sparklag_service.metrics.schemes import NATIVE, ages
from tests.messages import lag_event
from tests.test_documents import DOCUMENTS, ROOT


class Word(NamedTuple):
    """A row of the table."""

    word: str
    meaning: str
    unit: str
    field: str
    metric: str
    alert: str


WORDS: Final = [
    Word(*(cell.strip(" `") for cell in row.split("|")[1:-1]))
    for row in (ROOT / "docs" / "program" / "words.md").read_text().splitlines()
    if re.match(r"\| .*`.* \|$", row)
]
OTHERS: Final = re.compile(
    r"(?i)\boldest (un\w+ )?record\b|\blast seen\b|\bcaught up in\b|\bage of (its|the) oldest\b"
)
"""What the words replaced."""


def _texts(*patterns: str) -> str:
    paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    assert paths
    return "\n".join(path.read_text() for path in paths)


def _terminal(word: Word) -> bool:
    return word.word in {*CELLS, *(column.heading for column in COLUMNS)}


def _page(word: Word) -> bool:
    headings = dict(lines(lag_event(), 0))  # of one query
    names = re.findall(r'name: "(.+?)", means: "', _texts("web/src/definitions.ts"))
    return not word.metric or word.word in headings or word.word.capitalize() in names


def _grafana(word: Word) -> bool:
    titles = re.findall(r'": "([^"]+)"', _texts("deploy/grafana/*.json"))
    return not word.metric or word.word.capitalize() in titles


def _field(word: Word) -> bool:
    schema = json.loads(_texts("schemas/sparklag_schemas/documents/lag_event.schema.json"))
    return word.word in schema["properties"][word.field]["description"].lower()


def _metric(word: Word) -> bool:
    meanings = {family.name: family.meaning for family in (*NATIVE.query, *ages(0))}
    return not word.metric or word.word in meanings[word.metric].lower()


def _alert(word: Word) -> bool:
    groups = yaml.safe_load(_texts("deploy/prometheus/sparklag.rules.yml"))["groups"]
    texts = {
        rule["alert"]: " ".join(rule["annotations"].values())
        for group in groups
        for rule in group["rules"]
        if "alert" in rule
    }
    return not word.alert or word.word in texts[word.alert]


@pytest.mark.parametrize("surface", [_terminal, _page, _grafana, _field, _metric, _alert])
def test_each_word_is_on_the_surface(surface: Callable[[Word], bool]) -> None:
    assert len(WORDS) == 9
    assert [word.word for word in WORDS if not surface(word)] == []


def test_no_other_word_is_used_for_its_thing() -> None:
    paths = {*DOCUMENTS, *ROOT.glob("web/src/**/*.tsx"), ROOT / "web" / "src" / "definitions.ts"}
    paths |= {path for end in ("json", "yml", "yaml") for path in ROOT.glob(f"deploy/**/*.{end}")}
    for folder in ("jobs", "kafka", "listener", "offsets", "schemas/sparklag_schemas", "service"):
        paths |= {*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.json")}
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in sorted(paths - set(ROOT.glob("docs/adr/*.md")))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if OTHERS.search(line)
    ]
    assert lines == []
