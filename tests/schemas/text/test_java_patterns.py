"""Java's patterns as Python's, compared with Java itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from py4j import java_gateway, protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from sparklag_jobs.broker.maven import find_java
from sparklag_schemas.text.java_patterns import python_pattern

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
TOPICS = re.findall(
    r"\S+", "orders Orders-eu ORDERS.us_1 new-orders a b ab abc x9 A1.b-2_c returns.dlq aaa aB"
)
PARTS = re.findall(
    r"\S+",
    r"""
o r orders - _ \. . ^ $ \b \A \z \Z | ( ) (?: (?= (?! (?> (?i) (?-i) (?i: (?s) (?<n> \k<n>
* + ? *? ++ ?+ {2} {1,3}+ \d \W \w \S \p{Alpha} \p{IsLowercase} \P{Punct} \pL \p{Lu} \Q.\E \Q-eu
\x2D \x{5f} \0141 \u0062 [ab] [^a-c] [a-z&&[^bc]] [ab[x-z]_] [a-z&&aeo&&[^e]] []a] [^\p{Upper}.]
[\w&&[^\d]] [\Q.-\E] [^a-z&&b] [a-c[^A-Z&&B]] [\]\[-]
""",
)


@pytest.fixture(scope="module")
def java() -> Iterator[Callable[[str], list[str] | None]]:
    """The topics in which Java finds a pattern; None: it is no pattern."""
    jar = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
    port = launch_gateway(java_path=str(find_java()), jarpath=str(jar), die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))

    def found(pattern: str) -> list[str] | None:
        try:
            compiled = gateway.jvm.java.util.regex.Pattern.compile(pattern)
        except Py4JJavaError:
            return None
        return [topic for topic in TOPICS if compiled.matcher(topic).find()]

    with pytest.MonkeyPatch.context() as patch:
        # pyspark's asks the JVM of its session, if there is one, about every exception.
        patch.setattr(java_gateway, "get_return_value", protocol.get_return_value)
        yield found
    gateway.shutdown()


def ours(pattern: str) -> list[str]:
    compiled = re.compile(python_pattern(pattern))
    return [topic for topic in TOPICS if compiled.search(topic)]


@pytest.mark.parametrize("pattern", [part for part in PARTS if "[" in part or "p" in part])
def test_each_set_has_the_characters_that_java_finds(
    java: Callable[[str], list[str] | None], pattern: str
) -> None:
    for whole in (pattern, f"(?i){pattern}", rf"\A(?:{pattern}+)\z", f"o{pattern}|x"):
        assert ours(whole) == java(whole), whole


@settings(suppress_health_check=[HealthCheck.filter_too_much], max_examples=300)
@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=7).map("".join))
def test_any_pattern_is_found_where_java_finds_it_or_is_refused(
    java: Callable[[str], list[str] | None], pattern: str
) -> None:
    expected = java(pattern)
    assume(expected is not None)
    try:
        result = ours(pattern)
    except (ValueError, re.error):
        assume(False)
    assert result == expected, python_pattern(pattern)
