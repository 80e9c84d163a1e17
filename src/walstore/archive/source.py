"""What an archive needs of the place that it reads: a relay's events in order, and a little more.

- Positions are relay seqs. They are of one database: another one is an `OtherRelayError`, and one
  that ends before a position that was read in it is a `LogBehindError`.
- A relay lets go of old positions. Above one that is too old (`ReplayTooOldError`) the archive goes
  on from the current snapshots and from the first position that is left.
- A page says how far it covers the feed, events of other prefixes included.
- What is read is not believed: signatures and links are checked by whoever folds or verifies.

`walstore.archive.feed_source` reads a relay over the network, `walstore.relay.reading` its
database.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Literal, Protocol

from walstore.document.ports import RawElement
from walstore.errors import TransportError

Kind = Literal["element", "snapshot"]

# Documents whose snapshots can be asked for at once.
DOCUMENTS_MAX = 500


class FalseBeginningError(TransportError):
    """A source is said to begin after its end: no log does.

    Attributes:
        min_seq: Where it is said to begin.
        head_seq: Where it is said to end.
    """

    def __init__(self, *, min_seq: int, head_seq: int) -> None:
        super().__init__(
            f"the source says that it begins at {min_seq}, and ends at {head_seq}", retryable=False
        )
        self.min_seq = min_seq
        self.head_seq = head_seq


def check_beginning(*, min_seq: int, head_seq: int) -> None:
    """Check where a source is said to begin; one that has let go of all does so above its end.

    Raises:
        FalseBeginningError: It cannot begin there.
    """
    if min_seq > head_seq + 1:
        raise FalseBeginningError(min_seq=min_seq, head_seq=head_seq)


class Event(Protocol):
    """An element or a snapshot that a relay has accepted."""

    @property
    def seq(self) -> int:
        """Its place in the relay's order."""
        ...

    @property
    def id(self) -> str:
        """The link of the element, or the revision of the snapshot."""
        ...

    @property
    def kind(self) -> Kind:
        """Which of the two it is."""
        ...

    @property
    def document(self) -> str:
        """The key of the document."""
        ...

    @property
    def author(self) -> str:
        """Who signed it, as the relay says."""
        ...

    @property
    def ts(self) -> int:
        """The element's `ts`, or the last one that the snapshot covers."""
        ...

    @property
    def accepted_ms(self) -> int:
        """When it was accepted."""
        ...

    @property
    def signature(self) -> str:
        """The element's signature; empty for a snapshot, which carries its own."""
        ...

    @property
    def vc(self) -> Mapping[str, int]:
        """What the snapshot covers, by writer; empty for an element."""
        ...

    @property
    def is_deletion(self) -> bool:
        """Whether it is a snapshot that says that the document is deleted."""
        ...

    @property
    def payload(self) -> bytes | None:
        """The element's data, or the snapshot's text; None if the relay has let it go."""
        ...


class Page(Protocol):
    """Events in the relay's order."""

    @property
    def events(self) -> Sequence[Event]:
        """Those whose documents have the prefix."""
        ...

    @property
    def last_seq(self) -> int:
        """Up to where the page covers the feed."""
        ...

    @property
    def is_more(self) -> bool:
        """Whether there are more above."""
        ...


class Status(Protocol):
    """What a source holds now."""

    @property
    def relay_id(self) -> str:
        """Names the database, for ever."""
        ...

    @property
    def min_seq(self) -> int:
        """The lowest seq that can still be read; 0 if nothing was ever accepted."""
        ...

    @property
    def head_seq(self) -> int:
        """The newest seq."""
        ...


class Source(Protocol):
    """The events of one relay, of the documents with one prefix."""

    @property
    def prefix(self) -> str:
        """What the document keys begin with."""
        ...

    async def status(self) -> Status:
        """What there is now.

        Raises:
            OtherRelayError: It is another database than the expected one.
            TransportError: It cannot be read now; also a `StorageError`, of a database.
        """
        ...

    async def page(self, since: int) -> Page:
        """Events above a position: as many as fit a few MiB, at least one if there is any.

        Raises:
            ReplayTooOldError: They can no longer be read from there.
            LogBehindError: The position was never reached: the relay was rolled back.
            OtherRelayError: It is another database than the expected one.
            TransportError: They cannot be read now; also a `StorageError`, of a database.
        """
        ...

    async def wait(self, since: int) -> None:
        """Return when there is an event above a position; raises as `page` does."""
        ...

    async def bootstrap(self) -> tuple[int, AsyncIterator[Event]]:
        """The current snapshots, and the position that they are current at."""
        ...

    def documents(self) -> AsyncIterator[str]:
        """The keys of the documents, as far as they can be told without reading the events."""
        ...

    def snapshots(self, documents: Collection[str], upto: int) -> AsyncIterator[Event]:
        """The snapshots of some documents that were stored up to a position, in order.

        Those that the relay has let go of come without their text, or not at all.

        Args:
            documents: At most `DOCUMENTS_MAX`.
            upto: The position.
        """
        ...

    async def snapshot(self, document: str) -> bytes | None:
        """The text of a document's current snapshot; None if there is none."""
        ...

    def elements(self, document: str, after: int) -> AsyncIterator[RawElement]:
        """The elements of a document above a `ts`, in order.

        Raises:
            CheckpointTooOldError: Some of them are gone.
            TransportError: They cannot be read now; also a `StorageError`, of a database.
        """
        ...

    async def record(self, document: str, name: str) -> str | None:
        """The text of a record of a document; None if there is none."""
        ...
