"""The `sparklag` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; one line on what is missing where the extra is not installed."""
    try:
        from sparklag_service.cli import run
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"sparklag: the command line needs {error.name}: pip install 'sparklag[service]'\n"
        )
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
