"""`sparklag report`"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import typer

from sparklag_service.errors import ServiceError

# The report has its own options, its help too.
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def report(context: typer.Context) -> None:
    """What the history of lag says: within target or not, when, how far behind, what comes."""
    if find_spec("pyspark") is None:
        raise ServiceError("the report needs pyspark: pip install 'sparklag[demo]'")
    # The service never imports what runs on Spark: the report takes this process over.
    os.execv(
        sys.executable, [sys.executable, "-m", "sparklag_pipeline.report.lag_report", *context.args]
    )
