"""Keeps a document's unsent edits in its local file.

- An edit is on file when the call that made it returns; what the document seals, the file has
  sealed as well. Plain text of a sealed document is never written.
- What cannot be opened, because its key is not at hand, stays in the file for a later session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson

from walstore.canon import canonical_bytes, parse
from walstore.crdt import Run, pack_ops, unpack_ops
from walstore.document.journal import (
    LeftBody,
    LeftEdits,
    Leftover,
    RefusedBodies,
    TooLargeToRecordError,
)
from walstore.document.sealing import Sealed
from walstore.errors import MalformedError
from walstore.local import LocalFile, NotStorableError
from walstore.local.rows import Recorded
from walstore.sealed.encryptor import Encryptor, SealContext
from walstore.sealed.outcomes import SealRejectedError, UnreadableError
from walstore.store.shelf import Shelf, kept_body

# Where a seal belongs that is kept and never sent.
_PLACE = "__journal"


class FileJournal:
    """The journal of one session, in a local file."""

    def __init__(
        self,
        file: LocalFile,
        *,
        document_key: str,
        author: str,
        session: str,
        encryptor: Encryptor,
        shelf: Shelf,
        confirm: Callable[[Iterable[str]], None],
    ) -> None:
        """Keep what a session of an author edits, and what is refused on a shelf.

        What was read in the log is let go of by `confirm`, which knows whether it is kept.
        """
        self._file = file
        self._confirm = confirm
        self._context = SealContext(document_key + _PLACE, author, 0)
        self._session = session
        self._encryptor = encryptor
        self._shelf = shelf
        # The newest edit on file, by session.
        self._numbers: dict[str, int] = {}

    def record(self, runs: Sequence[Run]) -> None:
        """Keep an edit that was just made.

        Raises:
            TooLargeToRecordError: It has to be sealed at once instead.
        """
        kept = self._encryptor.seal({"ops": pack_ops(runs)}, self._context)
        try:
            number = self._file.record(self._session, _text_of(kept))
        except NotStorableError as error:
            raise TooLargeToRecordError from error
        self._numbers[self._session] = number

    def seal(self, session: str, bodies: Sequence[Sealed]) -> None:
        """Keep bodies in place of everything that a session has recorded."""
        number = self._numbers.get(session, 0)
        self._file.seal(session, number, [kept_body(sealed, session) for sealed in bodies])
        self._numbers.pop(session, None)

    def renew(self, bodies: Sequence[Sealed]) -> None:
        """Keep bodies in place of those with the same session and seq."""
        self._file.renew([kept_body(sealed, self._session) for sealed in bodies])

    def replace(self, gone: Sequence[str], bodies: Sequence[Sealed]) -> None:
        """Keep bodies in place of those with some links, in one step."""
        self._file.replace(gone, [kept_body(sealed, self._session) for sealed in bodies])

    def set_aside(
        self, refused: RefusedBodies, gone: Sequence[str], bodies: Sequence[Sealed], session: str
    ) -> None:
        """Keep bodies in place of those with some links, and what was refused on the shelf.

        Raises:
            ShelfFullError: There is no room for it; nothing has changed.
        """
        slots = self._shelf.slots_for(refused, self._session)
        self._file.replace(gone, [kept_body(sealed, session) for sealed in bodies], slots)
        self._shelf.kept(slots)
        self._session = session

    def acknowledge(self, link: str, ts: int | None) -> None:
        """Note that a relay has acknowledged a body; None: that it has to be sent again."""
        self._file.acknowledged(link, ts)

    def confirm(self, links: Iterable[str]) -> None:
        """Let go of bodies that were read in the log, once that is kept."""
        self._confirm(links)

    def leftover(self) -> Leftover:
        """What earlier sessions have left."""
        pending = self._file.pending()
        bodies = [
            LeftBody(
                body.canonical,
                body.author,
                body.signature,
                body.link,
                body.epoch,
                body.acknowledged is not None,
            )
            for body in pending.bodies
        ]
        own = [body for body in bodies if body.author == self._context.author]
        stranded = [body for body in bodies if body.author != self._context.author]
        by_session: dict[str, list[Run]] = {}
        closed: set[str] = set()
        for each in pending.recorded:
            runs = None if each.session in closed else self._opened(each)
            if runs is None:
                # What follows in a session may build on it, and waits with it.
                closed.add(each.session)
            else:
                by_session.setdefault(each.session, []).extend(runs)
                self._numbers[each.session] = each.number
        edits = [self._edits(*each) for each in by_session.items()]
        return Leftover(own, edits, stranded, self._fold())

    def drop_stranded(self) -> None:
        """Let go of the fold of what a log had lost: all of it is back."""
        self._file.drop_stranded()

    def _fold(self) -> object:
        kept = self._file.stranded()
        try:
            return None if kept is None else parse(kept)
        except MalformedError:
            return None

    def _opened(self, recorded: Recorded) -> list[Run] | None:
        try:
            kept = self._encryptor.open(parse(recorded.packed), self._context)
            return unpack_ops(kept.get("ops"))
        except (UnreadableError, SealRejectedError, MalformedError):
            return None

    def _edits(self, session: str, runs: list[Run]) -> LeftEdits:
        last = self._file.last_sealed(session)
        if last is None:
            return LeftEdits(session, 1, None, runs)
        return LeftEdits(session, last.seq + 1, last.link, runs)


def _text_of(kept: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(kept)
    except TypeError:
        # Half a character, which it does not write.
        return canonical_bytes(kept)
