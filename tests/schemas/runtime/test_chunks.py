"""What is much is done in portions, and nothing of it is lost."""

from __future__ import annotations

import pytest

from sparklag_schemas.runtime.chunks import by_count, by_size


@pytest.mark.parametrize(
    ("count", "lengths"), [(0, []), (1, [1]), (3, [3]), (4, [3, 1]), (6, [3, 3])]
)
def test_by_count_only_the_last_is_smaller(count: int, lengths: list[int]) -> None:
    portions = list(by_count(iter(range(count)), 3))
    assert [len(portion) for portion in portions] == lengths
    assert [item for portion in portions for item in portion] == list(range(count))


@pytest.mark.parametrize(
    ("items", "portions"),
    [
        ([], []),
        (["aaa"], [["aaa"]]),
        # As large as is enough goes on; the one by which it is larger is its last.
        (["aa", "b", "c", "d"], [["aa", "b", "c"], ["d"]]),
        (["aaaaaaa", "b"], [["aaaaaaa"], ["b"]]),
        (["", "", ""], [["", "", ""]]),
    ],
)
def test_by_size_each_ends_when_it_is_large_enough(
    items: list[str], portions: list[list[str]]
) -> None:
    assert list(by_size(iter(items), len, 3)) == portions
