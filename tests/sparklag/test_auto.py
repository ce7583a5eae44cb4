"""SPARKLAG_AUTO: what it does to a Python process, with Spark and without."""

from __future__ import annotations

import shutil
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.sparklag.test_run import run_program

IMPORTED = "import sys; print([name for name in sys.modules if name.startswith('sparklag')])"
ROOT = Path(__file__).parents[2]
HOOK = ROOT / "sparklag_auto" / "sparklag-auto.pth"
PARTS = ("schemas", "kafka", "offsets", "listener")
Files = dict[str, str | None]
"""The text of files by path, below `site/` (where packages are) or `job/`. None: removed."""


def run_python(*arguments: str, **variables: str) -> tuple[str, str]:
    done = run_program(sys.executable, *arguments, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("value", ["1", "true", "0", ""])
def test_a_process_without_spark_imports_nothing_of_sparklag(value: str) -> None:
    assert run_python("-c", IMPORTED, SPARKLAG_AUTO=value) == ("[]\n", "")


@pytest.mark.parametrize("value", ["0", "false", "No", "off", ""])
def test_switched_off_it_leaves_spark_as_it_is(value: str) -> None:
    assert run_python("-c", f"import pyspark.sql; {IMPORTED}", SPARKLAG_AUTO=value)[0] == "[]\n"


PACKAGES = ("sparklag", "sparklag_auto", *(f"{name}/sparklag_{name}" for name in PARTS))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with a copy of sparklag, and these tests' other packages."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, symlinks=True)
    site_packages = next(folder.glob("lib/*/site-packages"))
    for package in PACKAGES:
        shutil.copytree(ROOT / package, site_packages / Path(package).name)
    shutil.copy(HOOK, site_packages)
    (site_packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def run_job(installed: Path, folder: Path, name: str, job: str, broken: Files) -> list[str]:
    """The log of a job that runs to its end, once, in an environment with these files."""
    environment = shutil.copytree(installed, folder / "venv", symlinks=True)
    places = {"job": folder, "site": next(environment.glob("lib/*/site-packages"))}
    for path, text in broken.items():
        place, _, below = path.partition("/")
        file = places[place] / below
        if text is None:
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        else:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
    (folder / name).write_text(f"{job}\nprint('ran')")
    # Python puts the folder of a program before all others, and PYTHONPATH before its own.
    python, variables = str(environment / "bin" / "python"), {"PYTHONPATH": str(folder)}
    done = run_program(python, str(folder / name), SPARKLAG_AUTO="1", **variables)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    return [line for line in done.stderr.splitlines() if "SPARKLAG_AUTO" in line]


EXITS = "import sys; sys.exit(3)"
HOOK_FILE = "site/sparklag_auto/hook.py"
BROKEN_HOOKS: dict[str, tuple[Files, str]] = {
    "missing": ({HOOK_FILE: None}, "No such file"),
    "without its package": ({"site/sparklag_auto": None}, "No such file"),
    "empty": ({HOOK_FILE: ""}, "has no attribute 'install'"),
    "cut off": ({HOOK_FILE: "def install(:"}, "SyntaxError"),
    "binary": ({HOOK_FILE: "\0"}, "null bytes"),
    "that exits": ({HOOK_FILE: EXITS}, "SystemExit"),
    "out of memory": ({HOOK_FILE: "raise MemoryError"}, "MemoryError"),
    "that recurses": ({HOOK_FILE: "def install(): install()"}, "RecursionError"),
}


@pytest.mark.parametrize("how", BROKEN_HOOKS)
def test_a_broken_hook_is_named_and_the_job_runs(how: str, installed: Path, tmp_path: Path) -> None:
    broken, reason = BROKEN_HOOKS[how]
    (line,) = run_job(installed, tmp_path, "job.py", "import pyspark.sql", broken)
    assert line.startswith("sparklag: SPARKLAG_AUTO does not observe this process: ")
    assert reason in line


def test_files_beside_a_job_are_not_taken_for_sparklag(installed: Path, tmp_path: Path) -> None:
    beside = ("sparklag.py", "sparklag_auto.py", "sparklag_auto/hook.py", "sparklag_listener.py")
    broken: Files = {f"job/{name}": EXITS for name in beside}
    broken["site/sparklag/__init__.py"] = "raise ValueError"
    assert run_job(installed, tmp_path, "job.py", "import pyspark.sql", broken) == []


SESSION = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").getOrCreate()
assert spark.range(3).count() == 3
"""
BROKEN_PARTS: dict[str, tuple[Files, str]] = {
    "no listener": ({"site/sparklag_listener": None}, "No module named"),
    "half a listener": ({"site/sparklag_listener/observe.py": "def observe("}, "SyntaxError"),
    "exits": ({"site/sparklag_schemas/__init__.py": EXITS}, "SystemExit"),
    "other msgspec": ({"site/msgspec/__init__.py": ""}, "cannot import name"),
    "a file of the job": ({"job/msgspec.py": EXITS}, "msgspec.py hides the module msgspec"),
}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("how", BROKEN_PARTS)
def test_with_a_broken_part_the_session_works(how: str, installed: Path, tmp_path: Path) -> None:
    broken, reason = BROKEN_PARTS[how]
    (line,) = run_job(installed, tmp_path, "job.py", SESSION, broken)
    assert "SPARKLAG_AUTO does not observe this session: " in line
    assert reason in line


@pytest.mark.spark
def test_a_part_that_hangs_does_not_delay_the_session(installed: Path, tmp_path: Path) -> None:
    broken: Files = {"site/sparklag_listener/observe.py": "import time; time.sleep(600)"}
    assert run_job(installed, tmp_path, "job.py", SESSION, broken) == []


@pytest.mark.spark
def test_a_job_with_the_name_of_a_part_runs_once(installed: Path, tmp_path: Path) -> None:
    (line,) = run_job(installed, tmp_path, "sparklag_listener.py", SESSION, {})
    assert "sparklag_listener.py hides the module sparklag_listener that sparklag imports" in line


def test_sparks_own_processes_are_not_observed() -> None:
    code = (
        "import sys; sys.orig_argv[1:] = ['-m', 'pyspark.daemon', 'pyspark.worker'];"
        "import pyspark.sql; print([type(finder).__name__ for finder in sys.meta_path])"
    )
    assert "_Finder" not in run_python("-c", code, SPARKLAG_AUTO="1")[0]


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
