"""What the demo prints for its reader to type: at its end, and beside a broker to try with."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def next_steps(command: str) -> str:
    """How to see the lag of one's own query. `command` is what to type for `sparklag`. Pure."""
    return f"""\
Next, a query of your own:
  two lines in its driver   import sparklag
                            handle = sparklag.observe(spark)
  or none                   {command}-run spark-submit job.py
  and the service           {command} serve --bootstrap-servers BROKER:9092
  or its checkpoint alone   {command} checkpoint PATH --bootstrap-servers BROKER:9092
A broker to try with:       {command} demo --kafka-only"""


def broker_usage(servers: str, command: str, python: str) -> str:
    """What to do with a broker at `servers`. Pure."""
    options = f"--bootstrap-servers {servers}"
    return f"""\
  the service          {command} serve {options}
  its lag events       {command} tail {options}
  orders to read       {python} -m sparklag_pipeline.demo.order_producer {options}
  a query of them      {python} -m sparklag_pipeline.demo.order_totals {options}
  in your own query    .option("kafka.bootstrap.servers", "{servers}")
The broker creates no topic by itself; `order_producer --topic NAME` creates one."""


def own_command() -> str:
    """What to type for `sparklag` here: its path where PATH has another one, or none."""
    own = Path(sys.executable).with_name("sparklag")
    if shutil.which("sparklag") == str(own) or not own.exists():
        return "sparklag"
    return _shown(own)


def own_python() -> str:
    """What to type for the Python that runs this."""
    return _shown(Path(sys.executable))


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
