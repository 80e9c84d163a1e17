"""What a task does to tell who wrote what: the verified elements of documents, op by op.

- Only what counts is told: elements that are proven, by those who may write, opened and checked by
  the fold itself. What was rejected is told by `fold_stage`.
- A log whose beginning is gone is read on from a snapshot that is believed and stands for it; that
  is a row of its own, so that sizes add up.
- What no key opens is a row that says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, assert_never

import pyarrow as pa

from walstore.archive.authority import Records
from walstore.archive.folded import parsed, part_of
from walstore.archive.rows import Column
from walstore.canon import canonical_text
from walstore.crdt import Change, Run, WalCrdt
from walstore.crdt.changes import ListChanged
from walstore.crdt.runs import Delete, Drop, Insert, Put, Remove, Set, Verbatim
from walstore.document.entries import Entry
from walstore.document.events import Rejection
from walstore.document.fold_note import FoldNote
from walstore.document.fold_rules import FoldRules
from walstore.document.fold_start import NotEnoughError, Start, above, based
from walstore.document.history import Blame, blame_of
from walstore.document.log import DocumentLog, Reading
from walstore.document.opening import started
from walstore.document.ports import RawElement
from walstore.errors import MalformedError
from walstore.sealed.encryptor import PlainEncryptor
from walstore.sealed.outcomes import SealRejectedError
from walstore.spark.events import RowEvent
from walstore.spark.stages import Held, batches_of, documents, shown
from walstore.spark.trust import Trust
from walstore.wire.element import Element, read_element
from walstore.wire.envelope import Header, read_header

_WHO: Final = (
    Column("document", "text"),
    Column("seq", "integer"),
    Column("ts", "integer"),
    Column("accepted_ms", "integer"),
    Column("id", "text"),
    Column("author", "text"),
    Column("session", "text"),
    Column("writer_seq", "integer"),
)

OPS: Final = (
    *_WHO,
    Column("place", "integer"),
    Column("kind", "text"),
    Column("name", "text"),
    Column("key", "text"),
    Column("size", "integer"),
    Column("text", "text"),
    Column("value", "json"),
    Column("growth", "integer"),
    Column("message", "text"),
)

BLAME: Final = (
    Column("document", "text"),
    Column("name", "text"),
    Column("key", "text"),
    Column("start", "integer"),
    Column("size", "integer"),
    Column("text", "text"),
    Column("author", "text"),
    Column("ts", "integer"),
    Column("seq", "integer"),
    Column("accepted_ms", "integer"),
    Column("id", "text"),
)

_SEAL_REJECTED: Final = SealRejectedError()

# What is said of an op besides its kind: name, key, size, text, value.
_Said = tuple[str | None, str | None, int, str | None, str | None]

_KINDS: Final = {
    "set": "set",
    "del": "delete",
    "ins": "insert",
    "rmv": "remove",
    "put": "put",
    "drop": "drop",
}


class ReadLog(NamedTuple):
    """The log of a document, read.

    Attributes:
        log: What is known of it.
        start: What it was read on from.
        events: The events of its elements, by `ts`.
        sealed: The elements that no key opens.
    """

    log: DocumentLog
    start: Start
    events: dict[int, RowEvent]
    sealed: list[Element]

    @property
    def base(self) -> WalCrdt | None:
        """The state that it was read on from."""
        return None if self.start.snapshot is None else self.start.snapshot.crdt

    def entries(self) -> Iterator[Entry]:
        """The elements that count, in the order of the log."""
        for part in self.log.ledger.parts():
            if isinstance(part, Entry):
                yield part
            else:
                yield from map(part.entry, range(len(part)))


def read_history(rules: FoldRules, held: Held) -> ReadLog:
    """Read all elements that are at hand, also those that a snapshot covers."""
    part = part_of(held.events, None)
    start = Start(None, FoldNote())
    if part.gone_upto:
        start = _started(rules, held, part.elements, part.gone_upto) or start
    log = rules.new_log()
    if start.snapshot is not None:
        log.start(start.snapshot.crdt, {}, start.snapshot.ceiling)
    reading = log.read(part.elements)
    sealed = [*log.unreadable.values(), *_never_opened(rules, reading)]
    return ReadLog(log, start, _by_ts(held), sealed)


def read_current(rules: FoldRules, held: Held) -> ReadLog | None:
    """Read a document as whoever opens it does; None if too much of it is gone."""
    part = part_of(held.events, None)
    start = _started(rules, held, part.elements, part.gone_upto)
    if start is None:
        return None
    log = rules.new_log()
    if start.snapshot is not None:
        started(log, start.snapshot)
    log.read(above(part.elements, start.note.base_ts))
    if log.is_out_of_order:
        log.crdt = log.refolded()
    return ReadLog(log, start, _by_ts(held), [*log.unreadable.values()])


@dataclass(frozen=True)
class HistoryStage:
    """Tells who wrote what.

    Attributes:
        trust: Who is believed.
    """

    trust: Trust

    def ops(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each run of ops."""
        rows = (row for rules, held in self.ruled(batches) for row in _op_rows(rules, held))
        return batches_of(rows, OPS)

    def blame(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each stretch that was written in one go."""
        rows = (row for rules, held in self.ruled(batches) for row in _blame_rows(rules, held))
        return batches_of(rows, BLAME)

    def ruled(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[FoldRules, Held]]:
        """Documents, each with the rules that it is read by."""
        with self.trust.opened() as believer:
            folder = believer.folder
            for held in documents(batches):
                if not self.trust.authority.has_owner(held.document):
                    # Nobody has to be asked, and so nothing is waited for.
                    ruled = folder.authority.rules(
                        held.document, identity=folder.identity, records=Records()
                    )
                else:
                    ruled = believer.runner.run(folder.rules(held.document, None))
                yield ruled.rules, held


# ── ops ────────────────────────────────────────────────────────────────────────────────


def _op_rows(rules: FoldRules, held: Held) -> Iterator[list[Any]]:
    read = read_history(rules, held)
    crdt = read.log.fold_on(read.base)
    if read.start.snapshot is not None:
        yield _base_row(held, read.start, crdt)
    for entry in read.entries():
        who = _who(held.document, read.events[entry.ts], entry.header)
        for place, run in enumerate(entry.runs):
            kind, said = _kind_of(run), _said_of(run)
            yield [*who, place, kind, *said, _grown(crdt, run), shown(entry.message)]
    for element in read.sealed:
        who = _who(held.document, read.events[element.ts], _header_of(element.data))
        yield [*who, 0, "sealed", None, None, 0, None, None, 0, None]


def _who(document: str, event: RowEvent, header: Header | None) -> list[Any]:
    session, seq = (None, None) if header is None else (header.session, header.seq)
    times = event.seq, event.ts, event.accepted_ms
    return [document, *times, event.id, event.author, shown(session), seq]


def _base_row(held: Held, start: Start, crdt: WalCrdt) -> list[Any]:
    """What was there before the first element that is at hand."""
    size = sum(crdt.list_length(name) for name in crdt.list_names())
    gone = [each for each in held.events if each.payload is None and each.ts <= start.upto_ts]
    last = gone[-1] if gone else held.events[0]
    who = [held.document, last.seq, start.upto_ts, last.accepted_ms, None, None, None, None]
    return [*who, 0, "base", None, None, size, None, None, size, None]


def _grown(crdt: WalCrdt, run: Run) -> int:
    """Fold a run, and tell by how many elements all lists together have grown."""
    changes: list[Change] = []
    crdt.fold_runs((run,), changes)
    return sum(
        len(change.inserted) - change.removed
        for change in changes
        if isinstance(change, ListChanged)
    )


def _kind_of(run: Run) -> str:
    if isinstance(run, Verbatim):
        return _KINDS.get(run.op["t"], "other")
    return type(run).__name__.lower()


def name_of(run: Run) -> str:
    """What a run is of: a list, a register or a map."""
    return _said_of(run)[0] or ""


def _said_of(run: Run) -> _Said:
    match run:
        case Insert():
            values = run.values
            if isinstance(values, str):
                return shown(run.list), None, len(values), values, None
            return shown(run.list), None, len(values), None, canonical_text(values)
        case Remove():
            return shown(run.list), None, run.size, None, None
        case Set():
            return shown(run.register), None, 1, None, canonical_text(run.value)
        case Delete():
            return shown(run.register), None, 1, None, None
        case Put():
            return shown(run.map), shown(run.key), 1, None, canonical_text(run.value)
        case Drop():
            return shown(run.map), shown(run.key), 1, None, None
        case Verbatim():
            return _said_of_op(run.op)
        case _:
            assert_never(run)


def _said_of_op(op: dict[str, Any]) -> _Said:
    names = [op[member] for member in ("list", "reg", "map") if isinstance(op.get(member), str)]
    key = op.get("key")
    value = canonical_text(op["value"]) if "value" in op else None
    return (
        shown(names[0]) if names else None,
        shown(key) if isinstance(key, str) else None,
        1,
        None,
        value,
    )


def _header_of(data: dict[str, Any]) -> Header | None:
    try:
        return read_header(data)
    except MalformedError:
        return None


# ── blame ──────────────────────────────────────────────────────────────────────────────


def _blame_rows(rules: FoldRules, held: Held) -> Iterator[list[Any]]:
    read = read_current(rules, held)
    if read is None:
        return
    crdt = read.log.crdt
    for name in crdt.names():
        pieces = _Pieces(crdt, name)
        for blame in blame_of(crdt, name, read.log.ledger):
            event = None if blame.ts is None else read.events.get(blame.ts)
            when = [None, None, None] if event is None else [*_when(event)]
            key, text = pieces.of(blame)
            place = [held.document, shown(name), key, blame.start, blame.size, text]
            yield [*place, shown(blame.author), blame.ts, *when]


def _when(event: RowEvent) -> tuple[int, int, str]:
    return event.seq, event.accepted_ms, event.id


class _Pieces:
    """What stretches of a list, keys of a map or a register hold."""

    def __init__(self, crdt: WalCrdt, name: str) -> None:
        self._text: str | None = None
        self._values: list[Any] = []
        self._keys: list[str] = []
        if crdt.has_register(name):
            self._values = [crdt.get_register(name)]
        elif name in crdt.lists and crdt.is_text(name):
            self._text = crdt.text(name)
        elif name in crdt.lists:
            self._values = crdt.list_values(name)
        else:
            items = crdt.map_items(name)
            self._keys, self._values = list(items), list(items.values())

    def of(self, blame: Blame) -> tuple[str | None, str | None]:
        """The key, if it is one of a map, and the text; what is no text is JSON."""
        end = blame.start + blame.size
        if self._text is not None:
            return None, self._text[blame.start : end]
        if self._keys:
            return shown(self._keys[blame.start]), canonical_text(self._values[blame.start])
        values = self._values[blame.start : end]
        return None, canonical_text(values if blame.size > 1 else values[0])


# ── reading ────────────────────────────────────────────────────────────────────────────


def _started(
    rules: FoldRules, held: Held, elements: Sequence[RawElement], gone_upto: int
) -> Start | None:
    """Where a document begins: at nothing, or at a snapshot; None if neither will do."""
    texts = [each.payload for each in held.events if each.kind == "snapshot"]
    snapshots = [each for text in texts for each in parsed(text)]
    try:
        start = Start(None, FoldNote())
        return based(rules, start, snapshots, elements, gone_upto, [], is_final=True)
    except NotEnoughError:
        return None


def _never_opened(rules: FoldRules, reading: Reading) -> Iterator[Element]:
    """The elements that are sealed where nobody has said that anything is, nor given a key."""
    if type(rules.encryptor) is not PlainEncryptor:
        return
    for event in reading.events:
        if isinstance(event, Rejection) and event.proven and event.reason == str(_SEAL_REJECTED):
            element = read_element(event.evidence)
            body = element.data.get("body") if element.data.get("v") == 2 else element.data
            if isinstance(body, dict) and ("_sealed" in body or "_encrypted" in body):
                yield element


def _by_ts(held: Held) -> dict[int, RowEvent]:
    # What is called anything else is read as an element, as by whoever folds.
    return {event.ts: event for event in held.events if event.kind != "snapshot"}
