"""The `sparklag` command."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line. Without the extra, write one line that names the missing package."""
    if sys.argv[1:2] == ["serve"]:
        # The kernel's default does not end process 1 of a container, and Python's prints a trace.
        signal.signal(signal.SIGTERM, _exit_at_once)
        # The same rule as `ending_signals`, which is not loaded yet.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, _exit_at_once)
    if sys.argv[1:] == ["--version"]:
        # Also without the extra.
        from sparklag_service import VERSION

        sys.stdout.write(f"sparklag {VERSION}\n")
        return
    try:
        from sparklag_service.cli import run
    except ModuleNotFoundError as error:
        from sparklag_schemas.errors import install_command

        command = install_command("service")
        sys.stderr.write(f"sparklag: the command line needs {error.name}: {command}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    run()


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    """Exit without a drain: modules are still loading."""
    os._exit(128 + number)


if __name__ == "__main__":
    main()
