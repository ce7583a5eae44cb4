"""`sparklag checkpoint` as a person and a program meet it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.commands import succeed
from tests.local_kafka import LocalKafka
from tests.offsets.checkpoints.folders import SAMPLES, Checkpoint
from tests.second_client import SecondClient
from tests.service.cli.test_cli import environment, refused, sparklag

pytestmark = pytest.mark.kafka  # processes of their own, which take seconds


def test_the_json_of_a_checkpoint_has_fixed_keys() -> None:
    done = sparklag("checkpoint", str(SAMPLES / "single_kafka_uncommitted_last"), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "query_id": "6e4ec6c7-79ba-4dd7-a30c-fb841113092e",
        "batch_id": 1,
        "planned_batch_id": 2,
        "id_problem": None,
        "sources": [
            {
                "source": 0,
                "processed": {"s1": {"0": 8, "1": 8}},
                "planned": {"s1": {"0": 10, "1": 10}},
            }
        ],
    }


def test_a_source_that_is_not_kafka_and_a_query_without_a_batch_are_null(tmp_path: Path) -> None:
    done = sparklag("checkpoint", f"file:{SAMPLES / 'rate_plus_kafka'}/", "--json")
    assert json.loads(done.stdout)["sources"] == [
        {"source": 0, "processed": None, "planned": None},
        {"source": 1, "processed": {"ur": {"0": 5, "1": 5}}, "planned": None},
    ]
    young = Checkpoint(tmp_path / "young")
    done = sparklag("checkpoint", str(young.folder), "--json")
    assert json.loads(done.stdout) == {
        "query_id": young.query_id,
        "batch_id": None,
        "planned_batch_id": None,
        "id_problem": None,
        "sources": [],
    }


def test_a_person_sees_batches_with_their_times_and_a_table() -> None:
    done = sparklag("checkpoint", str(SAMPLES / "batch_fails"), COLUMNS="80")
    assert done.returncode == 0, done.stderr
    query, committed, planned, heading, *rows = done.stdout.splitlines()
    assert query == "query 51dd935f-7a7d-41e9-a42c-7fbef6e03092"
    assert committed.startswith("batch 0 committed 20")
    assert planned.startswith("batch 1 planned 20")
    assert planned.endswith("and not committed")
    assert heading.split() == ["source", "topic", "partition", "processed", "planned"]
    assert [row.split() for row in rows] == [["0", "fl", "0", "5", "7"], ["0", "fl", "1", "5", "7"]]
    done = sparklag("checkpoint", str(SAMPLES / "rate_plus_kafka"))
    assert "0  not a Kafka source" in done.stdout


def test_what_the_encoding_of_the_output_lacks_is_replaced(tmp_path: Path) -> None:
    Checkpoint(tmp_path / "cp").run(0, {"≥": {0: 1}})
    command = (sys.executable, "-m", "sparklag_service", "checkpoint", tmp_path / "cp")
    output = succeed(*command, env=environment(None) | {"PYTHONIOENCODING": "cp1252"})
    assert "0  ?" in output


def test_with_a_broker_the_lag_is_shown_and_what_is_not_known_is_null(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str, tmp_path: Path
) -> None:
    second_client.create(topic_name, 2)
    second_client.produce(topic_name, [b"x"] * 20, partition=0)
    second_client.produce(topic_name, [b"x"] * 3, partition=1)
    gone = f"{topic_name}-gone"
    checkpoint = Checkpoint(tmp_path / "cp")
    checkpoint.run(0, {topic_name: {0: 13, 1: 7, 5: 1}, gone: {0: 4}}, 7)
    checkpoint.plan(1, {topic_name: {0: 18, 1: 7, 5: 1}, gone: {0: 4}}, 8)
    arguments = ("checkpoint", str(checkpoint.folder), "--bootstrap-servers")
    done = sparklag(*arguments, kafka.bootstrap_servers, "--json")
    assert done.returncode == 0, done.stderr
    (source, other) = json.loads(done.stdout)["sources"]
    assert source["latest"] == {topic_name: {"0": 20, "1": 3, "5": None}, gone: {"0": None}}
    assert source["lag"] == {topic_name: {"0": 7, "1": None, "5": None}, gone: {"0": None}}
    assert source["reasons"] == {
        topic_name: {
            "1": "its log ends before the processed offset: the topic was recreated",
            "5": "the topic has no such partition",
        },
        gone: {"0": "there is no such topic, or no right to see it"},
    }
    assert (other["processed"], other["latest"], other["lag"]) == (None, None, None)
    # Asking did not create what is missing.
    assert gone not in second_client.topics()
    shown = sparklag(*arguments, kafka.bootstrap_servers, COLUMNS="200").stdout
    rows = [line.split() for line in shown.splitlines() if topic_name in line.split()]
    assert rows[0] == ["0", topic_name, "0", "13", "18", "20", "7"]
    assert rows[1][:7] == ["0", topic_name, "1", "7", "7", "3", "unknown"]


def test_storage_options_and_the_cluster_s_security_come_from_the_settings(
    kafka: LocalKafka, topic: str, tmp_path: Path
) -> None:
    checkpoint = Checkpoint(tmp_path / "cp")
    checkpoint.run(0, {topic: {0: 0}})
    config = tmp_path / "own.toml"
    config.write_text(
        f"""
        [kafka]
        security_protocol = "SASL_SSL"
        sasl_username = "me"
        sasl_password = "topsecret"
        [clusters.plain]
        bootstrap_servers = "{kafka.bootstrap_servers}"
        [checkpoints.storage.s3]
        endpoint_url = "http://127.0.0.1:1"
        key = "me"
        secret = "topsecret"
        """
    )
    named = ("--config", str(config), "--bootstrap-servers", kafka.bootstrap_servers, "--json")
    done = sparklag("checkpoint", str(checkpoint.folder), *named)
    assert json.loads(done.stdout)["sources"][0]["lag"] == {topic: {"0": 0}}
    line = refused(sparklag("checkpoint", "s3a://lake/cp", "--config", str(config)))
    assert line.startswith("sparklag: s3://lake/cp: the store cannot be reached")
    assert "127.0.0.1:1" in line
    assert "topsecret" not in line


def test_what_cannot_be_read_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    broken = Checkpoint(tmp_path / "broken")
    broken.run(0, {"t": {0: 5}})
    (broken.folder / "offsets/0").write_bytes(b"v1\n{}\n{")
    future = Checkpoint(tmp_path / "future")
    future.write("offsets/0", b"v9\n{}\n0")
    for path, message in {
        "no": "there is no checkpoint here",
        "empty": "there is no checkpoint here",
        "other": "there is no checkpoint here",
        "broken": "/offsets/0: the line of source 0 is cut off",
        "future": "/offsets/0 has format v9",
        "x*": "no checkpoint matches",
        "*": "2 checkpoints match, name one: ",
    }.items():
        line = refused(sparklag("checkpoint", str(tmp_path / path)))
        assert line.startswith("sparklag: ")
        assert message in line
    line = refused(
        sparklag("checkpoint", str(SAMPLES / "limited"), "--bootstrap-servers", "127.0.0.1:1")
    )
    assert "connection refused" in line
