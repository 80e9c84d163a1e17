"""automerge for Python: a transaction is a block; a text takes one character a call.

- Changes can be read as bytes but not applied one by one: the binding has no call for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from benchmarks.adapters.base import Adapter, Edit

core = import_module("automerge.core")


class Library(Adapter):
    """automerge's core module, positions in code points."""

    def edit_each(self, edits: Iterable[Edit]) -> Any:
        document, text = _new()
        for edit in edits:
            with document.transaction() as transaction:
                _edit(transaction, text, edit)
        return document

    def edit_bursts(self, bursts: list[list[Edit]]) -> Any:
        document, text = _new()
        for burst in bursts:
            with document.transaction() as transaction:
                for edit in burst:
                    _edit(transaction, text, edit)
        return document

    def edit_and_emit(self, edits: list[Edit]) -> tuple[Any, list[bytes]]:
        document, text = _new()
        messages: list[bytes] = []
        heads = document.get_heads()
        for edit in edits:
            with document.transaction() as transaction:
                _edit(transaction, text, edit)
            messages += [change.bytes for change in document.get_changes(heads)]
            heads = document.get_heads()
        return document, messages

    def text(self, document: Any) -> str:
        _, text = document.get(core.ROOT, "text")
        return str(document.text(text))

    def history(self, document: Any) -> bytes:
        return bytes(document.save())

    def from_history(self, history: bytes) -> Any:
        return core.Document.load(history)


def _new() -> tuple[Any, Any]:
    document = core.Document()
    with document.transaction() as transaction:
        text = transaction.put_object(core.ROOT, "text", core.ObjType.Text)
    return document, text


def _edit(transaction: Any, text: Any, edit: Edit) -> None:
    position, deleted, inserted = edit
    for _ in range(deleted):
        transaction.delete(text, position)
    for offset, character in enumerate(inserted):
        transaction.insert(text, position + offset, core.ScalarType.Str, character)
