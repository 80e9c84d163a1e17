"""The open document of whoever shares it, and how it follows who counts.

- After another roster, what was rejected may count, and what counted may not: the document is read
  anew, if that makes any difference to what was read.
- Whose elements were passed over is kept with the state on file, which says nothing of them: who
  opens from it reads anew as well, once they count.
- After other keys, what could not be opened is tried again; and as long as there is something, a
  snapshot is looked for that stands for it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from walstore.document.events import Rejection
from walstore.document.faults import RejectedElementsError, SequenceGapError
from walstore.document.opening import Marks
from walstore.errors import TransportError, UsageError
from walstore.signed.roster import Counts, Roster, counted_in, seq_of
from walstore.store.membership import Membership
from walstore.store.sharing_known import Known, names_in

# Rejections that a document holds as evidence are bounded; from here on some may be gone.
_REJECTIONS_KNOWN_MAX = 1024

# How often a snapshot is looked for without a reason, for what cannot be opened: it may be large.
_TRY_S = 300.0

# Strangers that are kept; any more could be anybody.
_STRANGERS_MAX = 256


class NotAttachedError(UsageError):
    """This needs the open document: only that tells what somebody has written."""

    def __init__(self) -> None:
        super().__init__("attach the open document first: it tells what was written by whom")


class SharedDocument(Protocol):
    """What sharing asks of an open document; a `WalDocument` can do it."""

    @property
    def marks(self) -> Marks:
        """How far it was read."""
        ...

    @property
    def unreadable(self) -> int:
        """How many elements wait for a key."""
        ...

    @property
    def outdated_ts(self) -> int:
        """The newest element whose key epoch was over when it was read."""
        ...

    def rejected(self) -> list[Rejection]:
        """What was not folded."""
        ...

    async def recount(self, author: str) -> Counts:
        """What was read of an author, for a roster to say that it counts."""
        ...

    def counts_all(self, author: str) -> bool:
        """Whether everything that was read of an author counts, for sure."""
        ...

    @property
    def left_out(self) -> Collection[str]:
        """Those of whom something was passed over that would count, if they were made writers."""
        ...

    @property
    def has_begun_anew(self) -> bool:
        """Whether what is read goes on from a deletion."""
        ...

    async def can_return(self, author: str) -> bool:
        """Whether all that somebody has written who may not can be read by all, should it count."""
        ...

    async def pull(self) -> int:
        """Read what is new."""
        ...

    async def reread(self) -> int:
        """Read everything anew: other elements count now than before."""
        ...

    async def retry_unreadable(self) -> int:
        """Open what could not be opened before, or start from a snapshot that stands for it."""
        ...

    async def snapshot(self) -> dict[str, Any]:
        """Publish a snapshot."""
        ...


class Attached:
    """The document of one person, as far as there is one.

    Attributes:
        is_state_due: Whether the state on file stands for less than what was read since.
        is_snapshot_new: Whether there may be a snapshot that was not looked at yet.
    """

    def __init__(self, known: Known) -> None:
        """Begin without one."""
        self._known = known
        self._document: SharedDocument | None = None
        # What the document was read with; and whether it was read from a state on file that does
        # not say what counts by now.
        self._read_with = (known.membership.roster, known.keys)
        self._is_behind = False
        self._is_read_anew = False
        self.is_state_due = False
        self.is_snapshot_new = True
        # How many elements could not be opened when it was tried last, and when that was.
        self._tried = (0, 0.0)

    def attach(self, document: SharedDocument) -> None:
        """Follow with a document that was opened just now."""
        known, now = self._known, self._known.membership
        self._document = document
        self._read_with = (now.roster, known.keys)
        self._is_read_anew = False
        # Somebody may have been killed after they knew of a roster, and before they followed it.
        seqs = document.marks.seqs
        self._is_behind = (
            any(now.is_writer(key) for key in known.state.strangers)
            or any(_is_beyond(seqs, key, now) for key in names_in(now.roster))
            or (self._is_unfollowed and _has_read(seqs, now.roster))
        )
        if not self._is_behind:
            self._note_followed()

    @property
    def document(self) -> SharedDocument | None:
        """The document, if there is one."""
        return self._document

    def needed(self) -> SharedDocument:
        """The document.

        Raises:
            NotAttachedError: There is none.
        """
        if self._document is None:
            raise NotAttachedError
        return self._document

    async def pull(self) -> None:
        """Read what is new; what is rejected or missing is told elsewhere."""
        with suppress(RejectedElementsError, SequenceGapError):
            await self.needed().pull()

    async def counted(self, key: str) -> Counts:
        """What somebody has written, as far as it can be read now."""
        await self.pull()
        return await self.needed().recount(key)

    async def can_return(self, key: str) -> bool:
        """Whether somebody can be made a writer, by all that can be read now."""
        await self.pull()
        return await self.needed().can_return(key)

    @property
    def _is_unfollowed(self) -> bool:
        """Whether a document was read with an older roster than the one that counts."""
        roster, followed = self._known.membership.roster, self._known.state.followed
        return roster is not None and 0 < followed < roster.version

    def _note_followed(self) -> None:
        known, roster = self._known, self._known.membership.roster
        if roster is not None:
            known.keep(replace(known.state, followed=roster.version))

    async def follow(self) -> None:
        """Let the document follow what has changed since it was read."""
        known, document = self._known, self._document
        if document is None:
            return
        roster, keys = self._read_with
        is_other = known.membership.roster is not roster
        is_given_up = (
            keys is not None and known.keys is not None and keys.former != known.keys.former
        )
        if self._is_behind or is_given_up or (is_other and self._is_affected(document, roster)):
            with suppress(RejectedElementsError, SequenceGapError):
                await document.reread()
            self._is_read_anew = self.is_state_due = True
        elif known.keys is not keys or self._is_worth_trying(document):
            await self._retry(document)
        self._read_with = (known.membership.roster, known.keys)
        self._is_behind = False
        self._note_followed()

    def _is_worth_trying(self, document: SharedDocument) -> bool:
        """Whether something that cannot be opened may be told by a snapshot that is new."""
        count, tried_s = self._tried
        is_late = time.monotonic() - tried_s > _TRY_S
        is_news = self.is_snapshot_new or document.unreadable != count or is_late
        return document.unreadable > 0 and is_news

    async def _retry(self, document: SharedDocument) -> None:
        unreadable, self.is_snapshot_new = document.unreadable, False
        try:
            with suppress(RejectedElementsError, SequenceGapError):
                await document.retry_unreadable()
        except TransportError:
            # The snapshot cannot be read now; who counts is known all the same.
            self.is_snapshot_new = True
        except BaseException:
            self.is_snapshot_new = True
            raise
        self.is_state_due |= document.unreadable < unreadable
        self._tried = (document.unreadable, time.monotonic())

    def note_strangers(self) -> None:
        """Keep whose elements were passed over, before a state is kept that stands for them."""
        known = self._known
        strangers = tuple(dict.fromkeys([*known.state.strangers, *self._strangers()]))
        known.keep(replace(known.state, strangers=strangers[:_STRANGERS_MAX]))

    def forget_strangers(self) -> None:
        """Forget those who are none any more, after a state was kept."""
        known = self._known
        self.is_state_due = False
        if self._is_read_anew:
            known.keep(replace(known.state, strangers=tuple(self._strangers())[:_STRANGERS_MAX]))

    def _strangers(self) -> list[str]:
        """Those whose elements were passed over when they were read."""
        before = Membership(self._known.membership.owner, self._read_with[0])
        authors = dict.fromkeys(rejection.author for rejection in self.needed().rejected())
        return [key for key in authors if key is not None and not before.is_writer(key)]

    def _is_affected(self, document: SharedDocument, former: Roster | None) -> bool:
        """Whether something that the document was read with counts otherwise by now."""
        now = self._known.membership
        before = Membership(now.owner, former)
        rejections = document.rejected()
        kept = self._known.state.strangers
        rejected = {*(rejection.author for rejection in rejections), *kept, *document.left_out}
        is_full = len(rejections) >= _REJECTIONS_KNOWN_MAX or len(kept) >= _STRANGERS_MAX
        seqs = document.marks.seqs
        for key in {*names_in(former), *names_in(now.roster)}:
            is_changed = (before.is_writer(key), before.revoked(key)) != (
                now.is_writer(key),
                now.revoked(key),
            )
            if is_changed and (
                is_full
                or key in rejected
                # What was put elsewhere for their sake is not known any more.
                or (before.revoked(key) is not None and now.revoked(key) is None)
                or _is_beyond(seqs, key, now)
                or not document.counts_all(key)
            ):
                return True
        return False


def _has_read(seqs: Mapping[str, int], roster: Roster | None) -> bool:
    """Whether anything was read of those who were revoked."""
    return roster is not None and any(counted_in(seqs, key) for key in roster.revoked)


def _is_beyond(seqs: Mapping[str, int], key: str, membership: Membership) -> bool:
    """Whether more was read of a key than counts."""
    read = counted_in(seqs, key)
    if not membership.is_writer(key):
        return bool(read)
    counted = membership.revoked(key)
    return counted is not None and any(
        seq > seq_of(counted.get(each, 0)) for each, seq in read.items()
    )
