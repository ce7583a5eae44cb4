"""The Java that runs Spark 4 and Kafka 4."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from sparklag_jobs.errors import JavaMissing

OLDEST_JAVA: Final = 17
NEWEST_JAVA: Final = 22
"""From 23 on `Subject.getSubject` throws, which the Hadoop client inside Spark 4.0 calls."""

_HINT: Final = (
    f"install Java {OLDEST_JAVA} to {NEWEST_JAVA} (Debian, Ubuntu: apt install"
    " openjdk-17-jre-headless; macOS: brew install openjdk@17) or point JAVA_HOME at one"
)


@functools.cache
def find_java() -> Path:
    """The `java` of JAVA_HOME, which Spark uses too, or else of PATH.

    Raises JavaMissing where there is none, or only one that Spark does not run on.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise JavaMissing(f"no java in PATH: {_HINT}")
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaMissing(f"{java} does not run ({error}): {_HINT}") from error
    version = java_version(output)
    if version is not None and not OLDEST_JAVA <= version <= NEWEST_JAVA:
        raise JavaMissing(f"{java} is Java {version}: {_HINT}")
    return Path(java)


def java_version(output: str) -> int | None:
    """The feature release in the output of `java -version` (17 of `17.0.2`, 8 of `1.8.0`)."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match.group(1)) if match else None
