"""The `sparklag` command."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line; one line on what is missing where the extra is not installed."""
    if sys.argv[1:2] == ["serve"]:
        # The kernel's default does not end process 1 of a container, and Python's prints a trace.
        signal.signal(signal.SIGTERM, _exit_at_once)
        # As `ending_signals`, which is not loaded yet.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, _exit_at_once)
    try:
        from sparklag_service.cli import run
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"sparklag: the command line needs {error.name}: pip install 'sparklag[service]'\n"
        )
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    run()


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    """While modules load there is nothing to drain."""
    os._exit(128 + number)


if __name__ == "__main__":
    main()
