"""What works on which Spark and Kafka: a table of the results of `make lanes`.

python -m scripts.lanes_page RESULTS

Prints it, and writes docs/reference/lanes.md if every feature was tested in every lane that has it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from scripts.markdown_tables import row
from sparklag_jobs.broker.maven import KAFKA_VERSION
from tests.lanes.lanes import LANES
from tests.zookeeper_kafka import OLDEST_VERSION

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "lanes.md"
_HEAD: Final = """\
<!-- Written by `make lanes`: the results of its tests. -->
# What works where
`make lanes` runs real queries on a real broker with each version. `yes`: all tests of the feature
passed. `no`: one failed. `-`: PySpark of this version does not have the feature.
"""
_NOTES: Final = {
    "Spark": """\
Each version has its own Kafka connector, except 4.3.0: that lane uses the connector of 4.2.0. The
broker is the newest Kafka below. A Connect client of Spark 3.5 is polled; later ones have a
listener.""",
    "Kafka": "The oldest version that is supported, with ZooKeeper, and the newest, on Spark 4.2.",
}

KAFKA: Final = (OLDEST_VERSION, KAFKA_VERSION)
COLUMNS: Final = {"Spark": tuple(map(str, LANES)), "Kafka": KAFKA}
FEATURES: Final = {
    "Spark": {
        "listener": "",
        "`SPARKLAG_AUTO`": "",
        "poll": "",
        "options of a query": "",
        "offsets of a batch in `foreachBatch`": "",
        "checkpoint": "",
        "checkpoint, offset log v2": "4.2",
        "restore by `starting_offsets`": "",
        "continuous processing": "",
        "real-time mode": "4.2",
        "Spark Connect": "",
        "Declarative Pipelines": "4.1",
    },
    "Kafka": {"lag of a query": "", "lag of a consumer group": ""},
}
"""The rows, with the first version of PySpark that has the feature."""

Results = Mapping[tuple[str, str, str], bool]
"""By `Spark` or `Kafka`, feature and version: whether all tests passed."""


def versions_with(of: str, feature: str) -> list[str]:
    """The columns that have the feature."""
    since = FEATURES[of][feature]
    return [column for column in COLUMNS[of] if column >= since]


def results_in(report: Path) -> Results:
    """`report`: a JUnit file of pytest."""
    results: dict[tuple[str, str, str], bool] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        passed = all(case.find(kind) is None for kind in ("failure", "error", "skipped"))
        version = case.attrib["name"].partition("[")[2].rstrip("]")
        for part in case.iter("property"):
            key = (part.attrib["name"], part.attrib["value"], version)
            results[key] = results.get(key, True) and passed
    return results


def table(of: str, results: Results) -> Iterator[str]:
    yield row("", *COLUMNS[of])
    yield row("---", *("---" for _ in COLUMNS[of]))
    cells = {True: "yes", False: "no", None: "-"}
    for name in FEATURES[of]:
        yield row(name, *(cells[results.get((of, name, each))] for each in COLUMNS[of]))


def main() -> None:
    results = results_in(Path(sys.argv[1]))
    lines = [_HEAD]
    for of, note in _NOTES.items():
        lines += [f"## {of}", *table(of, results), "", note, ""]
    text = "\n".join(lines)
    sys.stdout.write(text)
    cells = [
        (of, each, v)
        for of, named in FEATURES.items()
        for each in named
        for v in versions_with(of, each)
    ]
    if all(cell in results for cell in cells):
        PAGE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(f"not all was tested: {PAGE.name} remains as it is\n")


if __name__ == "__main__":
    main()
