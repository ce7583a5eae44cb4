"""The hooks of `mkdocs build`: navigation and llms.txt from docs/README.md, links out of docs/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
INDEX: Final = "README.md"
_HEADING: Final = re.compile(r"^(#{2,3}) (.+)$")
_ENTRY: Final = re.compile(r"^\| \[([^\]]+)\]\(([^):]+\.md)\) \| (.+) \|$")
_LINK: Final = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)\s]+)\)")
_SUMMARY: Final = (
    "sparklag measures the consumer lag of Spark Structured Streaming queries that read Kafka:"
    " in records and in seconds, while a query runs, hangs or is dead."
)

Navigation = list[Any]


def entries() -> Iterator[tuple[list[str], str, str, str]]:
    """Of the index, in its order: headings above, title, path in docs/, question."""
    headings: list[str] = []
    for line in (DOCS / INDEX).read_text(encoding="utf-8").splitlines():
        if heading := _HEADING.match(line):
            headings = [*headings[: len(heading[1]) - 2], heading[2]]
        elif (entry := _ENTRY.match(line)) and (DOCS / entry[2]).resolve().is_relative_to(DOCS):
            yield headings, entry[1], entry[2], entry[3]


def navigation() -> Navigation:
    """As in mkdocs.yml. A README.md with unlisted pages beside it is the index of a section."""
    pages: Navigation = [{"Overview": INDEX}]
    listed = {path for _, _, path, _ in entries()}
    for headings, title, path, _ in entries():
        level = pages
        for heading in headings:
            if heading not in (level[-1] if level and isinstance(level[-1], dict) else {}):
                level.append({heading: []})
            level = level[-1][heading]
        folder = (DOCS / path).parent
        beside = sorted(page.relative_to(DOCS).as_posix() for page in folder.glob("*.md"))
        others = [page for page in beside if page not in listed]
        is_index = path.endswith(f"/{INDEX}") and others
        level.append({title: [path, *others]} if is_index else {title: path})
    return pages


def llms_txt() -> str:
    """An index for language models: https://llmstxt.org."""
    lines = ["# sparklag", "", f"> {_SUMMARY}"]
    section: list[str] = []
    for headings, title, path, question in entries():
        if headings[:1] != section:
            section = headings[:1]
            lines += ["", f"## {section[0]}"]
        lines.append(f"- [{title}]({site_path(path)}): {question}")
    return "\n".join(lines) + "\n"


def site_path(page: str) -> str:
    """Of a page of docs/, in the site."""
    return re.sub(r"\.md$", ".html", re.sub(r"README\.md$", "index.md", page))


def with_repository_links(markdown: str, folder: Path, repo_url: str | None) -> str:
    """Links to files outside docs/ become links into the repository, or name the file."""

    def replaced(link: re.Match[str]) -> str:
        path, _, anchor = link[2].partition("#")
        target = (folder / path).resolve()
        if target.is_relative_to(DOCS):
            return link[0]
        name = target.relative_to(ROOT).as_posix()
        if repo_url:
            kind = "tree" if target.is_dir() else "blob"
            address = f"{repo_url.rstrip('/')}/{kind}/main/{name}"
            return f"[{link[1]}]({address}{'#' + anchor if anchor else ''})"
        return f"`{name}`" if link[1].strip("`/") in name else f"{link[1]} (`{name}`)"

    return _LINK.sub(replaced, markdown)


def on_config(config: Any) -> Any:
    """Set the navigation."""
    config["nav"] = navigation()
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite the links of a page."""
    folder = (DOCS / page.file.src_uri).parent
    return with_repository_links(markdown, folder, config["repo_url"])


def on_post_build(config: Any) -> None:
    """Add llms.txt."""
    (Path(config["site_dir"]) / "llms.txt").write_text(llms_txt(), encoding="utf-8")
