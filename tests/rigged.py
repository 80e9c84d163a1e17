"""A log and a snapshot store in the hands of whoever wants to do harm, and elements made to hurt.

- `RiggedLog` keeps the promises of a transport until a test breaks one: its `elements` are plain
  JSON, to be replayed, moved, dropped, altered or added to.
- `Gates` suspend a transport wherever a test wants to look, and nothing ever sleeps.
- `write_packed` and `write_starfish` sign whatever they are given, as a hostile writer would.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

from anyio.lowlevel import checkpoint

from walstore.canon import canonical_text, parse
from walstore.crdt import Run, pack_ops
from walstore.document import Body, SnapshotConflictError, StoredSnapshot, WalDocument
from walstore.errors import TransportError
from walstore.sealed import ContentKeys, NativeEncryptor, SealContext
from walstore.signed import Domain, Identity, link, sign_append, sign_document, signing_input

KEY = "spaces/s1/doc"
ALICE, BOB, CAROL, MALLORY = (Identity.from_seed(bytes([i]) * 32) for i in (1, 2, 3, 4))
MEMBERS = frozenset({ALICE.public_key, BOB.public_key, CAROL.public_key})

JsonElement: TypeAlias = dict[str, Any]


def document(transport: Any, who: Identity = ALICE, **options: Any) -> WalDocument:
    """A document of the members; every option may be given."""
    options = {
        "document_key": KEY,
        "writers": MEMBERS,
        "snapshot_role": MEMBERS,
        "transport": transport,
        "identity": who,
        **options,
    }
    return WalDocument(**options)


async def opened(transport: Any, who: Identity = ALICE, **options: Any) -> WalDocument:
    """The same, open."""
    return await document(transport, who, **options).open()


def keyed(*epochs: int) -> NativeEncryptor:
    """Seals and opens with the keys of some epochs, in the newest of them."""
    keys = {epoch: bytes([epoch]) * 32 for epoch in epochs}
    return NativeEncryptor(ContentKeys(max(epochs), keys), randomness=os.urandom)


def state_of(doc: WalDocument) -> str:
    """What two documents of equal content share, tombstones and clocks included."""
    return doc._log.crdt.canonical_state()


def counter_of(doc: WalDocument) -> int:
    """The highest counter that a document has stamped or seen."""
    return doc._log.crdt.counter


class RiggedLog:
    """One log, as honest as the test lets it be."""

    def __init__(self, elements: Iterable[JsonElement] = (), *, page_size: int = 1000) -> None:
        self.elements = [deepcopy(element) for element in elements]
        self.page_size = page_size
        # The relay goes on counting from here, whatever it has pruned.
        self.newest_ts = max((each["ts"] for each in self.elements), default=0)
        # Every body that was ever handed in, in order, stored or not.
        self.received: list[Body] = []

    async def append(self, document_key: str, body: Body) -> int:
        self.received.append(body)
        for element in self.elements:
            if element["authorSignature"] == body.signature:
                return int(element["ts"])
        return self.add(deepcopy(body.data), body.author, body.signature)

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        above = [each for each in self.elements if _is_above(each["ts"], checkpoint)]
        return deepcopy(above[: self.page_size])

    # ── what a hostile relay does ──────────────────────────────────────────────────────

    def add(self, data: Any, author: str, signature: str, *, ts: Any = None) -> int:
        """Store anything at the end of the log, under the next `ts` or a given one."""
        stamped = self.newest_ts + 1 if ts is None else ts
        if type(stamped) is int:
            self.newest_ts = max(self.newest_ts, stamped)
        self.elements.append(
            {"ts": stamped, "data": data, "authorPubkey": author, "authorSignature": signature}
        )
        return stamped if isinstance(stamped, int) else 0

    def replay(self, place: int) -> None:
        """Store an element once more, under a new `ts`."""
        element = self.elements[place]
        self.add(element["data"], element["authorPubkey"], element["authorSignature"])

    def served(self, places: Iterable[int] | None = None, **options: Any) -> RiggedLog:
        """Another log with some of the elements, in any order, under rising `ts`."""
        chosen = range(len(self.elements)) if places is None else places
        return RiggedLog(
            [{**self.elements[place], "ts": ts} for ts, place in enumerate(chosen, start=1)],
            **options,
        )

    def prune(self, upto: int) -> None:
        """Forget all elements up to a `ts`."""
        self.elements = [element for element in self.elements if element["ts"] > upto]

    def kept(self, keep: Callable[[JsonElement], bool], **options: Any) -> RiggedLog:
        """Another log with those elements that a test keeps, under their own `ts`."""
        return RiggedLog(filter(keep, self.elements), **options)


def _is_above(ts: Any, checkpoint: int) -> bool:
    """Whether an element is new; what has no place in the order is new every time."""
    return not isinstance(ts, (int, float)) or ts > checkpoint


class RiggedSnapshots:
    """One snapshot document; `document` is what the store claims to hold."""

    def __init__(self, stored: object = None) -> None:
        self.document = stored
        self.writes: list[dict[str, Any]] = []
        # Called before every write, to let somebody else come first.
        self.before_write: Callable[[], None] = lambda: None

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        if self.document is None:
            return None
        text = canonical_text(self.document)
        return StoredSnapshot(parse(text), text)

    async def write(
        self, snapshot_key: str, document: dict[str, Any], revision: str | None
    ) -> None:
        before, self.before_write = self.before_write, lambda: None
        before()
        stored = await self.read(snapshot_key)
        if (None if stored is None else stored.revision) != revision:
            raise SnapshotConflictError
        self.writes.append(document)
        self.document = parse(canonical_text(document))


class OfflineError(TransportError):
    """The network is gone for a while."""

    def __init__(self) -> None:
        super().__init__("offline", retryable=True)


class Gates:
    """The places where something waits until the test lets it go on."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Event] = []

    async def wait(self) -> None:
        gate = asyncio.Event()
        self._waiting.append(gate)
        await gate.wait()

    @property
    def waits(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting)

    async def reached(self) -> None:
        """Wait until somebody waits."""
        while not self._waiting:
            await checkpoint()

    def release(self, choice: int = 0) -> None:
        """Let one of those that wait go on."""
        self._waiting.pop(choice % len(self._waiting)).set()

    async def run(self, tasks: Sequence[asyncio.Task[Any]], choose: Callable[[], int]) -> None:
        """Let those that wait go on in an order that `choose` makes up, until all is done."""
        while not all(task.done() for task in tasks):
            for _ in range(4):
                await checkpoint()
            if self._waiting:
                self.release(choose())
        for task in tasks:
            task.result()


# ── elements of hostile writers ────────────────────────────────────────────────────────


def link_of(element: Mapping[str, Any], document_key: str = KEY) -> str:
    """The link that the author's next element names."""
    return link(
        signing_input(Domain.APPEND, document_key, element["data"]),
        author_pubkey=element["authorPubkey"],
        author_signature=element["authorSignature"],
    )


def signed(data: Any, author: Identity, *, document_key: str = KEY) -> JsonElement:
    """An element without a `ts`, well signed whatever it holds."""
    proof = sign_append(document_key, data, author)
    return {
        "data": data,
        "authorPubkey": proof.author_pubkey,
        "authorSignature": proof.author_signature,
    }


def write_starfish(
    author: Identity, ops: Sequence[Any], *, seq: Any = 1, **members: Any
) -> JsonElement:
    """A signed version-1 element."""
    data = {"v": 1, "author": author.public_key, "seq": seq, "ops": list(ops), **members}
    return signed(data, author)


def write_packed(
    author: Identity,
    runs: Sequence[Run],
    *,
    session: str = "s",
    seq: int = 1,
    prev: str | None = None,
    **members: Any,
) -> JsonElement:
    """A signed version-2 element."""
    data: dict[str, Any] = {"v": 2, "author": author.public_key, "session": session, "seq": seq}
    if prev is not None:
        data["prev"] = prev
    return signed({**data, "body": {"ops": pack_ops(list(runs))}, **members}, author)


def write_sealed(
    author: Identity, runs: Sequence[Run], *, epoch: int, seq: int = 1, **members: Any
) -> JsonElement:
    """The same, sealed with the key of an epoch."""
    context = SealContext(KEY, author.public_key, seq)
    body = keyed(epoch).seal({"ops": pack_ops(list(runs))}, context)
    return write_packed(author, runs, seq=seq, body=body, **members)


def put_in(log: RiggedLog, element: JsonElement, **options: Any) -> JsonElement:
    """Store an element and hand it back."""
    log.add(element["data"], element["authorPubkey"], element["authorSignature"], **options)
    return element


def spoiled(element: JsonElement) -> JsonElement:
    """The same element with a signature that does not fit."""
    return {**element, "authorSignature": "A" * 86 + "=="}


def signed_snapshot(content: Mapping[str, Any], author: Identity) -> dict[str, Any]:
    """A snapshot document with a good signature over whatever it says."""
    proof = sign_document(KEY + "__snapshot", dict(content), author)
    return {
        **content,
        "authorPubkey": proof.author_pubkey,
        "authorSignature": proof.author_signature,
    }


def set_op(author: Identity, counter: Any, value: Any, register: str = "title") -> dict[str, Any]:
    """A version-1 write of a register by session `s` of an author."""
    clock = {"c": counter, "r": f"{author.public_key}:s"}
    return {"t": "set", "reg": register, "clock": clock, "value": value}
