"""SPARKLAG_AUTO: what it does to a Python process, with Spark and without."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest

from tests.sparklag.test_run import run_program

IMPORTED = "import sys; print([name for name in sys.modules if name.startswith('sparklag')])"
HOOK = Path(__file__).parents[2] / "sparklag" / "sparklag-auto.pth"


def run_python(*arguments: str, **variables: str) -> tuple[str, str]:
    """What it prints, and what it logs. It ends well."""
    done = run_program(sys.executable, *arguments, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("value", ["1", "true", "0", ""])
def test_a_process_without_spark_imports_nothing_of_sparklag(value: str) -> None:
    assert run_python("-c", IMPORTED, SPARKLAG_AUTO=value) == ("[]\n", "")


@pytest.mark.parametrize("value", ["0", "false", "No", "off", ""])
def test_switched_off_it_leaves_spark_as_it_is(value: str) -> None:
    assert run_python("-c", f"import pyspark.sql; {IMPORTED}", SPARKLAG_AUTO=value)[0] == "[]\n"


def test_without_sparklag_the_hook_that_is_left_does_nothing(tmp_path: Path) -> None:
    (tmp_path / HOOK.name).write_text(HOOK.read_text())
    # Without `site` the packages are there, and the editable installation of sparklag is not.
    packages = sysconfig.get_path("purelib")
    code = (
        f"import site, sys; sys.path.append({packages!r}); site.addsitedir({str(tmp_path)!r});"
        f"import pyspark.sql; print(type(sys.meta_path[0]).__name__); {IMPORTED}"
    )
    printed, logged = run_python("-I", "-S", "-c", code, SPARKLAG_AUTO="1")
    assert printed == "SparklagAuto\n[]\n"
    assert logged == ""


def test_modules_of_pyspark_keep_their_own_loaders() -> None:
    code = (
        "import inspect, pyspark.sql.session as session;"
        "print(type(session.__spec__.loader).__name__, type(session.__loader__).__name__,"
        " 'getOrCreate' in inspect.getsource(session))"
    )
    printed, _ = run_python("-c", code, SPARKLAG_AUTO="1")
    assert printed == "SourceFileLoader SourceFileLoader True\n"


BUILD = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
logging.getLogger("py4j").setLevel(logging.WARNING)
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").appName("automatic").getOrCreate()
"""


def sparklag_lines(logged: str) -> list[str]:
    return [line for line in logged.splitlines() if line.startswith("sparklag ")]


@pytest.mark.slow
@pytest.mark.spark
def test_a_wrong_setting_is_one_line_and_the_job_runs() -> None:
    printed, logged = run_python(
        "-c", f"{BUILD}\nprint(spark.range(3).count())", SPARKLAG_AUTO="1", SPARKLAG_HTTP_PRT="1"
    )
    assert printed == "3\n"
    (line,) = sparklag_lines(logged)
    assert line == (
        "sparklag WARNING sparklag: SPARKLAG_AUTO does not observe this session:"
        " environment: unknown setting SPARKLAG_HTTP_PRT, did you mean SPARKLAG_HTTP_PORT?"
    )


@pytest.mark.spark
def test_every_session_is_observed_once_until_the_driver_closes_or_observes_it_itself() -> None:
    more = """
import sparklag
from sparklag_listener import AlreadyObserved
again = SparkSession.builder.getOrCreate()
automatic = sparklag.observe(spark)
print(sparklag.observe(again) is automatic)
beside = spark.newSession()
frame = beside.readStream.format("rate").load()
frame.writeStream, frame.writeStream
print(sparklag.observe(beside) is automatic)
sparklag.observe(beside).close()
beside.readStream.format("rate").load().writeStream
print(automatic.closed)
handle = sparklag.observe(spark, sys.argv[1])
print(handle)
print(handle is automatic, automatic.closed, sparklag.observe(spark, sys.argv[1]) is handle)
try:
    sparklag.observe(spark, "127.0.0.1:1")
except AlreadyObserved as error:
    print(error)
"""
    printed, logged = run_python("-c", BUILD + more, "127.0.0.1:9", SPARKLAG_AUTO="1")
    *first, shown, second, refused = printed.splitlines()
    assert first == ["True", "False", "False"]
    assert "publishing to topic processed-offsets on 127.0.0.1:9" in shown
    assert second == "False True True"
    assert "another bootstrap_servers" in refused
    lines = [line.partition(" (")[0] for line in sparklag_lines(logged)]
    assert lines == ["sparklag INFO sparklag: observing application automatic"] * 3
