"""Keeps a document's unsent edits in its local file.

- An edit is on file when the call that made it returns; what the document seals, the file has
  sealed as well. Plain text of a sealed document is never written.
- What cannot be opened, because its key is not at hand, stays in the file for a later session.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import orjson

from walstore.crdt import Run, pack_ops, unpack_ops
from walstore.document.journal import LeftBody, LeftEdits, Leftover
from walstore.document.sealing import Sealed
from walstore.errors import MalformedError
from walstore.local import LocalFile, OutboxBody
from walstore.local.rows import Recorded
from walstore.sealed.encryptor import Encryptor, SealContext
from walstore.sealed.outcomes import SealRejectedError, UnreadableError

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
    ) -> None:
        """Keep what a session of an author edits."""
        self._file = file
        self._context = SealContext(document_key + _PLACE, author, 0)
        self._session = session
        self._encryptor = encryptor
        # The newest edit on file, by session.
        self._numbers: dict[str, int] = {}

    def record(self, runs: Sequence[Run]) -> None:
        """Keep an edit that was just made."""
        kept = self._encryptor.seal({"ops": pack_ops(runs)}, self._context)
        self._numbers[self._session] = self._file.record(self._session, orjson.dumps(kept))

    def seal(self, session: str, bodies: Sequence[Sealed]) -> None:
        """Keep bodies in place of everything that a session has recorded."""
        number = self._numbers.get(session, 0)
        self._file.seal(session, number, [_kept(sealed, session) for sealed in bodies])
        self._numbers.pop(session, None)

    def renew(self, bodies: Sequence[Sealed]) -> None:
        """Keep bodies in place of those with the same session and seq."""
        self._file.renew([_kept(sealed, self._session) for sealed in bodies])

    def acknowledge(self, link: str, ts: int | None) -> None:
        """Note that a relay has acknowledged a body; None: that it has to be sent again."""
        self._file.acknowledged(link, ts)

    def confirm(self, links: Iterable[str]) -> None:
        """Let go of bodies: they are in the log."""
        self._file.confirmed(links)

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
        return Leftover(bodies, [self._edits(*each) for each in by_session.items()])

    def _opened(self, recorded: Recorded) -> list[Run] | None:
        try:
            kept = self._encryptor.open(orjson.loads(recorded.packed), self._context)
            return unpack_ops(kept.get("ops"))
        except (UnreadableError, SealRejectedError, MalformedError, orjson.JSONDecodeError):
            return None

    def _edits(self, session: str, runs: list[Run]) -> LeftEdits:
        last = self._file.last_sealed(session)
        if last is None:
            return LeftEdits(session, 1, None, runs)
        return LeftEdits(session, last.seq + 1, last.link, runs)


def _kept(sealed: Sealed, session: str) -> OutboxBody:
    header = sealed.header
    return OutboxBody(
        sealed.body.canonical,
        sealed.body.author,
        sealed.body.signature,
        sealed.link,
        session if header is None else header.session,
        (sealed.author_seq or 0) if header is None else header.seq,
        "",
        str(sealed.epoch),
    )
