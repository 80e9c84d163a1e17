"""Checks the rows of a sealed archive, without a relay and without keys.

- An element is what it is called: its id is recomputed from its bytes, its author's signature or a
  later element that is linked to it proves it, and nothing that stands beside it says otherwise.
- A snapshot is what it is called, its producer has signed it, and what stands beside it is in it.
- In each document the order is strict: seq and `ts` both rise, and no seq is used twice anywhere.
- What a signature does not cover, and no order needs, proves nothing and harms nobody: when
  something was accepted, or what is said of bytes that the relay had let go.
- What a writer links to and is not there is told as missing. It may be below the first row, or gone
  from the relay before it was archived: that is no flaw of the archive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import chain
from typing import Final, Literal, NamedTuple, TypeGuard

from walstore.archive.rows import Row
from walstore.archive.sealed import COLUMNS
from walstore.canon import parse
from walstore.document.gaps import SequenceTracker
from walstore.document.snapshot import SNAPSHOT_SUFFIX
from walstore.errors import MalformedError
from walstore.signed.author import Domain, SigningFrame, verify_document
from walstore.signed.chain import ChainColumns, ChainElement, Head, Verdict, check_chain
from walstore.wire.element import read_raw_element
from walstore.wire.envelope import read_header
from walstore.wire.limits import TS_MAX

# Elements that are proven together: enough to share signature checks, few enough to hold.
_BATCH: Final = 512

# A page of the map of seqs that were met, in bits.
_PAGE_BITS: Final = 2**16

_NAMES: Final = frozenset(column.name for column in COLUMNS)

NO_PLACE: Final = "it has no document or no seq"

_SIGNED: Final = ("state", "uptoTs", "writerSeq", "producedBy")


class Judged(NamedTuple):
    """What is to be thought of a row.

    Attributes:
        row: The row.
        seq: Its seq.
        verdict: Whether its own signature proves it, a later element that is linked to it, or
            nothing; gone if it has no bytes to check.
        reasons: What is wrong with it; only what is rejected has any.
    """

    row: Row
    seq: int
    verdict: Literal["signed", "linked", "gone", "rejected"]
    reasons: Sequence[str] = ()


class Flaw(NamedTuple):
    """A row that is not what it says.

    Attributes:
        document: Its document, as far as that can be told.
        seq: Its seq, as far as that can be told.
        reason: What is wrong.
    """

    document: str
    seq: int
    reason: str


class Missing(NamedTuple):
    """Elements that others count on, and that are not in the archive."""

    document: str
    author: str
    session: str
    first: int
    end: int


class Verification(NamedTuple):
    """What came of checking.

    Attributes:
        rows: How many rows there were.
        documents: Of how many documents.
        unverifiable: How many of them have no bytes to check.
        flaws: What is wrong.
        missing: What is not there.
    """

    rows: int
    documents: int
    unverifiable: int
    flaws: list[Flaw]
    missing: list[Missing]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.flaws


def verify_rows(rows: Iterable[Row]) -> Verification:
    """Check the rows of a table, in the order of their keys; they are read once, as a stream."""
    checker = _Checker()
    for row in rows:
        checker.take(row)
    return checker.end()


class _Element(NamedTuple):
    row: Row
    seq: int
    chain: ChainElement
    reasons: list[str]


class _Checker:
    """Goes through the rows, one document after the other."""

    def __init__(self) -> None:
        self._rows = self._documents = self._unverifiable = 0
        self._flaws: list[Flaw] = []
        self._missing: list[Missing] = []
        self._seen: dict[int, bytearray] = {}
        self._document: DocumentVerifier | None = None

    def take(self, row: Row) -> None:
        """Check the next row."""
        self._rows += 1
        key, seq = row.get("document"), row.get("seq")
        if not isinstance(key, str) or not is_seq(seq):
            place = key if isinstance(key, str) else "", seq if type(seq) is int else 0
            self._flaws.append(Flaw(*place, NO_PLACE))
            return
        if self._document is None or key != self._document.key:
            self._turn_to(key, seq)
        assert self._document is not None
        if not self._is_new(seq):
            self._flaws.append(Flaw(key, seq, "its seq is used twice"))
        self._note(key, self._document.take(row, seq))

    def end(self) -> Verification:
        """What was found in all of them."""
        self._close()
        self._flaws.sort()
        return Verification(
            self._rows, self._documents, self._unverifiable, self._flaws, self._missing
        )

    def _turn_to(self, key: str, seq: int) -> None:
        if self._document is not None and key < self._document.key:
            self._flaws.append(Flaw(key, seq, "its document comes too late"))
        self._close()
        self._document = DocumentVerifier(key)
        self._documents += 1

    def _close(self) -> None:
        if self._document is not None:
            self._note(self._document.key, self._document.end())
            self._missing += self._document.missing()
            self._unverifiable += self._document.unverifiable

    def _note(self, key: str, judged: Iterable[Judged]) -> None:
        for each in judged:
            self._flaws += [Flaw(key, each.seq, reason) for reason in each.reasons]

    def _is_new(self, seq: int) -> bool:
        page, place = divmod(seq, _PAGE_BITS)
        bits = self._seen.setdefault(page, bytearray(_PAGE_BITS // 8))
        index, mask = place // 8, 1 << place % 8
        is_new = not bits[index] & mask
        bits[index] |= mask
        return is_new


def is_seq(value: object) -> TypeGuard[int]:
    """Whether a value can be a seq."""
    return type(value) is int and 0 < value <= TS_MAX


class DocumentVerifier:
    """Checks the rows of one document, in the order of their seqs; each is judged once.

    An element waits for those after it, as many as are proven together; one that nothing proves
    waits until the end.
    """

    def __init__(self, key: str) -> None:
        """Check the rows of a document."""
        self.key = key
        self.unverifiable = 0
        self._frame = SigningFrame(Domain.APPEND, key)
        self._seq = self._ts = 0
        self._batch: list[_Element] = []
        self._judged: list[Judged] = []
        self._heads: dict[str, frozenset[Head]] = {}
        # Those that nothing proves so far, by link; copies of one have the same.
        self._unproven: dict[str, list[_Element]] = {}
        self._tracker = SequenceTracker()

    def take(self, row: Row, seq: int) -> list[Judged]:
        """Check the next row; what can be said by now, of this one or of those before."""
        reasons: list[str] = []
        if seq <= self._seq:
            reasons.append("its seq does not rise")
        self._seq = max(self._seq, seq)
        try:
            if not row.keys() <= _NAMES:
                raise MalformedError("row", "it has a member that is no column")
            if row.get("kind") == "element":
                self._take_element(row, seq, reasons)
            elif row.get("kind") == "snapshot":
                self._take_snapshot(row, seq, reasons)
            else:
                raise MalformedError("row", "it is neither an element nor a snapshot")
        except MalformedError as error:
            self._judge(row, seq, "rejected", [*reasons, error.reason])
        return self._told()

    def end(self) -> list[Judged]:
        """What is to be said of those that were waiting."""
        self._prove()
        for element in chain.from_iterable(self._unproven.values()):
            reasons = [*element.reasons, "nothing proves that its author has signed it"]
            self._judge(element.row, element.seq, "rejected", reasons)
        self._unproven = {}
        return self._told()

    def _told(self) -> list[Judged]:
        judged, self._judged = self._judged, []
        return judged

    def _judge(
        self,
        row: Row,
        seq: int,
        verdict: Literal["signed", "linked", "gone", "rejected"],
        reasons: Sequence[str],
    ) -> None:
        self._judged.append(Judged(row, seq, "rejected" if reasons else verdict, reasons))

    def missing(self) -> list[Missing]:
        """What is not there."""
        if self.unverifiable:
            # What has no bytes has no count: who knows whether it is missing.
            return []
        return [
            Missing(self.key, gap.author, gap.session or "", gap.expected, gap.got)
            for gap in self._tracker.gaps()
        ]

    def _take_element(self, row: Row, seq: int, reasons: list[str]) -> None:
        ts, author, signature = (row.get(name) for name in ("ts", "author", "signature"))
        if not (_is_ts(ts) and isinstance(author, str) and isinstance(signature, str)):
            raise MalformedError("row", "it has no ts, author or signature")
        _check_beside(row, vc={}, deleted=False)
        if ts <= self._ts:
            reasons.append("its ts does not rise")
        self._ts = max(self._ts, ts)
        data = row.get("data")
        if data is None:
            self.unverifiable += 1
            self._judge(row, seq, "gone", reasons)
            return
        text = _utf8(data)
        element = read_raw_element(ts, text, author, signature)
        if element.canonical != text:
            raise MalformedError("row", "its bytes are not those that were signed")
        header = read_header(element.data)
        session, count, prev = ("", 0, None) if header is None else header[:3]
        signed = self._frame.around(text)
        linked = ChainElement(author, session, count, prev, signed, signature)
        self._batch.append(_Element(row, seq, linked, reasons))
        if header is not None:
            self._tracker.note(author, session, count)
        if len(self._batch) == _BATCH:
            self._prove()

    def _take_snapshot(self, row: Row, seq: int, reasons: list[str]) -> None:
        data = row.get("data")
        if data is None:
            self.unverifiable += 1
            self._judge(row, seq, "gone", reasons)
            return
        text = _utf8(data)
        if sha256(text).hexdigest() != row.get("id"):
            raise MalformedError("row", "its id is another one's")
        document = parse(text)
        if not isinstance(document, dict):
            raise MalformedError("row", "it is no snapshot")
        content = {name: document.get(name) for name in _SIGNED}
        author, proof = document.get("authorPubkey"), document.get("authorSignature")
        if not verify_document(self.key + SNAPSHOT_SUFFIX, content, author, proof):
            raise MalformedError("row", "nothing proves that its producer has signed it")
        if (row.get("author"), row.get("signature"), row.get("ts")) != (
            author,
            "",
            document.get("uptoTs"),
        ):
            raise MalformedError("row", "what stands beside it is not in it")
        _check_beside(row, vc=document.get("writerSeq"), deleted=document.get("state") is None)
        self._judge(row, seq, "signed", reasons)

    def _prove(self) -> None:
        batch, self._batch = self._batch, []
        if not batch:
            return
        report = check_chain(ChainColumns(element.chain for element in batch), self._heads)
        self._heads = {
            writer: frozenset(head for head in heads if head.session)
            for writer, heads in report.heads.items()
        }
        for element, verdict, link in zip(batch, report.verdicts, report.links, strict=True):
            if link is None:
                reasons = [*element.reasons, "its key or signature is not in the strict form"]
                self._judge(element.row, element.seq, "rejected", reasons)
                continue
            if link != element.row.get("id"):
                element.reasons.append("its id is another one's")
            if verdict.accepted:
                is_signed = verdict is Verdict.SIGNED
                verdict_now: Literal["signed", "linked"] = "signed" if is_signed else "linked"
                self._judge(element.row, element.seq, verdict_now, element.reasons)
                self._vouch(element.chain)
            else:
                self._unproven.setdefault(link, []).append(element)

    def _vouch(self, proven: ChainElement) -> None:
        """A proven element proves what it is linked to, however far back that is."""
        while proven.prev in self._unproven:
            before = self._unproven[proven.prev]
            writer = before[0].chain.writer
            if writer != proven.writer or proven.prev.encode() not in proven.signed:
                return
            del self._unproven[proven.prev]
            for each in before:
                self._judge(each.row, each.seq, "linked", each.reasons)
            proven = before[0].chain


def _is_ts(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= TS_MAX


def _check_beside(row: Row, *, vc: object, deleted: bool) -> None:
    """What a relay says of an event has to be what the event itself says."""
    is_timed = _is_ts(row.get("accepted_ms"))
    if row.get("vc") != vc or row.get("deleted") is not deleted or not is_timed:
        raise MalformedError("row", "what stands beside it is not in it")


def _utf8(text: object) -> bytes:
    if not isinstance(text, str):
        raise MalformedError("row", "its bytes are not text")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise MalformedError("row", "its bytes are not text") from error
