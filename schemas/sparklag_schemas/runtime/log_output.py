"""The log of a long-running command: structlog's formatter around the records of `logging`, which
is what the packages use."""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import Any, Final

from structlog.processors import JSONRenderer, TimeStamper, format_exc_info
from structlog.stdlib import ExtraAdder, ProcessorFormatter, add_log_level, add_logger_name
from structlog.typing import EventDict

from sparklag_schemas import Settings
from sparklag_schemas.runtime.logs import FIELDS, RepeatLimit
from sparklag_schemas.settings.settings import LOG_PACKAGES, LOG_STAGES, LogFormat
from sparklag_schemas.text.printable import printable

_LONGEST_EVENT: Final = 10_000
_FIRST_KEYS: Final = ("timestamp", "level", "logger", "event")


def configure_logs(settings: Settings) -> None:
    """Configure logging to standard error by the settings, until the process ends."""
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter(settings.log_format))
    handler.addFilter(RepeatLimit())
    level = getattr(logging, settings.log_level)
    # At DEBUG libraries log what they send, including credentials.
    logging.basicConfig(level=max(logging.INFO, level), handlers=[handler])
    _set_levels(settings)
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught


def _set_levels(settings: Settings) -> None:
    for package in ("", *LOG_PACKAGES):
        part_level = settings.log_levels.get(package, settings.log_level)
        # Packages that also run in a driver log below its one logger, `sparklag`.
        for name in (f"sparklag_{package}", f"sparklag.{package}") if package else ("sparklag",):
            logging.getLogger(name).setLevel(part_level)
    for stage in LOG_STAGES:
        if stage in settings.log_levels:
            logging.getLogger(f"sparklag_service.{stage}").setLevel(settings.log_levels[stage])


def log_formatter(log_format: LogFormat) -> logging.Formatter:
    """The formatter: printable lines for `console`, one line a record for `json`."""
    is_console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    return ProcessorFormatter(
        foreign_pre_chain=[
            add_log_level,
            add_logger_name,
            TimeStamper(fmt="iso", utc=True),
            ExtraAdder(allow=(*FIELDS, "repeated")),
        ],
        processors=[
            ProcessorFormatter.remove_processors_meta,
            format_exc_info,
            _in_order,
            _console_lines if is_console else JSONRenderer(),
        ],
    )


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    logger = logging.getLogger("sparklag_service")
    logger.critical("ended by an error", exc_info=(kind, error, trace))


def _in_order(logger: Any, method: str, event: EventDict) -> EventDict:
    event["event"] = event["event"][:_LONGEST_EVENT]
    return {name: event.pop(name) for name in _FIRST_KEYS} | dict(event)


def _console_lines(logger: Any, method: str, event: EventDict) -> str:
    message = printable(event["event"], _LONGEST_EVENT)
    line = f"{event['timestamp']} {event['level'].upper():7} {event['logger']}: {message}"
    trace = event.get("exception", "").splitlines()
    return "\n".join((line, *(printable(each, _LONGEST_EVENT) for each in trace)))
