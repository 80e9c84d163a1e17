"""The log in memory keeps the promises of the port."""

from __future__ import annotations

import pytest

from walstore.relay.log import RelayLog
from walstore.relay.memory import MemoryLog
from walstore.testing.relay_log import RelayLogContract


class TestMemoryLog(RelayLogContract):
    @pytest.fixture
    def log(self) -> RelayLog:
        return MemoryLog()


async def test_nobody_else_can_write_to_it() -> None:
    assert [notice async for notice in MemoryLog().notices()] == []
