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
from walstore.spark.running import complete
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
            place = self.identity
            identity = Identity.generate() if place is None else Signer.at(place).load()
            async with WebSocketTransport(self.relay, identity=identity) as transport:
                yield FeedSource(transport, self.prefix)
        else:
            destination = open_destination(self.archive or "")
            yield ArchiveSource(Archive(destination, self.key_prefix), self.prefix)

    def status(self) -> tuple[str, int, int]:
        """The relay, the lowest seq that can be read, and the newest one."""

        async def ask() -> tuple[str, int, int]:
            async with self.opened() as source:
                status = await source.status()
                return status.relay_id, status.min_seq, status.head_seq

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
                    page = runner.run(source.page(since))
                    yield [event for event in page.events if event.seq <= until]
                    if page.last_seq <= since:
                        return
                    since = page.last_seq
            finally:
                runner.run(opening.__aexit__(None, None, None))
