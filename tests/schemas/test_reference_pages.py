"""The pages in docs/reference are those of the types and the commands."""

from __future__ import annotations

import json
import re

import pytest

from scripts.lanes_page import COLUMNS, FEATURES, table, versions_with
from scripts.lanes_page import PAGE as LANES_PAGE
from scripts.reference_pages import FOLDER, pages
from sparklag_schemas import load_settings

_SETTING_ROW = re.compile(
    r"^\| `([a-z_.]+)` \| `(SPARKLAG_\w+)` \| .*? \| `(.+?)` \| ", re.MULTILINE
)
_PAGES = pages()


def test_the_folder_has_every_page_and_no_other() -> None:
    assert {page.name for page in FOLDER.iterdir()} == {*_PAGES, LANES_PAGE.name}, (
        "run `make schemas`"
    )


@pytest.mark.parametrize("name", sorted(_PAGES))
def test_a_page_is_what_the_code_reports(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == _PAGES[name], "run `make schemas`"


@pytest.mark.parametrize("of", COLUMNS)
def test_the_page_of_lanes_has_each_lane_and_each_feature_works(of: str) -> None:
    works = {
        (of, each, version): True for each in FEATURES[of] for version in versions_with(of, each)
    }
    assert "\n".join(table(of, works)) in LANES_PAGE.read_text(), "run `make lanes`"


def test_every_variable_on_the_page_of_settings_sets_the_setting_beside_it() -> None:
    rows = _SETTING_ROW.findall(_PAGES["settings.md"])
    assert len(rows) > 50
    for setting, variable, default in rows:
        value = json.loads(default)
        if isinstance(value, dict) or setting == "accepted_signing_keys":  # it needs another
            continue
        if value == "":  # which cannot be set
            value = "first:1"
        text = "first" if value == [] and setting != "metrics.compat" else value
        changed = load_settings(environ={variable: text if isinstance(text, str) else default})
        got = changed
        for name in setting.split("."):
            got = getattr(got, name)
        assert got == (["first"] if value == [] and text == "first" else value), setting
