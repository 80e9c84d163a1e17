"""Where events are, as something that can be sent to where they are read.

- It names things; it opens them where it is used. No key is in it, only where one is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from walstore.archive.destinations import open_destination
from walstore.archive.feed_source import FeedSource
from walstore.archive.reader import Archive
from walstore.archive.source import Event, Source
from walstore.errors import UsageError
from walstore.net.websocket import WebSocketTransport
from walstore.relay.reading import opened_source
from walstore.signed.identity import Identity
from walstore.spark.archive_source import ArchiveSource
from walstore.spark.running import complete, turn
from walstore.spark.signer import Signer

_PLACES = ("database", "relay", "archive")


@dataclass(frozen=True)
class Address:
    """A relay's database, a relay, or a sealed archive.

    Attributes:
        database: The path of a SQLite file, or `postgresql://…`.
        relay: The URL of a relay.
        archive: Where an archive is, and `key_prefix` what its keys begin with.
        prefix: What the document keys begin with.
        identity: The file with the identity that a relay wants to see; `env:NAME` is a variable.
    """

    database: str | None = None
    relay: str | None = None
    archive: str | None = None
    key_prefix: str = ""
    prefix: str = ""
    identity: str | None = None

    def __post_init__(self) -> None:
        if [self.database, self.relay, self.archive].count(None) != 2:
            raise UsageError(f"say where events are: one of {', '.join(_PLACES)}")

    @classmethod
    def read(cls, options: Mapping[str, str]) -> Address:
        """The address that the options of a data source name.

        Raises:
            UsageError: They name none, or several.
        """
        given = {name: options[name] for name in (*_PLACES, "identity") if name in options}
        return cls(
            **given,
            prefix=options.get("prefix", ""),
            key_prefix=options.get("key_prefix", options.get("keyprefix", "")),
        )

    def options(self) -> dict[str, str]:
        """The options of a data source that name it."""
        given = {
            "database": self.database,
            "relay": self.relay,
            "archive": self.archive,
            "key_prefix": self.key_prefix,
            "prefix": self.prefix,
            "identity": self.identity,
        }
        return {name: value for name, value in given.items() if value}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Source]:
        """The source, as long as the block lasts."""
        if self.database is not None:
            async with opened_source(self.database, self.prefix) as source:
                yield source
        elif self.relay is not None:
            async with self._connected() as transport:
                yield FeedSource(transport, self.prefix)
        else:
            destination = open_destination(self.archive or "")
            yield ArchiveSource(Archive(destination, self.key_prefix), self.prefix)

    def _connected(self) -> WebSocketTransport:
        place = self.identity
        identity = Identity.generate() if place is None else Signer.at(place).load()
        return WebSocketTransport(self.relay or "", identity=identity)

    def status(self) -> tuple[str, int, int]:
        """The relay, the lowest seq that can be read, and the newest one."""

        async def ask() -> tuple[str, int, int]:
            async with self.opened() as source:
                status = await source.status()
                return status.relay_id, status.min_seq, status.head_seq

        return complete(ask())

    def reach(self, since: int, head: int) -> int:
        """Up to where the plain engine would read it, from one position to the newest.

        A database says how far it was read. A feed shows events and nothing else: there it is the
        newest event of these documents, or `since` if there is none.
        """
        if self.relay is None or since >= head:
            return head

        async def ask() -> int:
            async with self._connected() as transport:
                source = FeedSource(transport, self.prefix, page_events_max=1)
                return await newest_seq(source, since, head)

        return complete(ask())

    def pages(self, since: int, until: int) -> Iterator[list[Event]]:
        """The events in `(since, until]`, page after page.

        Raises:
            ReplayTooOldError: They can no longer be read from there.
        """
        with asyncio.Runner() as runner:
            opening = self.opened()
            source = runner.run(opening.__aenter__())
            try:
                while since < until:
                    page = turn(runner, source.page(since))
                    yield [event for event in page.events if event.seq <= until]
                    if page.last_seq <= since:
                        return
                    since = page.last_seq
            finally:
                runner.run(opening.__aexit__(None, None, None))


async def newest_seq(source: Source, since: int, head: int) -> int:
    """The newest event in `(since, head]`, or `since`: found by halves, a page for each."""
    newest, middle = head, head - 1
    while since < newest:
        first = next(iter((await source.page(middle)).events), None)
        if first is None or first.seq > head:
            newest = middle
        else:
            since = first.seq
        middle = (since + newest) // 2
    return since
