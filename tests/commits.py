"""Events of commits, and sinks that can be told how to behave."""

from __future__ import annotations

import asyncio

from walstore.archive.manifest import Kind
from walstore.archive.sink import CommitEvent, SinkError

CREATED_MS = 1_700_000_000_123

# A test that waits for longer has failed.
WAIT_SECONDS_MAX = 20


def commit(number: int = 1, *, table: str = "notes") -> CommitEvent:
    """An event that is told from others by its number."""
    return CommitEvent(
        table,
        Kind.DIFF,
        epoch=1,
        from_position=number - 1,
        to_position=number,
        head_position=number,
        manifest_uri=f"s3://bucket/{table}/manifest.json",
        formats={"jsonl": (f"s3://bucket/{table}/epoch=1/diff-{number - 1}-{number}.jsonl",)},
        created_ms=CREATED_MS,
    )


class RecordingSink:
    """Keeps what it is told; fails, or waits, as long as it is told to."""

    def __init__(self, name: str = "recording") -> None:
        self.name = name
        self.failures: list[Exception] = []
        self.attempts: list[CommitEvent] = []
        self.events: list[CommitEvent] = []
        self.told = asyncio.Condition()
        self.open = asyncio.Event()
        self.open.set()
        self.is_closed = False

    async def publish(self, event: CommitEvent) -> None:
        self.attempts.append(event)
        async with self.told:
            self.told.notify_all()
        await self.open.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.events.append(event)
        async with self.told:
            self.told.notify_all()

    async def aclose(self) -> None:
        self.is_closed = True

    async def wait_for(self, count: int) -> None:
        """Wait until so many events have arrived."""
        async with asyncio.timeout(WAIT_SECONDS_MAX), self.told:
            await self.told.wait_for(lambda: len(self.events) >= count)

    async def wait_for_attempts(self, count: int) -> None:
        """Wait until so many attempts were made."""
        async with asyncio.timeout(WAIT_SECONDS_MAX), self.told:
            await self.told.wait_for(lambda: len(self.attempts) >= count)


class Counting:
    """Keeps what a delivery reports."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, ...]] = []

    def delivered(self, sink: str) -> None:
        self.reports.append(("delivered", sink))

    def failed(self, sink: str, reason: str) -> None:
        self.reports.append(("failed", sink, reason))

    def dropped(self, sink: str, reason: str) -> None:
        self.reports.append(("dropped", sink, reason))


def busy(sink: str = "recording", pause_ms: int | None = None) -> SinkError:
    """A failure that passes."""
    return SinkError(sink, "busy", retryable=True, pause_ms=pause_ms)
