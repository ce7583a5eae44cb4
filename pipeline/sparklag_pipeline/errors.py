"""The errors of this package.

SparklagError
└── PipelineError
    ├── JavaMissing           no Java, or one that is too old
    ├── DownloadFailed        a jar could not be had
    ├── JobSettingWrong       what a Spark job was told cannot be done
    ├── TableMissing          there is no history where it was looked for
    └── ProcessFailed         a process died, or did not come up
        └── BrokerFailed
"""

from __future__ import annotations

from sparklag_schemas.errors import SparklagError


class PipelineError(SparklagError):
    """Base of this package's errors. The first line says it all; a log's end may follow."""


class JavaMissing(PipelineError):
    """There is no Java that can run Spark and Kafka."""


class DownloadFailed(PipelineError):
    """The jars asked for could not be fetched."""


class JobSettingWrong(PipelineError):
    """What a Spark job was told cannot be done; the text says what, and what it takes."""


class TableMissing(PipelineError):
    """There is no history where it was looked for."""


class ProcessFailed(PipelineError):
    """A process died, or did not come up in time. Ends with the last lines of its log."""


class BrokerFailed(ProcessFailed):
    """The local Kafka broker did not come up."""
