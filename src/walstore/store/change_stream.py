"""Changes for `async for`: one reader, at its own pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

from walstore.store.change import Change
from walstore.store.references import weakly
from walstore.store.subscription import Host
from walstore.store.waiting import SlowConsumerError, Waiting


class ChangeStream(AsyncIterator[Change]):
    """The changes from its making on, for one reader at its own pace.

    It ends with the hub, after what was waiting; when it is closed; or with nobody left who
    could read it.
    """

    def __init__(self, feed: Feed) -> None:
        """Made by `Hub.changes`."""
        self._feed = feed
        feed.follow(self)

    async def __anext__(self) -> Change:
        """The next change.

        Raises:
            SlowConsumerError: Too much has happened since the last one; there will be no more.
        """
        return await self._feed.next()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End at once, for whoever waits as well."""
        self._feed.close()


class Feed:
    """What waits for an iterator, which does not know whether anybody still reads it."""

    def __init__(self, host: Host, waiting: Waiting[Change]) -> None:
        self.since = host.count
        self._host = host
        self._waiting = waiting
        self._error: SlowConsumerError | None = None
        self._is_closed = False
        self._news = asyncio.Event()
        self._reader: Callable[[], object] | None = None

    def follow(self, reader: ChangeStream) -> None:
        self._reader = weakly(reader, self._expire)

    def take(self, change: Change) -> None:
        if self._is_closed:
            return
        try:
            self._waiting.push(change)
        except SlowConsumerError as error:
            self._error = error
            self.close()
        self._news.set()

    async def next(self) -> Change:
        while not self._waiting:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._is_closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._waiting.pop()

    def close(self) -> None:
        self._waiting.clear()
        self.end()

    def end(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._host.drop(self)
        self._news.set()

    def _expire(self) -> None:
        self._is_closed = True
        self._host.drop_later(self)
