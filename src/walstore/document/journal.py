"""What a document needs to survive its process: a place for edits that are not in the log yet.

- `record` is called for every edit, before the edit's call returns: what it has written survives.
- A body takes the place of the edits that it was made of in one step, so that a process that dies
  in between leaves either the edits or the body, never both and never neither.
- What an earlier process has left is sent as its session would have sent it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from walstore.crdt import Run
from walstore.document.log import DocumentLog
from walstore.document.ports import Body
from walstore.document.sealing import Sealed, Sealer
from walstore.errors import UsageError
from walstore.sealed.outcomes import SealRejectedError, UnreadableError
from walstore.wire.element import Element
from walstore.wire.envelope import Header, read_header


class TooLargeToRecordError(UsageError):
    """An edit is too large to be kept as it is; sealed, it is cut to elements that can be kept."""

    def __init__(self) -> None:
        super().__init__("an edit is too large to be recorded")


class LeftBody(NamedTuple):
    """A body that an earlier process has sealed.

    Attributes:
        canonical: The text that was signed.
        author: The author key.
        signature: The author's signature.
        link: The link of the element that it becomes.
        epoch: The key epoch that it is sealed in, as text.
        is_acknowledged: Whether a relay has acknowledged it.
    """

    canonical: bytes
    author: str
    signature: str
    link: str
    epoch: str
    is_acknowledged: bool


class LeftEdits(NamedTuple):
    """Edits that an earlier process has recorded and not sealed.

    Attributes:
        session: Its session.
        seq: The seq that the session's next body gets.
        prev: The link of the session's newest body, if it has sealed any.
        runs: The edits.
    """

    session: str
    seq: int
    prev: str | None
    runs: list[Run]


class RefusedBodies(NamedTuple):
    """Bodies that the log does not take, and why.

    Attributes:
        bodies: The bodies, in order.
        reason: Why, in words.
        is_of_author: Whether nothing of this author's is taken, whatever it is.
    """

    bodies: Sequence[Sealed]
    reason: str
    is_of_author: bool


class Leftover(NamedTuple):
    """What earlier processes have left, in order.

    Attributes:
        bodies: The author's bodies.
        edits: The edits that are in no body yet.
        stranded: Others' bodies, which a log has lost and only they can send again.
        fold: The signed fold that stands for such elements, as it was kept; None if there is none.
    """

    bodies: Sequence[LeftBody]
    edits: Sequence[LeftEdits]
    stranded: Sequence[LeftBody] = ()
    fold: object = None


class Journal(Protocol):
    """Keeps what is on its way into the log. Every call that returns has kept it."""

    def record(self, runs: Sequence[Run]) -> None:
        """Keep an edit of this session that was just made.

        Raises:
            TooLargeToRecordError: It has to be sealed at once instead.
        """
        ...

    def seal(self, session: str, bodies: Sequence[Sealed]) -> None:
        """Keep bodies in place of everything that a session has recorded."""
        ...

    def renew(self, bodies: Sequence[Sealed]) -> None:
        """Keep bodies in place of those with the same session and seq."""
        ...

    def replace(self, gone: Sequence[str], bodies: Sequence[Sealed]) -> None:
        """Keep bodies in place of those with some links, in one step."""
        ...

    def set_aside(
        self, refused: RefusedBodies, gone: Sequence[str], bodies: Sequence[Sealed], session: str
    ) -> None:
        """Keep bodies in place of those with some links, and apart from these what was refused.

        All of it is one step. From now on it is another session that records.
        """
        ...

    def acknowledge(self, link: str, ts: int | None) -> None:
        """Note that a relay has acknowledged a body; None: that it has to be sent again."""
        ...

    def confirm(self, links: Iterable[str]) -> None:
        """Let go of bodies that were read in the log, once that is kept."""
        ...

    def drop_stranded(self) -> None:
        """Let go of the fold of what a log had lost: all of it is back."""
        ...

    def leftover(self) -> Leftover:
        """What earlier processes have left."""
        ...


def revive_bodies(left: Iterable[LeftBody], log: DocumentLog, sealer: Sealer) -> list[Sealed]:
    """The bodies of earlier processes, opened, as if this one had sealed them."""
    return [_revive(each, log, sealer) for each in left]


def seal_edits(
    edits: LeftEdits, sealer: Sealer, *, author_seq: int, newest: str | None
) -> list[Sealed]:
    """Seal what an earlier process has recorded, as its session would have.

    Args:
        edits: The edits.
        sealer: Seals for the author.
        author_seq: The author's next seq, for version 1.
        newest: The link to the author's newest element, for a session that has sealed nothing.
    """
    return sealer.seal(
        edits.runs,
        seq=edits.seq,
        author_seq=author_seq,
        prev=edits.prev if edits.prev is not None else newest,
        seen={},
        session=edits.session,
    )


def _revive(left: LeftBody, log: DocumentLog, sealer: Sealer) -> Sealed:
    element = Element(0, left.canonical, left.author, left.signature)
    header: Header | None = read_header(element.data)
    try:
        envelope = log.open_envelope(element, header)
        runs, author_seq, message = envelope.runs, envelope.author_seq, envelope.message
    except (UnreadableError, SealRejectedError):
        # Its key is not at hand: it can be sent all the same, and shows once the key is.
        runs, author_seq, message = [], None, None
    body = Body(left.canonical, left.author, left.signature)
    epoch = sealer.epoch if str(sealer.epoch) == left.epoch else left.epoch
    return Sealed(body, left.link, header, author_seq, runs, epoch, message)
