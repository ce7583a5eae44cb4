"""The documents: their links, their sizes, and the commands, settings and snippets they show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pytest
import typer
from typer.core import TyperGroup

from scripts.docs_site import DOCS, entries, with_repository_links
from sparklag_schemas import Settings
from sparklag_service.cli import app
from sparklag_service.cli.commands import PASS_ON
from sparklag_service.instance_state import InstanceState
from sparklag_service.rest.app import create_app
from tests.service.pipelines import pipeline_of
from tests.test_requirements import PROJECT

ROOT: Final = Path(__file__).resolve().parents[1]
DOCUMENTS: Final = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / name / "README.md" for name in ("benchmarks", "deploy", "examples")),
        *(ROOT / "tests").glob("*/README.md"),
    ]
)
MODULES: Final = [
    path.relative_to(ROOT).as_posix()
    for folder in ROOT.iterdir()
    if folder.is_dir() and not folder.name.startswith(".")
    for path in folder.rglob("*.py")
    if "node_modules" not in path.parts
]
READERS: Final = ("user", "operator", "program")
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_BLOCK: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_CODE: Final = re.compile(r"(`+).+?\1", re.DOTALL)
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
_HEADING: Final = re.compile(r"^#+ +(.+?)$", re.MULTILINE)


def blocks(document: Path, language: str) -> Iterator[str]:
    text = _COMMENT.sub("", document.read_text(encoding="utf-8"))
    return (code for _, its_language, code in _BLOCK.findall(text) if its_language == language)


def _of(documents: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "document", documents, ids=lambda path: str(path.relative_to(ROOT))
    )


def each_document_with(language: str) -> pytest.MarkDecorator:
    return _of([document for document in DOCUMENTS if any(blocks(document, language))])


each_document = _of(DOCUMENTS)


def prose(document: Path) -> str:
    text = _COMMENT.sub("", document.read_text(encoding="utf-8"))
    return _BLOCK.sub("", text)


def links(document: Path) -> Iterator[str]:
    for match in _LINK.finditer(_CODE.sub("", prose(document))):
        yield match[1] or match[2]


def anchors(document: Path) -> set[str]:
    result: set[str] = set()
    for heading in _HEADING.findall(prose(document)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = sum(1 for anchor in result if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", anchor))
        result.add(f"{slug}-{count}" if count else slug)
    return result


@each_document
def test_every_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    for link in links(document):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = document.parent / path if path else document
        assert target.exists(), f"{link}: no such file"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


@each_document
def test_every_module_that_is_named_exists(document: Path) -> None:
    # Names in capitals stand for any.
    for name in re.findall(r"`([a-z_][a-z0-9_./]*\.py)`", prose(document)):
        assert any(f"/{module}".endswith(f"/{name}") for module in MODULES), name


def test_the_readme_is_one_page_of_at_most_8_kb() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 8_192


@pytest.mark.parametrize("reader", READERS)
def test_a_page_of_a_reader_is_at_most_10_kb(reader: str) -> None:
    sizes = {path.name: path.stat().st_size for path in (ROOT / "docs" / reader).glob("*.md")}
    assert sizes
    assert {name: size for name, size in sizes.items() if size > 10_240} == {}


_POWERS: Final = {"GB": 9, "MB": 6, "KB": 3, "bytes": 0, "ms": -3, "µs": -6, "%": -2}
_ROW: Final = re.compile(r"^\|(.+?)\| `([^`]+)`[^|]*\|(.+)\|$", re.MULTILINE)


def _result(formula: str, names: dict[str, float]) -> float:
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", formula.strip()).replace("×", "*")
    unit = re.compile(rf"(?<=\d) ({'|'.join(_POWERS)})(?!\w)")
    plain = unit.sub(lambda of: f"e{_POWERS[of[1]]}", plain)
    return float(eval(plain, {"max": max}, names))


def test_the_results_on_the_page_of_sizing_follow_from_its_formulas() -> None:
    page = (ROOT / "docs" / "operator" / "sizing.md").read_text()
    columns: list[dict[str, float]] = [{}, {}, {}]
    for title, formula, cells in _ROW.findall(page):
        *default, small, large, three = cells.split("|")
        for names, cell in zip(columns, (small, large, three), strict=True):
            name, _, right = formula.rpartition(" = ")
            if right.isidentifier():
                names[right] = _result(cell, {})
            computed = _result(right, names)
            assert computed == pytest.approx(_result(cell, {}), rel=0.03), title
            names |= {name: computed} if name else {}
        for value in default:
            setting = attrgetter(re.findall("`(.+?)`", title)[0])
            assert setting(Settings()) == _result(value, {}), title
    worked = re.findall(r"`([\d(][^`]+) = ([^`]+)`", page.partition("## Example")[2])
    for formula, result in worked:
        assert _result(formula, {}) == pytest.approx(_result(result, {}), rel=0.03), formula
    assert len(worked) > 8


_SECRETS = {
    "sasl_username": "SASL_PASSWORD",
    "sasl_oauthbearer_client_id": "SASL_OAUTHBEARER_CLIENT_SECRET",
}


def passwords(settings: dict[str, Any]) -> dict[str, str]:
    sections = {"SPARKLAG_": settings}
    for alias, cluster in settings.get("clusters", {}).items():
        sections[f"SPARKLAG_CLUSTERS__{alias.upper()}__"] = cluster
    return {
        f"{prefix}KAFKA__{secret}": "secret"
        for prefix, section in sections.items()
        for name, secret in _SECRETS.items()
        if name in section.get("kafka", {})
    }


@each_document_with("console")
def test_every_command_shown_exists_and_takes_its_options(document: Path) -> None:
    for code in blocks(document, "console"):
        for line in re.findall(r"^\$ (sparklag .+)$", code, re.MULTILINE):
            words = shlex.split(re.split(r" (?:&|\|\|?|>)(?: |$)", line)[0], comments=True)[1:]
            command: Any = typer.main.get_command(app)
            while isinstance(command, TyperGroup) and words:
                assert words[0] in command.commands, f"{line}: no such command"
                command = command.get_command(typer.Context(command), words.pop(0))
            if not PASS_ON.items() <= command.context_settings.items():
                known = {option for each in command.params for option in each.opts}
                assert {word for word in words if word.startswith("--")} <= known, line


def test_every_extra_that_is_named_exists() -> None:
    for document in DOCUMENTS:
        named = set(re.findall(r"sparklag\[(\w+)\]", document.read_text(encoding="utf-8")))
        assert named <= PROJECT["project"]["optional-dependencies"].keys(), document


def test_the_page_of_rest_has_every_route() -> None:
    page = (ROOT / "docs" / "program" / "rest.md").read_text(encoding="utf-8")
    paths = create_app(InstanceState(pipeline_of(Settings()))).openapi()["paths"]
    for path, operations in paths.items():
        for method in operations:
            shown = f"{method.upper()} {path}"
            assert re.search(rf"`{re.escape(shown)}[`?]", page), shown


def test_the_index_of_the_documents_lists_each_page_once() -> None:
    paths = [path for _, _, path, _ in entries()]
    assert len(paths) == len(set(paths)) > 40


@pytest.mark.parametrize(
    ("markdown", "with_repository", "without"),
    [
        ("[the rules](../../deploy/README.md#a)", "[the rules](U/blob/main/deploy/README.md#a)",
         "the rules (`deploy/README.md`)"),
        ("[deploy/](../../deploy)", "[deploy/](U/tree/main/deploy)", "`deploy`"),
        ("[lag](../user/lag.md#b) [c](d.md)",) * 3,
    ],
)  # fmt: skip
def test_a_link_out_of_the_documents_leads_to_the_repository_or_is_text(
    markdown: str, with_repository: str, without: str
) -> None:
    folder = DOCS / "operator"
    assert with_repository_links(markdown, folder, "U/") == with_repository
    assert with_repository_links(markdown, folder, None) == without


def test_every_test_of_the_threat_model_exists() -> None:
    page = ROOT / "docs" / "operator" / "threat-model.md"
    named = re.findall(r"\[(test_\w+)\]\(([^)]+)\) \|$", page.read_text(), re.MULTILINE)
    assert len(named) == page.read_text().count("\n| ") - 2
    for name, path in named:
        assert re.search(rf"def {name}\(", (page.parent / path).read_text()), (name, path)
