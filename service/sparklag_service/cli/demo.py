"""`sparklag demo`"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import typer

from sparklag_service.errors import ServiceError

# The demo has its own options, its help too.
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def demo(context: typer.Context) -> None:
    """Start Kafka, a producer, a Spark query and the service, and watch the lag."""
    if find_spec("pyspark") is None:
        raise ServiceError("the demo needs pyspark: pip install 'sparklag[demo]'")
    # The service never imports what runs on Spark: the demo takes this process over.
    os.execv(sys.executable, [sys.executable, "-m", "sparklag_pipeline.demo", *context.args])
