"""An offset store for tests that need one, whichever."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sparklag_offsets.store import open_store
from sparklag_offsets.store.batch_record import OffsetStore


@pytest.fixture
async def opened() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened


def open_until_end(url: str, opened: AsyncExitStack, *, create: bool = False) -> OffsetStore:
    store = open_store(url, create=create)
    opened.push_async_callback(store.aclose)
    return store


@pytest.fixture
async def sqlite_store(tmp_path: Path, opened: AsyncExitStack) -> OffsetStore:
    store = open_until_end(f"sqlite:///{tmp_path}/offsets.db", opened, create=True)
    await store.prepare()
    return store
