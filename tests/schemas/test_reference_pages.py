"""The pages in docs/reference are those of the documents."""

from __future__ import annotations

import pytest
from scripts.reference_pages import FOLDER, pages


def test_every_message_has_a_page_and_every_page_a_message() -> None:
    assert {page.name for page in FOLDER.iterdir()} == set(pages()), "run `make schemas`"


@pytest.mark.parametrize("name", sorted(pages()))
def test_a_page_is_what_the_documents_say(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == pages()[name], "run `make schemas`"
