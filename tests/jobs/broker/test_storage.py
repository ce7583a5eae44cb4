"""A storage folder that is made from a kept one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklag_jobs.broker.local_kafka import cluster_id_of, formatted_copy, keep_formatted
from sparklag_jobs.errors import BrokerFailed

NODE = {"process.roles": "broker,controller", "node.id": "1"}


def test_a_partial_copy_is_not_formatted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    formatted, storage = tmp_path / "formatted", tmp_path / "storage"
    (formatted / "topic").mkdir(parents=True)
    assert not formatted_copy(storage, "mine", NODE)
    keep_formatted(formatted, NODE)
    assert not formatted_copy(storage, "mine", {**NODE, "process.roles": "controller"})
    assert not formatted_copy(storage, "mine", NODE), "what is kept was not formatted to its end"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    (formatted / "meta.properties").write_text("cluster.id=theirs\n")
    keep_formatted(formatted, NODE)
    storage.mkdir()
    (storage / "topic").write_text("in the way")
    with pytest.raises(BrokerFailed, match="cannot write the broker's storage"):
        formatted_copy(storage, "mine", NODE)
    assert cluster_id_of(storage) is None
    (storage / "topic").unlink()
    assert formatted_copy(storage, "mine", NODE)
    assert cluster_id_of(storage) == "mine"
