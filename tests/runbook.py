"""What the runbook quotes of `sparklag lag`, beside what the service says of a query."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.end_to_end import answer

RUNBOOK: Final = Path(__file__).parents[1] / "docs/operator/runbook.md"
_FIGURE: Final = r"\d[\d.,:]*(?: (?:ms|s|min|h)\b)?"


def is_quoted(url: str, query: str, section: str) -> bool:
    """Whether the service says all lines of the first block of the section. Figures may differ, "…"
    is any text, and the topic has another name than `orders`."""
    said = answer(f"{url}/lag/{query}/explanation") or {"status": "", "lines": []}
    lines = [f"{line['heading']} {line['text']}" for line in said["lines"]]
    text = re.sub(r"\S+(?=\[\d+\])", "orders", "\n".join([f"orders {said['status']}", *lines]))
    _, _, rest = RUNBOOK.read_text(encoding="utf-8").partition(f"## {section}\n")
    quoted = rest.split("```text\n", 1)[1].split("```", 1)[0].splitlines()
    return all(re.search(f"^{_pattern(line)}", text, re.MULTILINE) for line in quoted)


def _pattern(line: str) -> str:
    parts = re.split(f"({_FIGURE}|…)", line)
    return "".join(
        ".*" if part == "…" else _FIGURE if number % 2 else re.escape(part)
        for number, part in enumerate(parts)
    )
