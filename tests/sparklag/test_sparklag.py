"""`import sparklag`: one import for a driver, that loads what is used."""

from __future__ import annotations

import pytest

import sparklag
import sparklag_listener
from tests.scripts import run_script


def test_it_has_what_a_driver_uses() -> None:
    assert sparklag.observe is sparklag_listener.observe
    assert sparklag.starting_offsets is sparklag_listener.starting_offsets
    assert sparklag.ending_offsets is sparklag_listener.ending_offsets
    assert sparklag.ObserverHandle is sparklag_listener.ObserverHandle
    assert callable(sparklag.lag)
    assert set(sparklag.__all__) <= set(dir(sparklag))


def test_a_name_that_it_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'sparklag' has no attribute 'observ'"):
        sparklag.observ  # noqa: B018


def test_the_import_alone_loads_nothing_else() -> None:
    code = (
        "import sys, sparklag, sparklag_auto.hook;"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] in"
        " ('sparklag_listener', 'sparklag_schemas', 'msgspec', 'py4j', 'aiokafka', 'pyspark')))"
    )
    assert run_script(code).lines == ["[]"]
