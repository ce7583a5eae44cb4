"""docs/program/words.md: its words are on each surface, and no other word for the same thing."""

from __future__ import annotations

import json
import re
from typing import Final

import pytest

from sparklag_schemas.presentation.rows import CELLS
from sparklag_schemas.presentation.sentences import lines
from sparklag_service.cli.top.columns import COLUMNS
from sparklag_service.metrics.schemes import NATIVE, ages
from tests.messages import lag_event
from tests.test_documents import DOCUMENTS, ROOT


def text(pattern: str) -> str:
    return "\n".join(path.read_text() for path in ROOT.glob(pattern))


_NAME: Final = r" (?:`(\w+)` )?\|"
WORDS: Final = re.findall(
    rf"^\| ([a-z -]+) \|.*\|{_NAME}{_NAME}{_NAME}$", text("docs/program/words.md"), re.MULTILINE
)
REPLACED: Final = re.compile(r"(?i)\b(oldest (un\w+ )?record|last seen|caught up in)\b")


@pytest.mark.parametrize(("word", "field", "metric", "alert"), WORDS)
def test_a_word_is_on_each_surface(word: str, field: str, metric: str, alert: str) -> None:
    fields = json.loads(text("schemas/sparklag_schemas/documents/lag_event.schema.json"))
    assert word in fields["properties"][field]["description"].lower()
    assert word in {*CELLS, *(column.heading for column in COLUMNS)}
    if metric:
        meanings = {family.name: family.meaning for family in (*NATIVE.query, *ages(0))}
        assert word in meanings[metric].lower()
        assert f'": "{word.capitalize()}"' in text("deploy/grafana/*.json")
        of_one_query = dict(lines(lag_event(), 0))
        names = re.findall(r'name: "(.+?)"', text("web/src/definitions.ts"))
        assert word.capitalize() in names or word in of_one_query
    if alert:
        rules = text("deploy/prometheus/sparklag.rules.yml").split("- alert: ")
        assert [word in rule for rule in rules if rule.startswith(f"{alert}\n")] == [True]


def test_no_replaced_word_is_left() -> None:
    assert len(WORDS) == 9
    paths = {*DOCUMENTS, *ROOT.glob("deploy/**/*.[jy]*"), *ROOT.glob("web/src/**/*.tsx")}
    for package in ("jobs", "listener", "offsets", "schemas/sparklag_schemas", "service"):
        paths |= {*ROOT.glob(f"{package}/**/*.py"), *ROOT.glob(f"{package}/**/*.json")}
    left = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in paths - set(ROOT.glob("docs/adr/*"))
        for line in path.read_text().splitlines()
        if REPLACED.search(line)
    ]
    assert left == []
