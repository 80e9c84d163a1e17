"""Folds a window of events onto a table of documents, and reads anew what a window does not tell.

- Only the documents that something has happened to are touched, and the events of one are let go as
  soon as it is folded.
- Where a window is not enough, the document is read anew from the source, up to where the window
  ends. That counts if nothing is missing that the kept state had seen: a source that has let go of
  it, or withholds it, takes nothing back.
- What cannot be had even so is told, and what there is goes on from the kept state. Where that is
  not possible either, the row stays as it was: when next something happens to the document, all is
  read that came after its state. Null is in rows that never had a value.
- Where something is missing between a row and its window, the row may be an older one than there
  was: the document is read anew, and that counts if it lacks less, and nothing else.
- A document without a row may be one that was deleted: the source still has the deletion, and the
  document goes on from there.
- Who may write is looked up when a document is touched. A roster that changes alone changes no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from walstore.archive.authority import KEYRING, ROSTER, Authority, Records, Ruled
from walstore.archive.collapse import change_of
from walstore.archive.folded import (
    Part,
    Report,
    cutting,
    fold_part,
    folded_row,
    integer_of,
    null_row,
    parsed,
    part_of,
    state_of,
)
from walstore.archive.rows import Row, RowChange, Window, sort_key
from walstore.archive.source import DOCUMENTS_MAX, Event, Source
from walstore.canon import Json
from walstore.document.folding import Folded, FoldRules, ReadAgain, kept_note
from walstore.document.ports import CheckpointTooOldError, RawElement
from walstore.errors import TransportError
from walstore.signed.identity import Identity
from walstore.wire.limits import TS_MAX

# How often a document may be pruned while it is read; then it is tried again later.
_PRUNED_MAX: Final = 8

# A document as it is now, however far that is.
_NOW: Final = Part([], [], gone_upto=0, seq=TS_MAX, upto_ts=TS_MAX)

_SHOWN: Final = ("value", "ts", "elements", "authors", "rejected")


class FoldedWindow(NamedTuple):
    """A window of a table of documents, and what was noticed in them."""

    window: Window
    reports: list[Report]


@dataclass(frozen=True)
class Folder:
    """Folds the documents of one source.

    Attributes:
        source: Where they are, to be read anew.
        authority: Who may write.
        identity: The archive's own.
        keeps_state: Whether rows carry what the fold goes on from; without it a document that is
            touched again is read anew.
    """

    source: Source
    authority: Authority
    identity: Identity
    keeps_state: bool = True

    async def window(
        self, events: Iterable[Event], rows: Mapping[str, Row], *, since: int, to: int
    ) -> FoldedWindow:
        """Fold the events in `(since, to]`.

        Args:
            events: The events, in the order of the source.
            rows: The rows that the touched documents have at `since`.
            since: The position before.
            to: The position after.

        Raises:
            TransportError: The source cannot be read now; also a `StorageError`, of a database.
        """
        by_document: dict[str, list[Event]] = {}
        churn = 0
        for event in events:
            if since < event.seq <= to:
                churn += 1
                by_document.setdefault(event.document, []).append(event)
        del events
        unknown = [document for document in by_document if document not in rows]
        deleted = await self._deleted(unknown, since) if since else set()
        changes: list[RowChange] = []
        reports: list[Report] = []
        for document in sorted(by_document):
            previous = rows.get(document)
            part = part_of(by_document.pop(document), previous)
            if part.seq > integer_of(previous, "seq"):
                folding = _Folding(self, document, previous)
                changes += await folding.change(part, is_anew=document in deleted)
                reports += folding.reports()
        changes.sort(key=lambda change: sort_key(change.key))
        return FoldedWindow(Window(since, to, changes, churn), reports)

    async def anew(
        self, documents: Iterable[str], rows: Mapping[str, Row], *, since: int, to: int
    ) -> FoldedWindow:
        """Read documents anew from the source, after events were missed.

        They are read as they are now, which may be further than `to`; what later windows repeat of
        that is passed over.
        """
        changes: list[RowChange] = []
        reports: list[Report] = []
        for document in sorted(set(documents)):
            folding = _Folding(self, document, rows.get(document))
            changes += await folding.change_anew(to)
            reports += folding.reports()
        changes.sort(key=lambda change: sort_key(change.key))
        return FoldedWindow(Window(since, to, changes, len(changes)), reports)

    async def _deleted(self, documents: Sequence[str], upto: int) -> set[str]:
        """Which of the documents that have no row may be some that were deleted."""
        deleted: set[str] = set()
        for start in range(0, len(documents), DOCUMENTS_MAX):
            some = documents[start : start + DOCUMENTS_MAX]
            async for event in self.source.snapshots(some, upto):
                deleted.update(event.document for _ in cutting(event.payload))
        return deleted

    async def rules(self, document: str, previous: Row | None) -> Ruled:
        """Who may write to a document now."""
        records = Records()
        kept: Json = None
        if self.authority.has_owner(document):
            records = Records(
                await self.source.record(document, ROSTER),
                await self.source.record(document, KEYRING),
            )
            note = kept_note(document, identity=self.identity, previous=state_of(previous))
            kept = None if note is None else note.sharing
        return self.authority.rules(document, identity=self.identity, records=records, kept=kept)


class _Folding:
    """How one document is folded."""

    def __init__(self, folder: Folder, document: str, previous: Row | None) -> None:
        self._folder = folder
        self._document = document
        self._previous = previous
        self._report = Report(document)
        self._problems: list[str] = []

    def reports(self) -> list[Report]:
        """What was noticed, if anything."""
        report = self._report._replace(problems=self._problems)
        return [] if report.is_quiet else [report]

    async def change(self, part: Part, *, is_anew: bool) -> list[RowChange]:
        """What becomes of the row.

        Args:
            part: What has happened.
            is_anew: Whether something else has happened before that is in no row.
        """
        rules = await self._rules()
        folded = None if is_anew else self._fold(rules, part, self._previous)
        if not isinstance(folded, Folded) and self._is_behind():
            return self._changed(part, await self._now(rules, part.seq))
        return self._changed(part, await self._whole(rules, part, part.seq, folded))

    async def change_anew(self, seq: int) -> list[RowChange]:
        """What becomes of the row when events were missed: the document is read as it is now."""
        folded = await self._now(await self._rules(), seq)
        changes = self._changed(_NOW._replace(seq=seq, upto_ts=0), folded)
        if self._problems or self._is_behind():
            # What is in the row is the same, and not what is known of it.
            return changes
        return [change for change in changes if not _is_same(change)]

    def _is_behind(self) -> bool:
        """Whether something has happened before that the row could not take in."""
        row, identity = self._previous, self._folder.identity
        note = kept_note(self._document, identity=identity, previous=state_of(row))
        if note is None:
            return row is not None and row.get("value") is None
        return note.is_behind

    async def _rules(self) -> FoldRules:
        rules, problems = await self._folder.rules(self._document, self._previous)
        self._problems += problems
        return rules

    def _fold(
        self,
        rules: FoldRules,
        part: Part,
        previous: Row | None,
        *,
        seq: int | None = None,
        is_final: bool = False,
        is_ahead: bool = False,
        is_behind: bool = False,
        known: Row | None = None,
    ) -> Folded | ReadAgain:
        return fold_part(
            rules,
            part,
            identity=self._folder.identity,
            previous=previous,
            seq=seq,
            is_final=is_final,
            is_ahead=is_ahead,
            is_behind=is_behind,
            known=known,
        )

    async def _now(self, rules: FoldRules, seq: int) -> Folded | ReadAgain:
        """Fold all that there is above the kept state, however far that is."""
        state = state_of(self._previous)
        if state is None:
            return await self._anew(rules, _NOW, seq, is_ahead=True)
        part = await self._part(_NOW, await self._texts(_NOW), _upto(state))
        folded = self._fold(rules, part, self._previous, seq=seq, is_ahead=True)
        return await self._whole(rules, part, seq, folded, is_ahead=True)

    async def _whole(
        self,
        rules: FoldRules,
        part: Part,
        seq: int,
        folded: Folded | ReadAgain | None,
        *,
        is_ahead: bool = False,
    ) -> Folded | ReadAgain:
        """What a document folds to where nothing more is missing than has to be.

        Args:
            rules: Who is believed.
            part: What has happened.
            seq: The new row's.
            folded: What that comes to, if it was folded.
            is_ahead: Whether later parts repeat some of it.
        """
        if isinstance(folded, Folded) and not folded.opened:
            return folded
        anew = await self._anew(rules, part, seq, is_ahead=is_ahead)
        if isinstance(folded, Folded):
            is_fuller = isinstance(anew, Folded) and anew.is_fuller_than(folded)
            return anew if is_fuller else folded
        if isinstance(anew, Folded):
            return anew
        self._problems.append(anew.reason)
        folded = self._fold(rules, part, self._previous, seq=seq, is_final=True, is_ahead=is_ahead)
        if isinstance(folded, Folded) or self._previous is None:
            return folded
        self._problems.append(folded.reason)
        nothing = Part([], [], 0, seq, 0)
        return self._fold(rules, nothing, self._previous, is_final=True, is_behind=True)

    async def _anew(
        self, rules: FoldRules, part: Part, seq: int, *, is_ahead: bool = False
    ) -> Folded | ReadAgain:
        """Fold all that the source has of the document, up to where the part ends."""
        texts = await self._texts(part)
        # What is below the first cut need not be read, if any of them is believed.
        first = min((_upto(cut) for text in texts for cut in cutting(text)), default=0)
        for after in dict.fromkeys([first, 0]):
            whole = await self._part(part, texts, after)
            folded = self._fold(
                rules,
                whole,
                None,
                seq=seq,
                is_final=True,
                is_ahead=is_ahead,
                known=self._previous,
            )
            if isinstance(folded, Folded):
                break
        return folded

    async def _texts(self, part: Part) -> list[bytes | None]:
        """The snapshots that the source has, up to where the part ends."""
        events = self._folder.source.snapshots([self._document], part.seq)
        return [event.payload async for event in events]

    async def _part(self, part: Part, texts: Sequence[bytes | None], after: int) -> Part:
        """What the source has above a `ts`, up to where the part ends."""
        elements, gone_upto = await self._read(after, part.upto_ts)
        snapshots = [cut for text in texts for cut in cutting(text)]
        if gone_upto != after:
            # What stands for what is gone may be newer than the part.
            current = await self._folder.source.snapshot(self._document)
            snapshots = [each for text in [*texts, current] for each in parsed(text)]
        return part._replace(elements=elements, snapshots=snapshots, gone_upto=gone_upto)

    async def _read(self, after: int, upto_ts: int) -> tuple[list[RawElement], int]:
        """The elements above a `ts`, or above what is gone by now; and above what they are."""
        for _ in range(_PRUNED_MAX):
            try:
                return await self._above(after, upto_ts), after
            except CheckpointTooOldError as error:
                after = error.floor
        raise TransportError(f"{self._document} is pruned again and again", retryable=True)

    async def _above(self, after: int, upto_ts: int) -> list[RawElement]:
        elements = self._folder.source.elements(self._document, after)
        return [element async for element in elements if element.ts <= upto_ts]

    def _changed(self, part: Part, folded: Folded | ReadAgain) -> list[RowChange]:
        document, row = self._document, None
        if isinstance(folded, Folded):
            self._report = Report(
                document, folded.rejections, folded.gaps, folded.forks, folded.unreadable
            )
            row = folded_row(document, folded, part.seq, keeps_state=self._folder.keeps_state)
            if folded.state is None and not folded.is_deleted:
                self._problems.append("its state is too large to be kept")
        else:
            self._problems.append(folded.reason)
            row = null_row(document, part)
            if self._previous is not None:
                # Nothing can be gone on from, and yet there is a value.
                row = {**self._previous, "seq": part.seq}
        if row is None and self._previous is None:
            return []
        return [change_of((document,), self._previous, row)]


def _upto(snapshot: object) -> int:
    upto = snapshot.get("uptoTs") if isinstance(snapshot, dict) else None
    return upto if type(upto) is int and 0 <= upto <= TS_MAX else 0


def _is_same(change: RowChange) -> bool:
    """Whether nothing has changed but what was kept."""
    old, new = change.old, change.new
    return (
        old is not None and new is not None and all(old.get(name) == new[name] for name in _SHOWN)
    )
