"""Runs a retention policy over a relay's log: what would go is planned, then goes in small steps.

- A plan is made per document and holds only documents that something goes from.
- Every step leaves a log that opens: a floor rises only to what a stored snapshot covers, and
  only dominated snapshots go. Whoever stops in between has done less, nothing else.
- What was planned stays right while others append: snapshots that cover more may come, and floors
  only rise. Doing it again changes nothing.
- A snapshot that is being sent stays, and so do the elements above it: whoever has read it goes on
  with them.
- Appends wait for one step at a time, never for a whole document.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence, Set
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from walstore.relay.archived import ArchivedSeq
from walstore.relay.log import (
    DocumentStatus,
    Filter,
    Page,
    ReaderMark,
    RelayLog,
    Removal,
    Removed,
)
from walstore.relay.retention import (
    LogMode,
    Policy,
    plan_elements,
    plan_replay,
    plan_snapshots,
)

# What one step takes at most, about: as long as an append may wait.
STEP_ELEMENTS_MAX: Final = 1_000
STEP_BYTES_MAX: Final = 4 * 2**20

# Documents that are asked for at first; if there are more, all of them are asked for.
_DOCUMENTS_COUNT: Final = 10_000

# Counts of snapshots that are compared on the spot; more than this is done in a thread.
_AT_ONCE_MAX: Final = 10_000

_NOTHING: Final = Removed(0, 0, 0)


class DocumentPlan(NamedTuple):
    """What is to go from one document.

    Attributes:
        document: The document.
        floor: Elements up to this `ts` are gone already.
        below_ts: Elements up to this `ts` go; 0 for none.
        snapshot_ids: The snapshots whose payload goes.
        stranded: The known readers that have not read so far: they start from the snapshot.
        removed: How much that is, if it was measured.
    """

    document: str
    floor: int
    below_ts: int
    snapshot_ids: Sequence[str]
    stranded: Sequence[ReaderMark]
    removed: Removed | None


class Plan(NamedTuple):
    """What is to go from a log.

    Attributes:
        documents: The documents that something goes from.
        min_seq: From where on the changes feed can be replayed then; None if that stays.
    """

    documents: Sequence[DocumentPlan]
    min_seq: int | None

    def as_json(self) -> dict[str, Any]:
        """The plan, for a program."""
        return {
            "documents": [_as_json(each) for each in self.documents],
            "min_seq": self.min_seq,
            "total": _total(self)._asdict(),
            "stranded": sum([len(each.stranded) for each in self.documents]),
        }

    def as_text(self) -> str:
        """The plan, for a person."""
        lines = [line for each in self.documents for line in _lines(each)]
        if self.min_seq is not None:
            lines.append(f"the changes feed could be followed from seq {self.min_seq} on")
        if not lines:
            return "nothing would go\n"
        readers = sum([len(each.stranded) for each in self.documents])
        lines.append(f"in all: {_amount(_total(self))}; {_count(readers, 'reader')} stranded")
        return "\n".join(lines) + "\n"


async def plan(
    log: RelayLog,
    policy: Policy,
    *,
    archived_seq: ArchivedSeq | None,
    now_ms: int,
    is_measured: bool = False,
) -> Plan:
    """What a policy lets go of, with nothing done about it.

    Args:
        log: The log.
        policy: What is kept.
        archived_seq: How far the archives have come; None if there are none.
        now_ms: The time.
        is_measured: Whether to read all that would go, to say how much that is.

    Raises:
        LogError: The log cannot be read now.
    """
    documents = [
        each async for each in plan_documents(log, policy, archived_seq, now_ms, is_measured)
    ]
    return Plan(documents, await _plan_replay(log, policy, archived_seq))


async def compact(
    log: RelayLog, plan: Plan, *, step_elements_max: int = STEP_ELEMENTS_MAX
) -> Removed:
    """Carry out a plan.

    Args:
        log: The log.
        plan: What is to go.
        step_elements_max: How many elements go in one step.

    Returns:
        What has gone; less than planned if some of it was gone already.

    Raises:
        LogError: The log cannot be changed now; what is done is done, and may be gone on with.
    """
    removed = _NOTHING
    for each in plan.documents:
        removed = _sum(removed, await _compact_document(log, each, step_elements_max))
    if plan.min_seq is not None:
        await log.trim(plan.min_seq)
    return removed


async def compact_all(
    log: RelayLog,
    policy: Policy,
    *,
    archived_seq: ArchivedSeq | None,
    now_ms: int,
    sending: Callable[[], Set[str]] = frozenset,
) -> Removed:
    """Plan and compact one document after the other: what a relay does from time to time.

    Args:
        log: The log.
        policy: What is kept.
        archived_seq: How far the archives have come; None if there are none.
        now_ms: The time.
        sending: The revisions of snapshots that are being sent.

    Raises:
        LogError: The log cannot be read or changed now; what is done is done.
    """
    removed = _NOTHING
    async for each in plan_documents(log, policy, archived_seq, now_ms, sending=sending):
        removed = _sum(removed, await _compact_document(log, each))
    min_seq = await _plan_replay(log, policy, archived_seq)
    if min_seq is not None:
        await log.trim(min_seq)
    return removed


async def plan_documents(
    log: RelayLog,
    policy: Policy,
    archived_seq: ArchivedSeq | None,
    now_ms: int,
    is_measured: bool = False,
    sending: Callable[[], Set[str]] = frozenset,
) -> AsyncIterator[DocumentPlan]:
    """The documents that something goes from, one by one."""
    async for status in _documents(log):
        # Without a snapshot everything is needed.
        if status.snapshots:
            found = await _plan_document(log, policy, status, archived_seq, now_ms, sending)
            if found is not None:
                yield await _measured(log, found) if is_measured else found


async def _plan_replay(
    log: RelayLog, policy: Policy, archived_seq: ArchivedSeq | None
) -> int | None:
    feed = await log.feed(0, 0, Filter(), count_max=1, bytes_max=1)
    return plan_replay(
        policy,
        head_seq=feed.head_seq,
        min_seq=feed.min_seq,
        archived_seq=None if archived_seq is None else archived_seq.lowest,
    )


async def _documents(log: RelayLog) -> AsyncIterator[DocumentStatus]:
    last = ""
    while found := await log.documents_after(last, count_max=_DOCUMENTS_COUNT):
        for status in found:
            yield status
        last = found[-1].document


async def _plan_document(
    log: RelayLog,
    policy: Policy,
    status: DocumentStatus,
    archived_seq: ArchivedSeq | None,
    now_ms: int,
    sending: Callable[[], Set[str]],
) -> DocumentPlan | None:
    document = status.document
    snapshots = await log.snapshots(document)
    if len(snapshots) * sum([len(each.vc) for each in snapshots]) <= _AT_ONCE_MAX:
        snapshot_ids = plan_snapshots(policy, snapshots, now_ms)
    else:
        snapshot_ids = await asyncio.to_thread(plan_snapshots, policy, snapshots, now_ms)
    below_ts = await _plan_elements(log, policy, status, archived_seq)
    staying = sending()
    if sent := [each.ts for each in snapshots if each.id in staying]:
        snapshot_ids = [id for id in snapshot_ids if id not in staying]
        below_ts = min([below_ts, *sent])
        below_ts = below_ts if below_ts > status.floor else 0
    if not snapshot_ids and not below_ts:
        return None
    readers = await log.readers(document) if below_ts else []
    stranded = [mark for mark in readers if mark.checkpoint < below_ts]
    return DocumentPlan(document, status.floor, below_ts, snapshot_ids, stranded, None)


async def _plan_elements(
    log: RelayLog, policy: Policy, status: DocumentStatus, archived_seq: ArchivedSeq | None
) -> int:
    if policy.log_mode is LogMode.KEEP_FULL_HISTORY or status.snapshot_upto <= status.floor:
        return 0
    document, upto = status.document, status.snapshot_upto
    rows = await log.tail(document, upto, policy.retain_tail_n + 1)
    below_ts = plan_elements(
        policy,
        upto_ts=upto,
        covered=[row.ts for row in rows],
        archived_ts=await _archived_ts(log, policy, status, archived_seq),
    )
    return below_ts if below_ts > status.floor else 0


async def _archived_ts(
    log: RelayLog, policy: Policy, status: DocumentStatus, archived_seq: ArchivedSeq | None
) -> int | None:
    """The newest element of a document that the archives hold."""
    seq = None if archived_seq is None else archived_seq.of(status.document)
    if not policy.require_archive or seq is None:
        return None
    wanted = Filter(documents=frozenset({status.document}), kinds=frozenset({"element"}))
    feed = await log.feed(seq, None, wanted, count_max=1, bytes_max=1)
    if seq + 1 < feed.min_seq:
        # It cannot be told any more which ones these are.
        return None
    if not feed.events:
        return status.head
    held = await log.tail(status.document, feed.events[0].ts - 1, 1)
    return held[-1].ts if held else None


async def _measured(log: RelayLog, found: DocumentPlan) -> DocumentPlan:
    elements = size = 0
    async for page in _pages_below(log, found):
        rows = [row for row in page.rows if row.ts <= found.below_ts]
        elements += len(rows)
        size += sum([len(row.data) for row in rows])
    for id in found.snapshot_ids:
        wanted = Filter(documents=frozenset({found.document}))
        size += sum([len(event.payload or b"") for event in await log.find([id], wanted)])
    return found._replace(removed=Removed(elements, len(found.snapshot_ids), size))


async def _compact_document(
    log: RelayLog, found: DocumentPlan, step_elements_max: int = STEP_ELEMENTS_MAX
) -> Removed:
    removed = _NOTHING
    if found.snapshot_ids:
        removal = Removal(found.document, tuple(found.snapshot_ids), 0)
        removed = await log.compact([removal])
    async for page in _pages_below(log, found, step_elements_max):
        below_ts = min(page.rows[-1].ts, found.below_ts)
        removal = Removal(found.document, (), below_ts)
        removed = _sum(removed, await log.compact([removal]))
    return removed


async def _pages_below(
    log: RelayLog, found: DocumentPlan, count_max: int = STEP_ELEMENTS_MAX
) -> AsyncIterator[Page]:
    """The elements of a document up to where they go, or a few more."""
    after = found.floor
    while after < found.below_ts:
        page = await log.page(found.document, after, count_max=count_max, bytes_max=STEP_BYTES_MAX)
        if page.rows:
            yield page
            after = page.rows[-1].ts
        elif after < page.floor:
            # Somebody else was faster.
            after = page.floor
        else:
            return


def _sum(left: Removed, right: Removed) -> Removed:
    return Removed(*[each + other for each, other in zip(left, right, strict=True)])


def _total(plan: Plan) -> Removed:
    total = _NOTHING
    for each in plan.documents:
        total = _sum(total, each.removed or Removed(0, len(each.snapshot_ids), 0))
    return total


def _as_json(each: DocumentPlan) -> dict[str, Any]:
    return {
        "document": each.document,
        "floor": each.floor,
        "below_ts": each.below_ts,
        "snapshots": list(each.snapshot_ids),
        "stranded": [
            {"key": mark.key, "checkpoint": mark.checkpoint, "seen_ms": mark.seen_ms}
            for mark in each.stranded
        ],
        **({} if each.removed is None else {"removed": each.removed._asdict()}),
    }


def _lines(each: DocumentPlan) -> list[str]:
    snapshots = _count(len(each.snapshot_ids), "snapshot")
    what = snapshots if each.removed is None else _amount(each.removed)
    upto = f", elements up to {each.below_ts}" if each.below_ts else ""
    return [
        f"{each.document}: {what}{upto}",
        *[
            f"    strands {mark.key}, who has read up to {mark.checkpoint} (seen {_day(mark)})"
            for mark in each.stranded
        ],
    ]


def _amount(removed: Removed) -> str:
    parts = [_count(removed.elements, "element"), _count(removed.snapshots, "snapshot")]
    return f"{', '.join(parts)}, {removed.payload_bytes:,} bytes"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _day(mark: ReaderMark) -> str:
    return datetime.fromtimestamp(mark.seen_ms / 1000, UTC).strftime("%Y-%m-%d")
