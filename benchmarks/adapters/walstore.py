"""walstore, through its public names; what it does not offer yet is reported as such.

- A transaction is an edit and taking what it recorded, as a sender does.
- A message is a packed batch as JSON; a history or a snapshot is packed and deflated.
- Signed edits are the message and its author proof, without the envelope around them.
"""

from __future__ import annotations

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

    def text(self, document: Document) -> str:
        return str(document.crdt.text(_LIST))

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
        return self.snapshot(document)

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

    def from_text(self, text: str) -> Document:
        _public("walstore.reconcile", "diff_text")
        return self.edit_each([(0, 0, text)])

    def set_text(self, document: Document, text: str) -> None:
        diff_text = _public("walstore.reconcile", "diff_text")
        writer = document.writer
        # From the end on, so that the positions of earlier hunks still hold.
        for hunk in reversed(diff_text(document.crdt.text(_LIST), text)):
            writer.remove(_LIST, hunk.start, hunk.removed)
            writer.insert_text(_LIST, hunk.start, hunk.inserted)
        writer.take()

    def signed_exchange(self, edits: list[Edit]) -> dict[str, float]:
        return _signed_exchange(edits)

    def compiled(self) -> bool:
        return bool(getattr(import_module("walstore"), "compiled", False))


def _signed_exchange(edits: list[Edit]) -> dict[str, float]:
    sign_bytes, verify_bytes, signing_input_of, identity_type, domain = (
        _public("walstore.signed", name)
        for name in ("sign_bytes", "verify_bytes", "signing_input_of", "Identity", "Domain")
    )
    nacl = import_module("nacl.bindings")
    public_key, private_key = nacl.crypto_sign_seed_keypair(bytes(32))
    identity = identity_type.from_seed(bytes(32))
    adapter, clock = Library(), time.process_time
    sender, receiver = Document(f"{identity.public_key}:0"), Document("b0" * 32 + ":0")
    spent = dict.fromkeys(("send", "receive", "sign alone", "verify alone"), 0.0)
    for edit in edits:
        start = clock()
        message = adapter.change(sender, [edit])
        proof = sign_bytes(signing_input_of(domain.APPEND, _KEY, message), identity)
        sent = clock()
        signed = signing_input_of(domain.APPEND, _KEY, message)
        assert verify_bytes(proof.author_pubkey, signed, proof.author_signature)
        adapter.take_in(receiver, message)
        received = clock()
        sealed = nacl.crypto_sign(signed, private_key)
        signed_alone = clock()
        nacl.crypto_sign_open(sealed, public_key)
        spent["verify alone"] += clock() - signed_alone
        spent["sign alone"] += signed_alone - received
        spent["receive"] += received - sent
        spent["send"] += sent - start
    assert adapter.text(sender) == adapter.text(receiver)
    return spent


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
