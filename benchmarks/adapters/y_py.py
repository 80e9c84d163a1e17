"""y-py: a transaction is a block; updates come from the observer after each."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, ClassVar

from benchmarks.adapters.base import Adapter, Edit, in_bytes

y_py = import_module("y_py")


class Library(Adapter):
    """y-py, positions in UTF-8 bytes."""

    unit: ClassVar[str] = "utf8"
    searches: ClassVar[bool] = True

    def __init__(self) -> None:
        self._updates: dict[int, list[bytes]] = {}

    def edit_each(self, edits: Iterable[Edit]) -> Any:
        document = y_py.YDoc()
        self.edit_on(document, edits)
        return document

    def edit_on(self, document: Any, edits: Iterable[Edit]) -> None:
        _edit_each(document, document.get_text("text"), edits)

    def edit_bursts(self, bursts: list[list[Edit]]) -> Any:
        document = y_py.YDoc()
        text = document.get_text("text")
        for burst in bursts:
            with document.begin_transaction() as transaction:
                _edit(transaction, text, burst)
        return document

    def edit_and_emit(self, edits: list[Edit]) -> tuple[Any, list[bytes]]:
        document = y_py.YDoc()
        # Naming the text is a transaction too: it comes before, and a copy leaves later ones out.
        text = document.get_text("text")
        messages: list[bytes] = []
        document.observe_after_transaction(lambda event: messages.append(event.get_update()))
        _edit_each(document, text, edits)
        return document, messages[:]

    def receive(self, messages: list[bytes]) -> Any:
        document = y_py.YDoc()
        for message in messages:
            y_py.apply_update(document, message)
        return document

    def text(self, document: Any) -> str:
        return str(document.get_text("text"))

    def history(self, document: Any) -> bytes:
        return bytes(y_py.encode_state_as_update(document))

    def from_history(self, history: bytes) -> Any:
        return self.receive([history])

    def replica(self, number: int) -> Any:
        document = y_py.YDoc(number + 1)
        # A difference of states repeats every deletion so far; the event has this one's alone.
        updates = self._updates[number + 1] = []
        document.observe_after_transaction(lambda event: updates.append(event.get_update()))
        return document

    def change(self, document: Any, edits: list[Edit]) -> bytes:
        text = document.get_text("text")
        converted = in_bytes(str(text), edits)
        with document.begin_transaction() as transaction:
            _edit(transaction, text, converted)
        return self._updates[document.client_id][-1]

    def take_in(self, document: Any, message: bytes) -> None:
        y_py.apply_update(document, message)


def _edit_each(document: Any, text: Any, edits: Iterable[Edit]) -> None:
    for position, deleted, inserted in edits:
        with document.begin_transaction() as transaction:
            if deleted:
                text.delete_range(transaction, position, deleted)
            if inserted:
                text.insert(transaction, position, inserted)


def _edit(transaction: Any, text: Any, edits: Iterable[Edit]) -> None:
    for position, deleted, inserted in edits:
        if deleted:
            text.delete_range(transaction, position, deleted)
        if inserted:
            text.insert(transaction, position, inserted)
