"""walstore, through its public names; what it does not offer yet is reported as such.

- A transaction is an edit and taking what it recorded, as a sender does.
- A message is a packed batch as JSON; a history or a snapshot is packed and deflated.
- Signed edits and whole values go through `WalDocument`, over a log in memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import zlib
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from benchmarks.adapters.base import AbsentError, Adapter, Edit

orjson = import_module("orjson")
crdt = import_module("walstore.crdt")

_LIST = "text"
_KEY = "bench/document"
_REPLICA = "a1" * 32 + ":0"


class Document:
    """A CRDT, the writer that edits it, and the messages that it sent."""

    __slots__ = ("crdt", "messages", "writer")

    def __init__(self, replica: str = _REPLICA) -> None:
        self.crdt = crdt.WalCrdt()
        self.writer = crdt.Writer(self.crdt, replica)
        self.messages: list[bytes] = []


class Library(Adapter):
    """walstore, positions in code points."""

    def edit_each(self, edits: Iterable[Edit]) -> Document:
        document = Document()
        self.edit_on(document, edits)
        return document

    def edit_on(self, document: Document, edits: Iterable[Edit]) -> None:
        writer = document.writer
        insert, remove, take = writer.insert_text, writer.remove, writer.take
        for position, deleted, inserted in edits:
            if deleted:
                remove(_LIST, position, deleted)
            if inserted:
                insert(_LIST, position, inserted)
            take()

    def edit_bursts(self, bursts: list[list[Edit]]) -> Document:
        document = Document()
        writer = document.writer
        insert, remove, take = writer.insert_text, writer.remove, writer.take
        for burst in bursts:
            for position, deleted, inserted in burst:
                if deleted:
                    remove(_LIST, position, deleted)
                if inserted:
                    insert(_LIST, position, inserted)
            take()
        return document

    def edit_and_emit(self, edits: list[Edit]) -> tuple[Document, list[bytes]]:
        document = Document()
        writer, messages, dumps = document.writer, document.messages, orjson.dumps
        insert, remove, take = writer.insert_text, writer.remove, writer.take
        pack_ops = _public("walstore.crdt", "pack_ops")
        for position, deleted, inserted in edits:
            if deleted:
                remove(_LIST, position, deleted)
            if inserted:
                insert(_LIST, position, inserted)
            # orjson's result keeps the buffer it was written into: a kept one is copied.
            messages.append(bytes(memoryview(dumps(pack_ops(take())))))
        return document, messages

    def receive(self, messages: list[bytes]) -> Document:
        document = Document()
        fold, loads = document.crdt.fold_runs, orjson.loads
        unpack_ops = _public("walstore.crdt", "unpack_ops")
        for message in messages:
            fold(unpack_ops(loads(message)))
        return document

    def text(self, document: Any) -> str:
        holder = document.crdt if isinstance(document, Document) else document
        return str(holder.text(_LIST))

    def from_ops(self, ops: list[dict[str, Any]]) -> Document:
        document = Document()
        document.crdt.fold(ops)
        return document

    def materialize(self, document: Document) -> dict[str, Any]:
        content: dict[str, Any] = document.crdt.materialize()
        return content

    def history(self, document: Document) -> bytes:
        pack_ops, unpack_ops = (_public("walstore.crdt", n) for n in ("pack_ops", "unpack_ops"))
        runs = [run for m in document.messages for run in unpack_ops(orjson.loads(m))]
        # The way through version 1 joins what was taken edit by edit.
        return _deflated(pack_ops(crdt.to_runs(crdt.to_ops(runs))))

    def from_history(self, history: bytes) -> Document:
        return self.receive([zlib.decompress(history)])

    def snapshot(self, document: Document) -> bytes:
        return _deflated(_method(document.crdt, "export_packed")())

    def from_snapshot(self, snapshot: bytes) -> Document:
        document = Document()
        packed = orjson.loads(zlib.decompress(snapshot))
        _method(document.crdt, "import_packed")(packed, lazy=True)
        return document

    def shallow_snapshot(self, document: Document) -> bytes:
        return _deflated(document.crdt.export_packed(keep_removed=False))

    def replica(self, number: int) -> Document:
        return Document(f"{number:064x}:0")

    def change(self, document: Document, edits: list[Edit]) -> bytes:
        for position, deleted, inserted in edits:
            document.writer.remove(_LIST, position, deleted)
            document.writer.insert_text(_LIST, position, inserted)
        pack_ops = _public("walstore.crdt", "pack_ops")
        return bytes(orjson.dumps(pack_ops(document.writer.take())))

    def take_in(self, document: Document, message: bytes) -> None:
        unpack_ops = _public("walstore.crdt", "unpack_ops")
        document.crdt.fold_runs(unpack_ops(orjson.loads(message)))

    def from_text(self, text: str) -> Any:
        document = _document(_identity(), _public("walstore", "MemoryTransport")())
        asyncio.run(document.open())
        document.insert_text(_LIST, 0, text)
        # What a user interface has rendered is what its next edit is compared with.
        assert document.text(_LIST) == text
        return document

    def set_text(self, document: Any, text: str) -> None:
        document.set_text(_LIST, text)

    def signed_exchange(self, edits: list[Edit]) -> dict[str, float]:
        return asyncio.run(_signed_exchange(edits))

    def cold_replay(self, elements: int) -> dict[str, float]:
        return asyncio.run(_cold_replay(elements))

    def compiled(self) -> bool:
        return bool(getattr(import_module("walstore"), "compiled", False))


def _identity() -> Any:
    return _public("walstore", "Identity").from_seed(bytes(32))


def _document(identity: Any, transport: Any, **options: Any) -> Any:
    writers = [identity.public_key]
    return _public("walstore", "WalDocument")(
        _KEY,
        transport=transport,
        identity=identity,
        writers=writers,
        snapshot_role=writers,
        **options,
    )


async def _signed_exchange(edits: list[Edit]) -> dict[str, float]:
    nacl = import_module("nacl.bindings")
    public_key, private_key = nacl.crypto_sign_seed_keypair(bytes(32))
    identity, transport = _identity(), _public("walstore", "MemoryTransport")()
    sender = await _document(identity, transport).open()
    receiver = await _document(identity, transport).open()
    clock = time.process_time
    spent = dict.fromkeys(("send", "receive", "sign alone", "verify alone"), 0.0)
    for position, deleted, inserted in edits:
        start = clock()
        if deleted:
            sender.remove_text(_LIST, position, deleted)
        if inserted:
            sender.insert_text(_LIST, position, inserted)
        await sender.commit()
        sent = clock()
        await receiver.pull()
        received = clock()
        element = (await transport.tail(_KEY, 2**53 - 1, 1))[0]
        signing = clock()
        signed = nacl.crypto_sign(element.data, private_key)
        verifying = clock()
        nacl.crypto_sign_open(signed, public_key)
        spent["verify alone"] += clock() - verifying
        spent["sign alone"] += verifying - signing
        spent["receive"] += received - sent
        spent["send"] += sent - start
    assert sender.text(_LIST) == receiver.text(_LIST)
    return spent


async def _cold_replay(elements: int) -> dict[str, float]:
    identity, transport = _identity(), _public("walstore", "MemoryTransport")()
    writer = await _document(identity, transport).open()
    for position in range(elements):
        writer.insert_text(_LIST, position, "etaoin shrdlu"[position % 13])
        await writer.commit()
    clock = time.process_time
    start = clock()
    reader = await _document(identity, transport, posture="re-derive").open()
    assert reader.text(_LIST) == writer.text(_LIST)
    chained = clock() - start
    frame = _public("walstore.signed", "SigningFrame")(
        _public("walstore.signed", "Domain").APPEND, _KEY
    )
    verify_bytes, loads = _public("walstore.signed", "verify_bytes"), orjson.loads
    log = [each for page in await _pages(transport) for each in page]
    start = clock()
    for element in log:
        assert verify_bytes(element.author, frame.around(element.data), element.signature)
    verified = clock() - start
    start = clock()
    for element in log:
        loads(element.data)
        hashlib.sha256(element.data).digest()
    return {
        "chain": chained,
        "each verified": chained + verified,
        "parse and hash": clock() - start,
    }


async def _pages(transport: Any) -> list[Any]:
    pages, checkpoint = [], 0
    while page := await transport.pull(_KEY, checkpoint):
        pages.append(page)
        checkpoint = page[-1].ts
    return pages


def _deflated(packed: object) -> bytes:
    return zlib.compress(orjson.dumps(packed))


def _public(module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise AbsentError(f"not yet: {module}.{name}") from error


def _method(document: Any, name: str) -> Any:
    if not hasattr(document, name):
        raise AbsentError(f"not yet: {type(document).__name__}.{name}")
    return getattr(document, name)
