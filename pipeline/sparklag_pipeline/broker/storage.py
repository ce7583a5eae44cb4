"""The storage folder of a Kafka node: formatted once by Kafka's own tool, then copied."""

from __future__ import annotations

import base64
import contextlib
import re
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from sparklag_pipeline.broker.child_process import log_end
from sparklag_pipeline.broker.maven import KAFKA_VERSION, default_cache_dir
from sparklag_pipeline.errors import BrokerFailed

_META: Final = "meta.properties"
_TOOL: Final = ("kafka.tools.StorageTool", "format", "--ignore-formatted")


def new_cluster_id() -> str:
    # Kafka's own form has 22 characters. Its tools take a leading dash for an option.
    return uuid.uuid4().hex[:22]


def cluster_id_of(storage: Path) -> str | None:
    """None where it is not formatted."""
    meta = storage / _META
    if not meta.exists():
        return None
    (cluster_id,) = re.findall(r"^cluster\.id=(.*)$", meta.read_text(), re.M)
    return str(cluster_id)


def formatted_copy(storage: Path, cluster_id: str, node: Mapping[str, str]) -> bool:
    """Make `storage` from the copy that is kept for nodes like this; whether there is one.

    `node` are the properties of the node. Raises BrokerFailed.
    """
    kept = _kept(node)
    if not (kept / _META).is_file():
        return False
    # As Kafka forms the ids of folders.
    directory_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    ids = {"cluster.id": cluster_id, "node.id": node["node.id"], "directory.id": directory_id}
    meta = "".join(f"{name}={value}\n" for name, value in {**ids, "version": "1"}.items())
    try:
        # Its properties last: a folder without them is formatted again.
        shutil.copytree(kept, storage, ignore=shutil.ignore_patterns(_META), dirs_exist_ok=True)
        (storage / _META).write_text(meta)
    except OSError as error:
        raise BrokerFailed(f"cannot write the broker's storage: {error}") from error
    return True


def keep_formatted(storage: Path, node: Mapping[str, str]) -> None:
    """Keep a copy of a folder that the tool has formatted without arguments, which may hold
    passwords. Where the cache cannot be written, the tool runs each time."""
    kept = _kept(node)
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".keeping-", dir=kept.parent) as scratch:
            # Only a complete one ever has the final name; of two at once the first stays.
            shutil.copytree(storage, Path(scratch) / "storage").rename(kept)


def format_storage(
    java: Sequence[str],
    configuration: Path,
    cluster_id: str,
    arguments: Sequence[str],
    log_path: Path,
    timeout_s: float,
) -> None:
    """Run Kafka's tool with `java`, its options and class path. Raises BrokerFailed."""
    command = [*java, *_TOOL, "-t", cluster_id, "-c", str(configuration), *arguments]
    with log_path.open("ab") as log:
        try:
            subprocess.run(
                command, stdout=log, stderr=subprocess.STDOUT, timeout=timeout_s, check=True
            )
        except subprocess.SubprocessError as error:
            # Not the command itself: it may hold passwords.
            raise BrokerFailed(
                f"cannot format the broker's storage:\n{log_end(log_path)}"
            ) from error


def _kept(node: Mapping[str, str]) -> Path:
    roles = node["process.roles"].replace(",", "-")
    return default_cache_dir() / "storage" / f"kafka-{KAFKA_VERSION}-{roles}"
