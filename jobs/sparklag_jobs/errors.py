"""The errors of this package: all are a PipelineError, and BrokerFailed is a ProcessFailed."""

from __future__ import annotations

from sparklag_schemas.errors import SparklagError


class PipelineError(SparklagError):
    """Base of this package's errors. The first line is the message; the end of a log may follow."""


class JavaMissing(PipelineError):
    """No Java that runs Spark and Kafka is installed."""


class DownloadFailed(PipelineError):
    """Jars could not be downloaded."""


class JobSettingWrong(PipelineError):
    """An argument or setting is wrong; the text names it and the valid values."""


class TableMissing(PipelineError):
    """The location has no history."""


class ProcessFailed(PipelineError):
    """A process died, or did not start in time. The text ends with the last lines of its log."""


class BrokerFailed(ProcessFailed):
    """The local Kafka broker did not start."""
