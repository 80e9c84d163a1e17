"""A relay that is all front: it answers HTTP from what a test puts into it, and echoes frames."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve

from walstore.errors import UsageError
from walstore.relay.config import Settings
from walstore.relay.connection import connection_class, request_processor
from walstore.relay.exchange import ConnectionStatus
from walstore.relay.info import Retained
from walstore.relay.log import DocumentStatus, LogError
from walstore.relay.metrics import Gauges, Metrics

TOKEN = "a-token-of-the-operator"
EMPTY = Retained(0, 0, "nondominated_plus_recent_history", 4, None)


@dataclass
class Front:
    """What the routes ask of a relay, as plain values."""

    settings: Settings = field(default_factory=Settings)
    metrics: Metrics = field(default_factory=Metrics)
    is_draining: bool = False
    started_ms: int = 1_700_000_000_000
    is_log_lost: bool = False
    kept: list[DocumentStatus] = field(default_factory=list)
    peers: list[ConnectionStatus] = field(default_factory=list)
    policy: dict[str, Any] = field(
        default_factory=lambda: {"mode": "nondominated_plus_recent_history", "recent_count": 4}
    )
    compactions: list[bool] = field(default_factory=list)
    reported: list[object] = field(default_factory=list)
    numbers: Retained = EMPTY

    async def check_log(self) -> None:
        if self.is_log_lost:
            raise LogError("/var/secret/place: the disk is gone")

    async def retained(self) -> Retained:
        await self.check_log()
        return self.numbers

    async def gauges(self) -> Gauges:
        await self.check_log()
        return Gauges(len(self.peers), 0, self.numbers.head_seq, len(self.kept))

    async def documents(self, *, count_max: int) -> list[DocumentStatus]:
        return self.kept[:count_max]

    def connections(self) -> list[ConnectionStatus]:
        return self.peers

    async def retention(self) -> Mapping[str, Any]:
        return self.policy

    async def change_retention(self, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        if unknown := changes.keys() - self.policy.keys():
            raise UsageError(f"retention: {min(unknown)} is unknown")
        self.policy.update(changes)
        return {"retention": self.policy, "removed": {"elements": 0}}

    async def compact(self, *, is_dry_run: bool) -> Mapping[str, Any]:
        self.compactions.append(is_dry_run)
        return {"dry_run": is_dry_run}

    async def archives(self) -> list[Mapping[str, Any]]:
        return []

    async def report_archive(self, found: object) -> Mapping[str, Any]:
        self.reported.append(found)
        return {}

    async def forget_archive(self, name: str) -> None:
        self.reported.append(name)


@asynccontextmanager
async def serving(front: Front) -> AsyncIterator[Server]:
    """Serve it on a free port of this machine."""

    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    async with serve(
        echo,
        "127.0.0.1",
        0,
        process_request=request_processor(front),
        create_connection=connection_class(front),
        open_timeout=None,
        server_header=None,
        close_timeout=1,
    ) as server:
        yield server


def port_of(server: Server) -> int:
    """Where it listens."""
    return int(next(iter(server.sockets)).getsockname()[1])
