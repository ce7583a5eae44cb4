"""A driver whose query has read everything, and that then ends in the requested way.

Arguments: the ending, the brokers to publish to, the topic to read, the topic to publish to, a
checkpoint, and the brokers to read from.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming.query import StreamingQuery

from sparklag_listener import ObserverHandle, observe
from sparklag_listener.background_loop import process_exit
from tests.listener.drivers import build_session, read_kafka, start_query, tell
from tests.waiting import wait_for

CLOSE_S = 60.0
"""The time to publish: the five seconds of a driver are too few beside busy processes."""
ENDINGS: dict[str, Callable[[Driver], None]] = {}


@dataclass
class Driver:
    spark: SparkSession
    handle: ObserverHandle
    frame: DataFrame
    checkpoint: str

    def read_all(self) -> StreamingQuery:
        query = start_query(self.frame, self.checkpoint)
        query.processAllAvailable()
        tell("read all")
        return query


def ending(function: Callable[[Driver], None]) -> Callable[[Driver], None]:
    ENDINGS[function.__name__] = function
    return function


@ending
def returns(driver: Driver) -> None:
    driver.read_all()


@ending
def forks_and_returns(driver: Driver) -> None:
    child = os.fork()
    if child == 0:
        # Ends as a Python program does, with all that is registered for that.
        sys.exit(0)
    tell(f"child returned: {_exit_code(child)}")
    child = os.fork()
    if child == 0:
        tell("child waits")
        while True:
            signal.pause()
    os.kill(child, signal.SIGTERM)
    tell(f"child was terminated: {_exit_code(child)}")
    driver.read_all()


def _exit_code(child: int) -> int:
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


@ending
def returns_where_no_thread_can_be_started_any_more(driver: Driver) -> None:
    # As Python 3.12 and later have it at exit. Last registered is first called.
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    query = driver.read_all()
    atexit.register(setattr, threading.Thread, "start", refuse)
    query.stop()


@ending
def raises(driver: Driver) -> None:
    driver.read_all()
    raise ValueError("the driver failed")


@ending
def waits_for_a_signal(driver: Driver) -> None:
    driver.read_all().awaitTermination()


@ending
def handles_sigterm_itself(driver: Driver) -> None:
    def leave(number: int, frame: FrameType | None) -> None:
        driver.handle.close(CLOSE_S)
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    driver.read_all().awaitTermination()


@ending
def stops_its_query_and_waits(driver: Driver) -> None:
    driver.read_all().stop()
    signal.pause()


@ending
def closes_its_handle_and_waits(driver: Driver) -> None:
    driver.read_all()
    driver.handle.close(CLOSE_S)
    tell("closed")
    signal.pause()


@ending
def stops_spark_and_exits_with_3(driver: Driver) -> None:
    driver.read_all()
    driver.spark.stop()
    sys.exit(3)


@ending
def stops_spark_then_closes(driver: Driver) -> None:
    driver.read_all()
    driver.spark.stop()
    driver.handle.close(CLOSE_S)
    driver.handle.close()


@ending
def stops_spark_and_begins_anew(driver: Driver) -> None:
    driver.read_all()
    driver.spark.stop()
    again = observed(build_session())
    assert again.handle is not driver.handle
    query = start_query(again.frame, f"{again.checkpoint}-second", "second")
    query.processAllAvailable()
    tell(f"second: {query.id}")


def _in_a_batch(driver: Driver) -> StreamingQuery:
    @udf("string")
    def wait(value: bytes) -> str:
        time.sleep(600)
        return ""

    query = start_query(driver.frame.select(wait("value")), driver.checkpoint)
    tracker = driver.spark.sparkContext.statusTracker()
    wait_for(
        lambda: query.status["isTriggerActive"] and bool(tracker.getActiveStageIds()),
        "a batch runs",
    )
    tell("in a batch")
    return query


@ending
def stops_spark_in_a_batch(driver: Driver) -> None:
    _in_a_batch(driver)
    driver.spark.stop()


@ending
def sleeps_in_a_batch(driver: Driver) -> None:
    _in_a_batch(driver)
    # PySpark cancels every job: it cannot while the main thread waits for the JVM.
    time.sleep(600)


@ending
def cancels_all_jobs(driver: Driver) -> None:
    query = _in_a_batch(driver)
    driver.spark.sparkContext.cancelAllJobs()
    with suppress(StreamingQueryException):
        query.awaitTermination()
    tell("failed")


@ending
def loses_its_jvm_to_sigterm(driver: Driver) -> None:
    query = driver.read_all()
    gateway: Any = driver.spark.sparkContext._gateway
    threading.Timer(1.0, os.kill, (gateway.proc.pid, signal.SIGTERM)).start()
    query.awaitTermination()


@ending
def its_spark_stops_by_itself(driver: Driver) -> None:
    driver.read_all()
    # As where the cluster ends the application: `spark.stop()` was not called.
    java: Any = driver.spark._jsparkSession
    java.sparkContext().stop()


@ending
def its_query_fails(driver: Driver) -> None:
    def fail(batch: DataFrame, batch_id: int) -> None:
        raise ValueError("the batch broke")

    query = start_query(driver.frame, driver.checkpoint, write=fail)
    with suppress(StreamingQueryException):
        query.awaitTermination()
    tell("failed")


@ending
def loses_its_jvm_and_returns(driver: Driver) -> None:
    driver.read_all()
    gateway: Any = driver.spark.sparkContext._gateway
    os.kill(gateway.proc.pid, signal.SIGKILL)
    gateway.proc.wait()
    poller = driver.handle._pipeline.poller
    wait_for(lambda: poller.is_lost, "the polls miss the JVM")


def observed(spark: SparkSession) -> Driver:
    _, publish_to, topic, offsets_topic, checkpoint, read_from = sys.argv[1:]
    handle = observe(spark, publish_to, offsets_topic=offsets_topic, topic_partitions=1)
    return Driver(spark, handle, read_kafka(spark, read_from, subscribe=topic), checkpoint)


def main() -> None:
    name, publish_to, *_, read_from = sys.argv[1:]
    if publish_to == read_from:
        process_exit._timeout_s = CLOSE_S
    ENDINGS[name](observed(build_session()))


if __name__ == "__main__":
    main()
