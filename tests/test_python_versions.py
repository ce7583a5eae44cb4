"""No file uses what some patch releases of Python 3.10 to 3.14 lack.

mypy and ruff report what is newer than 3.10, but know minor versions only: what a security release
of 3.10 added, they take to be in 3.10.0. The table is from Python's documentation of each minor
version, and from what is, by `stubtest`, in mypy's stubs and not in early patch releases.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parent.parent
_MIN_FILES: Final = 600

_ADDED: Final = [
    # package, first patch release of each minor version that has releases without it, names
    ("sys", "3.10.7", "get_int_max_str_digits set_int_max_str_digits int_max_str_digits"),
    ("sys", "3.10.7", "default_max_str_digits str_digits_check_threshold"),
    ("tarfile", "3.10.12, 3.11.4", "extract(filter=) extractall(filter=) extraction_filter"),
    ("tarfile", "3.10.12, 3.11.4", "data_filter tar_filter fully_trusted_filter FilterError"),
    ("tarfile", "3.10.12, 3.11.4", "AbsoluteLinkError AbsolutePathError SpecialFileError"),
    ("tarfile", "3.10.12, 3.11.4", "LinkOutsideDestinationError OutsideDestinationError"),
    ("tarfile", "3.10.18, 3.11.13, 3.12.11, 3.13.4", "LinkFallbackError"),
    ("shutil", "3.10.12, 3.11.4", "unpack_archive(filter=)"),
    ("os", "3.10.18, 3.11.13, 3.12.11, 3.13.4", "ALLOW_MISSING"),
    ("email", "3.10.15, 3.11.10, 3.12.5", "EmailPolicy(verify_generated_headers=)"),
    ("email", "3.10.15, 3.11.10, 3.12.5", "clone(verify_generated_headers=)"),
    ("email", "3.10.15, 3.11.10, 3.12.5", "HeaderWriteError verify_generated_headers"),
    ("email", "3.10.15, 3.11.10, 3.12.6", "getaddresses(strict=) parseaddr(strict=)"),
    ("email", "3.10.15, 3.11.10, 3.12.6", "supports_strict_parsing"),
    ("html", "3.10.18, 3.11.13, 3.12.11, 3.13.6", "RCDATA_CONTENT_ELEMENTS"),
    ("html", "3.10.20, 3.11.15, 3.12.13, 3.13.10", "HTMLParser(scripting=) __init__(scripting=)"),
    # Of parsers, which `xml.etree` and `xml.sax` hand out too.
    ("xml", "3.10.14, 3.11.9, 3.12.3", "flush"),
    ("xml", "3.10.14, 3.11.9, 3.12.3", "GetReparseDeferralEnabled SetReparseDeferralEnabled"),
    ("xml", "3.10.20, 3.11.15, 3.12.13, 3.13.10", "SetAllocTrackerActivationThreshold"),
    ("xml", "3.10.20, 3.11.15, 3.12.13, 3.13.10", "SetAllocTrackerMaximumAmplification"),
    ("xml", "releases of 2026", "SetBillionLaughsAttackProtectionActivationThreshold"),
    ("xml", "releases of 2026", "SetBillionLaughsAttackProtectionMaximumAmplification"),
    # What these answer has changed.
    ("ipaddress", "3.10.15, 3.11.10, 3.12.4", "is_global is_private"),
]
# Parsing every file takes seconds.
_WORDS: Final = re.compile(
    "|".join(
        rf"\b{re.findall('[a-zA-Z_]+', name)[-1]}\b"
        for *_, names in _ADDED
        for name in names.split()
    )
)


def late_additions(source: str) -> Iterator[str]:
    """What it uses of `_ADDED`: the line's number, the name, and the releases that have it."""
    if not _WORDS.search(source):
        return
    nodes = list(ast.walk(ast.parse(source)))
    imported = {module.partition(".")[0] for node in nodes for module in _imported(node)}
    releases = {
        name: first
        for module, first, names in _ADDED
        if module in imported
        for name in names.split()
    }
    for node in nodes:
        for line, name in _used(node):
            if name in releases:
                yield f"{line}: {name} is in {releases[name]} and not before"


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        yield node.module


def _used(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Attribute):
        yield node.lineno, node.attr
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield node.lineno, alias.name
    elif isinstance(node, ast.Call):
        function = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
        for keyword in node.keywords:
            yield node.lineno, f"{function}({keyword.arg}=)"


def test_no_file_uses_what_a_patch_release_lacks() -> None:
    # Not what is installed or built: that is in hidden folders.
    files = sorted(_ROOT.glob("[!.]*/**/*.py"))
    result = [
        f"{file.relative_to(_ROOT)}:{use}"
        for file in files
        for use in late_additions(file.read_text(encoding="utf-8"))
    ]

    assert len(files) > _MIN_FILES
    assert not result, "\n".join(result)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import tarfile\ntarfile.open(p).extractall(q, filter='data')", "extractall(filter=)"),
        ("from shutil import unpack_archive\nunpack_archive(a, filter='data')", "filter="),
        ("import tarfile as t\nt.data_filter", "data_filter"),
        ("def f():\n    from os.path import ALLOW_MISSING", "ALLOW_MISSING"),
        ("import email.utils\nemail.utils.parseaddr(a, strict=False)", "parseaddr(strict=)"),
        ("import xml.etree.ElementTree\nparser.flush()", "flush"),
    ],
)
def test_a_use_is_detected_with_the_releases_that_have_it(source: str, name: str) -> None:
    (use,) = late_additions(source)

    assert use.startswith("2: ")
    assert name in use
    assert "3.10." in use
