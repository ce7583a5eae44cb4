"""The signals that end a command."""

from __future__ import annotations

import signal


def ending_signals(*from_terminal: signal.Signals) -> list[signal.Signals]:
    """SIGTERM, and those of `from_terminal` that this process was not started to ignore: `nohup`
    does that for SIGHUP, a shell without job control for SIGINT in the background."""
    heeded = [each for each in from_terminal if signal.getsignal(each) is not signal.SIG_IGN]
    return [signal.SIGTERM, *heeded]
