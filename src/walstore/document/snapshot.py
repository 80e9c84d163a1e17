"""Signed snapshots: what they hold, how they are made, and when they are believed.

- A snapshot covers every element up to `uptoTs` and nothing else.
- It is believed only if the signature is good, the producer is the signer, and that key holds
  the snapshot role. Who merely lacks the role is ignored; who forges is reported.
- Its state is version 1 or packed. Extensions are inside, under `x`: the highest counter of the
  log (a removed element's remover has left no other trace), that of those that do not count, if it
  is higher (who had not heard of it has written above it), and the heads of the sessions that it
  covers, so that the tail links up.
- `writerSeq` counts by author, as peers do: it is what they go on from. How many elements of each
  session there are, so that the tail counts on, is in `x` of version 1; a packed snapshot has it in
  `writerSeq` too, where a relay can see which of two snapshots covers more.
- A *barrier* is a snapshot that has let go of removed elements. Whoever folded less, or the same
  without letting go, starts from it; it is never joined with anything older. Those that build
  on it name all such cuts, so that the log can be folded to the same.
- A snapshot whose state is null says that the document is deleted: everything was let go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import lt
from types import MappingProxyType
from typing import Any, NamedTuple

from walstore.canon import FORBIDDEN_NAMES
from walstore.crdt import COUNTER_MAX, WalCrdt
from walstore.document.events import Rejection
from walstore.errors import MalformedError
from walstore.sealed.encryptor import Encryptor, SealContext
from walstore.signed.author import sign_document, verify_document
from walstore.signed.chain import Head
from walstore.signed.identity import Identity
from walstore.wire.envelope import Profile, is_counted_writer
from walstore.wire.limits import SESSION_SIZE_MAX, TS_MAX

_WHAT = "snapshot"
SNAPSHOT_SUFFIX = "__snapshot"


class Cut(NamedTuple):
    """Where a document has let go of something.

    Attributes:
        ts: The last element before it.
        horizon: The highest counter before it. The highest there can be says that everything was
            let go, not only what was removed: the document was deleted.
    """

    ts: int
    horizon: int

    @property
    def is_deletion(self) -> bool:
        """Whether everything was let go."""
        return self.horizon == COUNTER_MAX

    @property
    def place(self) -> tuple[int, bool]:
        """What tells it from others; where more or less counts, the counter is another one."""
        return self.ts, self.is_deletion

    def is_after(self, other: Cut) -> bool:
        """Whether it has let go of more."""
        return self.place > other.place


def newest_cut(cuts: Sequence[Cut]) -> Cut:
    """The last of several cuts; one at 0 if there is none."""
    return cuts[-1] if cuts else Cut(0, 0)


def deletion_cuts(upto_ts: int) -> list[Cut]:
    """The cut of a deletion, which all earlier ones are lost in; none if there was nothing."""
    return [Cut(upto_ts, COUNTER_MAX)] if upto_ts else []


class Snapshot(NamedTuple):
    """A snapshot that was believed, opened and read.

    Attributes:
        crdt: The state that it holds.
        upto_ts: The `ts` of the last element that it covers.
        writer_seq: The highest seq by author that it covers, of those who count so.
        heads: The newest elements by author; empty if the producer names none.
        seqs: The highest seq by replica that it covers; None if the producer does not know all.
        covered: The highest seq by replica before the newest cut; empty if there is none.
        cuts: Where removed elements were let go, ascending.
        produced_by: The key of the producer.
        document: The stored document.
        ceiling: The highest counter of the elements that it covers, whether they count or not.
        rejected: What is still in the way of a snapshot for everybody, if this is one that a reader
            has kept for itself.
        without: Those who were revoked, and had written what it covers and does not count.
        torn: By author, the name of what its producer knew to count of them, where somebody revoked
            has left no unbroken chain of elements.
    """

    crdt: WalCrdt
    upto_ts: int
    writer_seq: Mapping[str, int]
    heads: Mapping[str, frozenset[Head]]
    seqs: Mapping[str, int] | None
    covered: Mapping[str, int]
    cuts: Sequence[Cut]
    produced_by: str
    document: dict[str, Any]
    ceiling: int = 0
    rejected: Sequence[Rejection] = ()
    without: frozenset[str] = frozenset()
    torn: Mapping[str, str] = MappingProxyType({})

    def seq_of(self, author: str, session: str | None) -> int | None:
        """How far it covers a session, or an author who counts without; None if it does not say."""
        if not session:
            return self.writer_seq.get(author, 0)
        return None if self.seqs is None else self.seqs.get(f"{author}:{session}", 0)

    @property
    def barrier(self) -> Cut:
        """The newest cut."""
        return newest_cut(self.cuts)

    @property
    def silent_upto_ts(self) -> int:
        """Up to where it does not name those whose elements it leaves out: a deletion names nobody,
        nor does a peer that knows no sessions.
        """
        if self.seqs is None:
            return self.upto_ts
        return max((cut.ts for cut in self.cuts if cut.is_deletion), default=0)

    @property
    def is_deletion(self) -> bool:
        """Whether it says that the document is deleted."""
        return self.document["state"] is None


class ForgedSnapshotError(MalformedError):
    """A snapshot whose signature is not that of the producer it names."""

    def __init__(self, reason: str) -> None:
        super().__init__(_WHAT, reason)


class ForeignSnapshotError(MalformedError):
    """A snapshot in the name of a key that does not hold the role."""

    def __init__(self, produced_by: str) -> None:
        super().__init__(_WHAT, "its producer does not hold the snapshot role")
        self.produced_by = produced_by


def make_snapshot(
    crdt: WalCrdt,
    *,
    document_key: str,
    upto_ts: int,
    writer_seq: Mapping[str, int],
    heads: Mapping[str, Collection[Head]],
    seqs: Mapping[str, int] | None,
    identity: Identity,
    encryptor: Encryptor,
    profile: Profile,
    cuts: Sequence[Cut] = (),
    covered: Mapping[str, int] | None = None,
    note: Mapping[str, Any] | None = None,
    is_chained: bool = True,
    ceiling: int = 0,
    without: Collection[str] = (),
    torn: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Sign a snapshot document.

    Args:
        crdt: The fold of every element up to `upto_ts`.
        document_key: The key of the document; the snapshot's is derived from it.
        upto_ts: The `ts` of the last element.
        writer_seq: The highest seq by author.
        heads: The newest elements by author.
        seqs: The highest seq by replica; None if not all are known.
        identity: Who holds the snapshot role.
        encryptor: Seals the state under the current key epoch.
        profile: Version 1 or packed.
        cuts: Where the state has let go of removed elements, ascending.
        covered: The highest seq by replica before the last cut; None if that is the snapshot's own.
        note: Further members of `x`.
        is_chained: Whether to add `x`; without it the state is just what peers write.
        ceiling: The highest counter of every element up to `upto_ts`, whether it counts or not.
        without: The revoked who had written what is covered and does not count.
        torn: By author, the name of what counts of the revoked whose elements are no chain.
    """
    state: dict[str, Any]
    counted: dict[str, Any] = {}
    writers = dict(writer_seq)
    if profile is Profile.STARFISH:
        state = crdt.export_state()
        counted = {} if seqs is None else {"seqs": dict(seqs)}
    else:
        state = {"v": 2, "packed": crdt.export_packed()}
        if seqs is not None:
            writers.update(seqs)
            counted = {"sessions": True}
    if is_chained:
        state["x"] = {
            **state.get("x", {}),
            "maxClock": crdt.counter,
            **({"ceiling": ceiling} if ceiling > crdt.counter else {}),
            "heads": {
                author: [[head.link, head.session, head.seq] for head in sorted(own)]
                for author, own in heads.items()
                if own
            },
            **counted,
            **({"barrier": cuts[-1].ts, "cuts": [list(cut) for cut in cuts]} if cuts else {}),
            **_gone_on(seqs or {}, covered if cuts else None),
            **({"without": sorted(without)} if without else {}),
            **({"torn": dict(torn)} if torn else {}),
            **(note or {}),
        }
    key = document_key + SNAPSHOT_SUFFIX
    sealed = encryptor.seal(state, SealContext(key, identity.public_key, upto_ts))
    return _sign(key, sealed, upto_ts, writers, identity)


def _gone_on(seqs: Mapping[str, int], covered: Mapping[str, int] | None) -> dict[str, Any]:
    """What was there before a cut of those sessions that went on since."""
    if covered is None:
        return {}
    before = {replica: covered.get(replica, 0) for replica in seqs}
    gone_on = {replica: seq for replica, seq in before.items() if seq != seqs[replica]}
    return {"covered": gone_on} if gone_on else {}


def make_deletion(
    *,
    document_key: str,
    upto_ts: int,
    writer_seq: Mapping[str, int],
    seqs: Mapping[str, int],
    identity: Identity,
) -> dict[str, Any]:
    """Sign a snapshot document that says that everything up to a `ts` is deleted.

    Args:
        document_key: The key of the document; the snapshot's is derived from it.
        upto_ts: The `ts` of the last element.
        writer_seq: The highest seq by author.
        seqs: The highest seq by replica.
        identity: Who holds the snapshot role.
    """
    key = document_key + SNAPSHOT_SUFFIX
    return _sign(key, None, upto_ts, {**writer_seq, **seqs}, identity)


def _sign(
    key: str,
    state: dict[str, Any] | None,
    upto_ts: int,
    writer_seq: dict[str, int],
    identity: Identity,
) -> dict[str, Any]:
    content = {
        "state": state,
        "uptoTs": upto_ts,
        "writerSeq": writer_seq,
        "producedBy": identity.public_key,
    }
    proof = sign_document(key, content, identity)
    return {
        **content,
        "authorPubkey": proof.author_pubkey,
        "authorSignature": proof.author_signature,
    }


def find_dropped_name(document: dict[str, Any]) -> str | None:
    """A name in a snapshot that a stock server would drop, and the signature with it."""
    level = [document]
    while level:
        for members in level:
            for name in FORBIDDEN_NAMES.intersection(members):
                return name
        # Servers look into objects, not into arrays.
        level = [
            value for members in level for value in members.values() if isinstance(value, dict)
        ]
    return None


def read_snapshot(
    document: object,
    *,
    document_key: str,
    is_producer: Callable[[str], bool],
    encryptor: Encryptor,
) -> Snapshot:
    """Check, open and read a stored snapshot.

    Raises:
        ForgedSnapshotError: The signature does not fit.
        ForeignSnapshotError: The producer does not hold the role.
        UnreadableError: The key of its epoch is not at hand.
        SealRejectedError: The seal does not fit.
        MalformedError: It is not a snapshot.
    """
    if not isinstance(document, dict):
        raise MalformedError(_WHAT, "not an object")
    content = {name: document.get(name) for name in ("state", "uptoTs", "writerSeq", "producedBy")}
    producer, signature = document.get("authorPubkey"), document.get("authorSignature")
    key = document_key + SNAPSHOT_SUFFIX
    if content["producedBy"] != producer or not isinstance(producer, str):
        raise ForgedSnapshotError("its producer is not the signer")
    # To look at the signature takes far longer, and does not make one of them a producer.
    if not is_producer(producer):
        raise ForeignSnapshotError(producer)
    if not verify_document(key, content, producer, signature):
        raise ForgedSnapshotError("its signature does not verify")
    upto_ts = content["uptoTs"]
    if type(upto_ts) is not int or not 0 <= upto_ts <= TS_MAX:
        raise MalformedError(_WHAT, "`uptoTs` is not a `ts`")
    writers = _counts(content["writerSeq"], "writerSeq")
    common = upto_ts, producer, document
    if content["state"] is None and "state" in document:
        return _read_deletion(writers, *common)
    state = encryptor.open(content["state"], SealContext(key, producer, upto_ts))
    return _read_state(state, writers, *common)


def _read_deletion(
    writers: dict[str, int], upto_ts: int, producer: str, document: dict[str, Any]
) -> Snapshot:
    crdt = WalCrdt()
    cuts = deletion_cuts(upto_ts)
    if cuts:
        # Whatever is not there from now on, whoever wrote it, was deleted.
        crdt.horizon = COUNTER_MAX
    authors, sessions = _split(writers)
    covered = sessions if cuts else {}
    return Snapshot(crdt, upto_ts, authors, {}, sessions, covered, cuts, producer, document)


def _read_state(
    state: dict[str, Any],
    writers: dict[str, int],
    upto_ts: int,
    producer: str,
    document: dict[str, Any],
) -> Snapshot:
    crdt = WalCrdt()
    extension = state.get("x")
    fields = extension if isinstance(extension, dict) else {}
    seqs = _counts(fields["seqs"], "seqs") if "seqs" in fields else None
    if state.get("v") == 2:
        crdt.import_packed(state.get("packed"))
        writers, sessions = _split(writers)
        if fields.get("sessions") is True and seqs is None:
            seqs = sessions
    else:
        crdt.import_state(state)
    crdt.counter = max(crdt.counter, _counter(fields, "maxClock"))
    ceiling = max(crdt.counter, _counter(fields, "ceiling"))
    cuts = _cuts(fields.get("cuts", []), upto_ts)
    crdt.horizon = max((cut.horizon for cut in cuts), default=0)
    heads = _heads(fields.get("heads", {}))
    covered = _covered(fields.get("covered", {}), seqs or {}) if cuts else {}
    named, torn = fields.get("without"), fields.get("torn")
    return Snapshot(
        crdt,
        upto_ts,
        writers,
        heads,
        seqs,
        covered,
        cuts,
        producer,
        document,
        ceiling,
        _rejected(fields.get("rejected")),
        frozenset(filter(_is_text, named if isinstance(named, list) else ())),
        torn if isinstance(torn, dict) else {},
    )


def _split(writers: dict[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Counts by author, and counts by session."""
    authors = {writer: seq for writer, seq in writers.items() if ":" not in writer}
    sessions = {writer: seq for writer, seq in writers.items() if ":" in writer}
    return authors, sessions


def same_state(fold: WalCrdt, snapshot: Snapshot) -> bool:
    """Whether a log's fold is what a snapshot holds."""
    # A peer that knows no sessions knows no maps either, and cannot be held to them.
    maps = snapshot.seqs is not None
    return fold.is_same(snapshot.crdt, maps=maps)


def _counter(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name, 0)
    if type(value) is not int or not 0 <= value <= COUNTER_MAX:
        raise MalformedError(_WHAT, f"`{name}` is not a counter")
    return value


def _cuts(value: object, upto_ts: int) -> list[Cut]:
    cuts = [_cut(pair) for pair in value] if isinstance(value, list) else None
    if cuts is None or not all(map(lt, [0, *[cut.ts for cut in cuts]], [cut.ts for cut in cuts])):
        raise MalformedError(_WHAT, "`cuts` are not ascending")
    if cuts and cuts[-1].ts > upto_ts:
        raise MalformedError(_WHAT, "a cut is above `uptoTs`")
    return cuts


def _cut(value: object) -> Cut:
    match value:
        case [int(ts), int(horizon)] if (
            type(ts) is type(horizon) is int and ts > 0 and 0 < horizon <= COUNTER_MAX
        ):
            return Cut(ts, horizon)
        case _:
            raise MalformedError(_WHAT, "a cut is not a `ts` and a counter")


def _counts(value: object, name: str) -> dict[str, int]:
    if not isinstance(value, dict):
        raise MalformedError(_WHAT, f"`{name}` is not an object")
    for writer, seq in value.items():
        if not is_counted_writer(writer) or type(seq) is not int or not 0 <= seq <= COUNTER_MAX:
            raise MalformedError(_WHAT, f"`{name}` does not count by writer")
    return value


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _rejected(value: object) -> list[Rejection]:
    found = []
    for each in value if isinstance(value, list) else ():
        match each:
            case [int(ts), str(author), str(reason)]:
                found.append(Rejection(ts, author, reason, None, proven=True))
    return found


def _covered(value: object, seqs: Mapping[str, int]) -> dict[str, int]:
    gone_on = _counts(value, "covered")
    if any(seq >= seqs.get(replica, 0) for replica, seq in gone_on.items()):
        raise MalformedError(_WHAT, "`covered` names a session that has not gone on")
    return {**seqs, **gone_on}


def _heads(value: object) -> dict[str, frozenset[Head]]:
    if not isinstance(value, dict):
        raise MalformedError(_WHAT, "`heads` is not an object")
    return {author: frozenset(map(_head, _array(own))) for author, own in value.items()}


def _array(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise MalformedError(_WHAT, "heads are not an array")
    return value


def _head(value: object) -> Head:
    match value:
        case [str(link), str(session), int(seq)] if (
            len(link) == 64
            and len(session) <= SESSION_SIZE_MAX
            and type(seq) is int
            and 1 <= seq <= COUNTER_MAX
        ):
            return Head(link, session, seq)
        case _:
            raise MalformedError(_WHAT, "a head is not a link, a session and a seq")
