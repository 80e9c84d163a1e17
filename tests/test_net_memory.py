"""The logs and snapshots in memory keep the promises of the ports."""

from __future__ import annotations

import pytest

from walstore.net import MemorySnapshots, MemoryTransport
from walstore.signed import Identity
from walstore.testing.transport import Place, TransportContract


class TestMemoryTransport(TransportContract):
    @pytest.fixture
    def place(self) -> Place:
        return Place(MemoryTransport(), MemorySnapshots(), Identity.from_seed(b"\x01" * 32))


class TestMemoryTransportWithSmallPages(TransportContract):
    @pytest.fixture
    def place(self) -> Place:
        return Place(MemoryTransport(page_size=3), None, Identity.from_seed(b"\x01" * 32))
