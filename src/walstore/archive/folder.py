"""Folds a window of events onto a table of documents, and reads anew what a window does not tell.

- Only the documents that something has happened to are touched, and the events of one are let go as
  soon as it is folded.
- Where a window is not enough, the document is read anew from the source, up to where the window
  ends. What cannot be had even so is told, and the row says null.
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
)
from walstore.archive.rows import Row, RowChange, Window, sort_key
from walstore.archive.source import DOCUMENTS_MAX, Event, Source
from walstore.canon import Json
from walstore.document.folding import Folded, FoldRules, ReadAgain, kept_sharing
from walstore.document.ports import CheckpointTooOldError, RawElement
from walstore.errors import TransportError
from walstore.signed.identity import Identity
from walstore.wire.limits import TS_MAX

# How often a document may be pruned while it is read; then it is tried again later.
_PRUNED_MAX: Final = 8

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
            changes += await folding.change_anew(Part([], [], 0, TS_MAX, TS_MAX), to)
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
            state = None if previous is None else previous.get("state")
            if isinstance(state, dict):
                kept = kept_sharing(document, identity=self.identity, previous=state)
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
        if isinstance(folded, Folded):
            return self._changed(part, await self._fuller(rules, part, folded))
        anew = await self._anew(rules, part, part.seq)
        if isinstance(anew, ReadAgain):
            self._problems.append(anew.reason)
            anew = self._fold(rules, part, self._previous, is_final=True)
        return self._changed(part, anew)

    async def change_anew(self, part: Part, seq: int) -> list[RowChange]:
        """What becomes of the row when everything is read again."""
        rules = await self._rules()
        folded = await self._anew(rules, part, seq, is_ahead=True)
        if isinstance(folded, ReadAgain):
            self._problems.append(folded.reason)
            missed = ReadAgain("it cannot be read anew")
            return self._changed(part._replace(seq=seq, upto_ts=0), missed)
        changes = self._changed(part._replace(seq=seq), folded)
        return [change for change in changes if not _is_same(change)]

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
    ) -> Folded | ReadAgain:
        return fold_part(
            rules,
            part,
            identity=self._folder.identity,
            previous=previous,
            seq=seq,
            is_final=is_final,
            is_ahead=is_ahead,
        )

    async def _fuller(self, rules: FoldRules, part: Part, folded: Folded) -> Folded:
        """What a document folds to where nothing more is missing than has to be."""
        if not folded.opened:
            return folded
        anew = await self._anew(rules, part, part.seq)
        if isinstance(anew, Folded) and anew.is_fuller_than(folded):
            return anew
        return folded

    async def _anew(
        self, rules: FoldRules, part: Part, seq: int, *, is_ahead: bool = False
    ) -> Folded | ReadAgain:
        """Fold all that the source has of the document, up to where the part ends."""
        source, document = self._folder.source, self._document
        texts = [event.payload async for event in source.snapshots([document], part.seq)]
        cuts = [cut for text in texts for cut in cutting(text)]
        # What is below the first cut need not be read, if any of them is believed.
        first = min(map(_upto, cuts), default=0)
        for after in dict.fromkeys([first, 0]):
            elements, gone_upto = await self._read(after, part.upto_ts)
            snapshots = cuts
            if gone_upto != after:
                # What stands for what is gone may be newer than the part.
                current = await source.snapshot(document)
                snapshots = [each for text in [*texts, current] for each in parsed(text)]
            whole = part._replace(elements=elements, snapshots=snapshots, gone_upto=gone_upto)
            folded = self._fold(rules, whole, None, seq=seq, is_final=True, is_ahead=is_ahead)
            if isinstance(folded, Folded):
                break
        return folded

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
