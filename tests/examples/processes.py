"""The examples as processes, in an environment that has what a user has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "examples"


def example_environment(**more: str) -> dict[str, str]:
    """This process's, without settings of sparklag and with the examples' folder."""
    path = os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPARKLAG_")},
        "PYTHONPATH": path,
        **more,
    }
