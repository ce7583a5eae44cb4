"""Checks the source of the page: types against the JSON Schema of the routes, then its own tests.

python -m scripts.check_page
"""

from __future__ import annotations

import fcntl
import json
import sys
from pathlib import Path
from typing import Final

from hatch_build import PageNotBuilt, npm
from sparklag_service.rest.openapi import message_schemas

WEB: Final = Path(__file__).parents[1] / "web"
SCHEMA: Final = WEB / "src" / "generated" / "rest.schema.json"


def rest_schema() -> dict[str, object]:
    """What the routes answer with, as one JSON Schema."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rest",
        "$defs": message_schemas("#/$defs/{name}"),
    }


def main() -> int:
    """0; 1 with what is wrong."""
    SCHEMA.parent.mkdir(exist_ok=True)
    with (SCHEMA.parent / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # another check of this clone writes the same files
        SCHEMA.write_text(json.dumps(rest_schema()), encoding="utf-8")
        try:
            if not (WEB / "node_modules" / "typescript").is_dir():
                npm(WEB, "ci")
            npm(WEB, "run", "types")
            npm(WEB, "test")
        except PageNotBuilt as error:
            sys.stderr.write(f"{error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
