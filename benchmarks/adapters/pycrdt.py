"""pycrdt: every call outside a transaction is one; updates come from the observer."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, ClassVar

from benchmarks.adapters.base import Adapter, Edit, in_bytes

pycrdt = import_module("pycrdt")


class Library(Adapter):
    """pycrdt, positions in UTF-8 bytes."""

    unit: ClassVar[str] = "utf8"
    searches: ClassVar[bool] = True

    def edit_each(self, edits: Iterable[Edit]) -> Any:
        document = pycrdt.Doc()
        self.edit_on(document, edits)
        return document

    def edit_on(self, document: Any, edits: Iterable[Edit]) -> None:
        _edit(document, document.get("text", type=pycrdt.Text), edits)

    def edit_bursts(self, bursts: list[list[Edit]]) -> Any:
        document = pycrdt.Doc()
        text = document.get("text", type=pycrdt.Text)
        for burst in bursts:
            with document.transaction():
                _edit(document, text, burst)
        return document

    def edit_and_emit(self, edits: list[Edit]) -> tuple[Any, list[bytes]]:
        document = pycrdt.Doc()
        messages: list[bytes] = []
        document.observe(lambda event: messages.append(event.update))
        self.edit_on(document, edits)
        return document, messages

    def receive(self, messages: list[bytes]) -> Any:
        document = pycrdt.Doc()
        for message in messages:
            document.apply_update(message)
        return document

    def text(self, document: Any) -> str:
        return str(document.get("text", type=pycrdt.Text))

    def history(self, document: Any) -> bytes:
        return bytes(document.get_update())

    def from_history(self, history: bytes) -> Any:
        return self.receive([history])

    def replica(self, number: int) -> Any:
        document = pycrdt.Doc(client_id=number + 1)
        document.get("text", type=pycrdt.Text)
        return document

    def change(self, document: Any, edits: list[Edit]) -> bytes:
        # A difference of states repeats every deletion so far; the event has this one's alone.
        updates: list[bytes] = []
        subscription = document.observe(lambda event: updates.append(event.update))
        converted = in_bytes(self.text(document), edits)
        with document.transaction():
            self.edit_on(document, converted)
        document.unobserve(subscription)
        return updates[-1]

    def take_in(self, document: Any, message: bytes) -> None:
        document.apply_update(message)


def _edit(document: Any, text: Any, edits: Iterable[Edit]) -> None:
    for position, deleted, inserted in edits:
        if deleted and inserted:
            with document.transaction():
                del text[position : position + deleted]
                text.insert(position, inserted)
        elif deleted:
            del text[position : position + deleted]
        else:
            text.insert(position, inserted)
