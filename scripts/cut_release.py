"""Cuts a release: `cut_release.py VERSION`.

Sets the version in pyproject.toml and the Helm chart, puts what CHANGELOG.md has under Unreleased
under the version and the date, and keeps the schemas of messages as released ones. Commits nothing:
prints the commands that do.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from sparklag_schemas import SCHEMA_VERSION

_ROOT: Final = Path(__file__).resolve().parent.parent
# What PEP 440 and Helm both take.
_SEMANTIC: Final = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", re.ASCII)
_VERSION: Final = re.compile(r'(?<=^version = ")[^"]+', re.MULTILINE)
_CHART_VERSIONS: Final = re.compile(r"^(version|appVersion): .+", re.MULTILINE)
_RELEASES: Final = re.compile(r"^## \[(.+?)\]", re.MULTILINE)
_UNRELEASED: Final = re.compile(r"^## \[Unreleased\]\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


class NotReleased(Exception):
    """The text is one line with the reason."""


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("expected one version: make release VERSION=0.2.0")
    try:
        release(sys.argv[1])
    except NotReleased as reason:
        sys.exit(f"not released: {reason}")
    version = sys.argv[1]
    print(f"git add --all && git commit -m 'Release {version}'")
    print(f"git tag -a v{version} -m 'sparklag {version}'")


def release(version: str) -> None:
    """Raises NotReleased, and has changed nothing then."""
    project, changelog = _ROOT / "pyproject.toml", _ROOT / "CHANGELOG.md"
    changes = subprocess.check_output(["git", "status", "--porcelain"], cwd=_ROOT, text=True)
    if changes:
        raise NotReleased(f"changes are not committed: {changes.splitlines()[0].strip()}")
    texts = {path: path.read_text(encoding="utf-8") for path in (project, changelog)}
    _require_higher(version, _VERSION.findall(texts[project])[0], texts[changelog])
    unreleased = _UNRELEASED.search(texts[changelog])
    if unreleased is None or "\n- " not in unreleased[1]:
        raise NotReleased("CHANGELOG.md has no entry under [Unreleased]")

    today = datetime.now(timezone.utc).date()
    project.write_text(_VERSION.sub(version, texts[project], count=1), encoding="utf-8")
    heading = f"## [Unreleased]\n\n## [{version}] - {today}\n"
    dated = texts[changelog].replace("## [Unreleased]\n", heading, 1)
    changelog.write_text(dated, encoding="utf-8")
    for chart in _ROOT.glob("deploy/**/Chart.yaml"):
        text = chart.read_text(encoding="utf-8")
        chart.write_text(_CHART_VERSIONS.sub(f"\\1: {version}", text), encoding="utf-8")
    _keep_schemas(_ROOT / "schemas")


def _require_higher(version: str, current: str, changelog: str) -> None:
    if not _SEMANTIC.fullmatch(version):
        raise NotReleased(f"{version!r} is not a version of the form 1.2.3")
    # The first release has the version that the project began with.
    is_released = current in _RELEASES.findall(changelog)
    if _numbers(version) < _numbers(current) or (is_released and version == current):
        raise NotReleased(f"{version} is not higher than {current}")


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def _keep_schemas(schemas: Path) -> None:
    released = schemas / "released" / SCHEMA_VERSION
    if released.exists():
        return
    released.mkdir()
    for file in (
        *schemas.glob("sparklag_schemas/avro/*.avsc"),
        *schemas.glob("sparklag_schemas/documents/*.schema.json"),
        *_ROOT.glob("scripts/examples/*.json"),
    ):
        shutil.copy(file, released)


if __name__ == "__main__":
    main()
