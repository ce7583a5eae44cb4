"""Programs out of Debian's packages, unpacked into the cache.

They are not installed: nothing is started, and nobody needs to be root.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from sparklag_jobs.broker.maven import default_cache_dir
from tests.commands import run, run_command

_QUERY_DEADLINE_S: Final = 60.0


class ProgramsMissing(Exception):
    """They are not here and could not be got: the text is one line with the way to get them."""


def unpacked_packages(
    name: str, packages: Sequence[str], *, instead: str, needs: str | None = None
) -> Path:
    """The folder they are unpacked in, as if it were the root: `name` in the cache.

    `needs` is a pattern: the packages they depend on whose names it matches whole are unpacked
    too, and so on from there; of these, libraries that are installed are left out. `instead` says
    what to do where there are no such packages. Safe when several processes ask at once. Raises
    ProgramsMissing.
    """
    folder = default_cache_dir() / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        unpacked = folder / "unpacked"
        if not unpacked.exists():
            _unpack(folder, unpacked, packages, instead, needs)
    return unpacked


def library_path(unpacked: Path) -> str:
    folders = [*unpacked.glob("usr/lib/*-linux-*"), *unpacked.glob("lib/*-linux-*")]
    return os.pathsep.join(str(folder) for folder in sorted(folders))


def with_libraries(libraries: str) -> Mapping[str, str] | None:
    if not libraries:
        return None
    own = os.environ.get("LD_LIBRARY_PATH")
    return os.environ | {"LD_LIBRARY_PATH": f"{libraries}:{own}" if own else libraries}


def _unpack(
    folder: Path, target: Path, packages: Sequence[str], instead: str, needs: str | None
) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ProgramsMissing(instead)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        downloads, unpacked = Path(scratch) / "packages", Path(scratch) / "unpacked"
        downloads.mkdir()
        message = _download(downloads, packages, needs)
        if message is not None:
            # The system's package lists are empty, or too old.
            lists = _own_lists(Path(scratch) / "lists")
            message = run_command(["apt-get", *lists, "update", "-q"])
            message = message or _download(downloads, packages, needs, lists)
        if message is not None:
            raise ProgramsMissing(f"apt-get download {' '.join(packages)}: {message}; {instead}")
        for package in sorted(downloads.glob("*.deb")):
            message = run_command(["dpkg-deb", "-x", str(package), str(unpacked)])
            if message is not None:
                raise ProgramsMissing(f"{package.name} cannot be unpacked: {message}")
        unpacked.rename(target)


def _own_lists(folder: Path) -> list[str]:
    """Options that have apt keep its package lists in the folder, where nobody has to be root."""
    (folder / "partial").mkdir(parents=True)
    settings = (f"Dir::State::Lists={folder}", f"Dir::Cache={folder}", "APT::Sandbox::User=root")
    return [argument for setting in settings for argument in ("-o", setting)]


def _download(
    folder: Path, packages: Sequence[str], needs: str | None, lists: Sequence[str] = ()
) -> str | None:
    wanted = list(packages)
    if needs is not None:
        installed = _installed_libraries()
        needed = _needed(packages, needs, lists)
        wanted += [name for name in needed if name not in installed]
    return run_command(["apt-get", *lists, "download", "-q", *wanted], folder=folder)


def _needed(packages: Sequence[str], needs: str, lists: Sequence[str]) -> list[str]:
    dependencies = dict(_dependencies(packages, lists))
    result: list[str] = []
    unseen = list(packages)
    while unseen:
        for name in dependencies.get(unseen.pop(), []):
            if re.fullmatch(needs, name) and name not in result and name not in packages:
                result.append(name)
                unseen.append(name)
    return result


def _dependencies(packages: Sequence[str], lists: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each package that any of these leads to, with those it depends on itself."""
    nothing_else = [
        f"--no-{kind}"
        for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    ]
    ask = ("apt-cache", *lists, "depends", "--recurse", *nothing_else)
    # Nothing where it does not know the packages.
    message = run(*ask, *packages, timeout_s=_QUERY_DEADLINE_S).stdout
    name, is_alternative = "", False
    names: list[str] = []
    for line in message.splitlines():
        if not line.startswith(" "):
            yield name, names
            name, names, is_alternative = line.strip(), [], False
        elif re.match(r" [ |](Pre)?Depends: ", line):
            # Of several that would do, the first.
            if not is_alternative:
                names.append(line.partition(": ")[2])
            is_alternative = line.startswith(" |")
    yield name, names


def _installed_libraries() -> set[str]:
    shown = ("--showformat", "${db:Status-Abbrev}${Package}\n")
    message = run("dpkg-query", "--show", *shown, "lib*", timeout_s=_QUERY_DEADLINE_S).stdout
    return {line[2:].strip() for line in message.splitlines() if line.startswith("ii")}
