"""Observes every Spark session of this process without a change to its code: SPARKLAG_AUTO=1.

`sparklag-auto.pth`, which Python reads when it starts, loads this file by its path and calls
`install` just before `pyspark.sql` is imported; in a process without Spark nothing of sparklag is
imported. From then on a thread observes each session that a builder returns, or, if it was created
otherwise, that has a query; a query waits for its session's thread. A broken sparklag causes one
line in the log, and the job runs as without it: this file imports the standard library only until
there is a session.
"""

from __future__ import annotations

import functools
import logging
import operator
import os
import site
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from itertools import pairwise
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

_log = logging.getLogger("sparklag")


def install() -> None:
    """Observe each session that is created from now on; none in a process of Spark itself."""
    if any(a == "-m" and b.startswith("pyspark.") for a, b in pairwise(sys.orig_argv)):
        return
    sys.meta_path[:0] = (_Finder(), _JobFolderRefused())
    for name in _PATCHES:
        if name in sys.modules:
            _patch(sys.modules[name])


def _patch(module: ModuleType) -> None:
    with _guest("PySpark"):
        path, methods, session_of = _PATCHES[module.__name__]
        owner = operator.attrgetter(path)(module)
        for name in methods:
            if name in vars(owner):
                _after(owner, name, session_of)


@contextmanager
def _guest(what: str) -> Iterator[None]:
    """Logs an error in the block as one warning: the driver runs as it would without sparklag."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module that is imported may call sys.exit
        if not threading.main_thread().is_alive() or type(error).__name__ == "SessionStopped":
            return  # the job was quicker
        with suppress(Exception):
            text = " ".join(str(error).split())[:500]
            if not type(error).__module__.startswith("sparklag"):
                text = f"{type(error).__name__}: {text}"
            _log.warning("sparklag: SPARKLAG_AUTO does not observe this %s: %s", what, text)


_BUILDER = ("SparkSession.Builder", ("getOrCreate", "create"), lambda session, *_: session)
_CLASSIC = ("DataStreamWriter", ("__init__",), lambda _, writer, frame: frame.sparkSession)
_CONNECT = ("DataStreamWriter", ("__init__",), lambda _, writer, plan, session: session)
_PATCHES: dict[str, tuple[str, tuple[str, ...], Callable[..., Any]]] = {
    "pyspark.sql.session": _BUILDER,
    "pyspark.sql.connect.session": _BUILDER,
    "pyspark.sql.streaming.readwriter": _CLASSIC,
    "pyspark.sql.connect.streaming.readwriter": _CONNECT,
}
"""The patched class of each module of PySpark, with its methods and functions that get the session
from their result and arguments."""
_MAX_WAIT_S = 60.0


def _after(owner: type, name: str, session_of: Callable[..., Any]) -> None:
    method = getattr(owner, name)

    @functools.wraps(method)
    def observing(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        with _guest("session"):
            session = session_of(result, *args, **kwargs)
            if session not in _observed:
                thread = threading.Thread(target=_observe, args=(session,), daemon=True)
                thread.name = "sparklag-auto"
                _observed[session] = thread
                thread.start()
            if name == "__init__":
                # A query's start is observed by a listener.
                _observed[session].join(_MAX_WAIT_S)
                if loop := sys.modules.get("sparklag_listener.background_loop"):
                    # Only the main thread can do this.
                    loop.process_exit.handle_sigterm()
        return result

    setattr(owner, name, observing)


_observed: WeakKeyDictionary[Any, threading.Thread] = WeakKeyDictionary()
"""The thread that observes, or did or failed to: `observe` is called once for each session."""


def _observe(session: Any) -> None:
    with _guest("session"):
        from sparklag_listener.observe import observe_automatically

        try:
            observe_automatically(session)
        except Exception:
            if not getattr(session, "is_stopped", False):
                raise


class _JobFolderRefused(MetaPathFinder):
    """Refuses sparklag an import of a file in the job's folder, which may be another job."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if path is not None or not threading.current_thread().name.startswith("sparklag"):
            return
        spec = PathFinder.find_spec(fullname)
        folders = _job_folders()
        for place in (spec.submodule_search_locations or [spec.origin or ""]) if spec else ():
            if os.path.dirname(place) in folders:
                raise ImportError(f"{place} hides the module {fullname} that sparklag imports")


def _job_folders() -> set[str]:
    folders = {os.getcwd()} if "" in sys.path else set()
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if main is not None:
        folders.add(os.path.dirname(os.path.abspath(main)))
    # A job may itself be installed, or be started by a module of Python: `python -m pdb`.
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return folders - {own, os.path.dirname(os.__file__), *site.getsitepackages()}


class _Finder(MetaPathFinder):
    """Finds the modules of `_PATCHES` as Python does, and patches them after they are executed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _PATCHES:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find is not None else None
            if spec is not None and spec.loader is not None:
                spec.loader = _PatchingLoader(spec.loader)
                return spec
        return None


class _PatchingLoader(Loader):
    """Wraps a loader, and patches the module that it loads."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Requests for the module's source or data go to its own loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _patch(module)
