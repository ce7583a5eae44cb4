"""The errors of this package.

SparklagError
└── PipelineError
    ├── JavaMissing           no Java, or an unsuitable one
    ├── DownloadFailed        jars could not be downloaded
    ├── ArchiveNotMade        class data could not be kept
    ├── JobSettingWrong       an argument or setting that a Spark job cannot use
    ├── TableMissing          there is no history at the location
    └── ProcessFailed         a process died, or did not start in time
        └── BrokerFailed
"""

from __future__ import annotations

from sparklag_schemas.errors import SparklagError


class PipelineError(SparklagError):
    """Base of this package's errors. The first line is the message; the end of a log may follow."""


class JavaMissing(PipelineError):
    """There is no Java that runs Spark and Kafka."""


class DownloadFailed(PipelineError):
    """Jars could not be downloaded."""


class ArchiveNotMade(PipelineError):
    """A JVM's class data could not be kept; it starts without them."""


class JobSettingWrong(PipelineError):
    """An argument or setting is wrong; the text names it, and what it takes."""


class TableMissing(PipelineError):
    """There is no history at the location."""


class ProcessFailed(PipelineError):
    """A process died, or did not start in time. Ends with the last lines of its log."""


class BrokerFailed(ProcessFailed):
    """The local Kafka broker did not start."""
