"""y-py: a transaction is a block; updates come from the observer after each."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, ClassVar

from benchmarks.adapters.base import Adapter, Edit, to_bytes

y_py = import_module("y_py")


class Library(Adapter):
    """y-py, positions in UTF-8 bytes."""

    unit: ClassVar[str] = "utf8"
    searches: ClassVar[bool] = True

    def edit_each(self, edits: Iterable[Edit]) -> Any:
        document = y_py.YDoc()
        self.edit_on(document, edits)
        return document

    def edit_on(self, document: Any, edits: Iterable[Edit]) -> None:
        _edit(document, document.get_text("text"), edits)

    def edit_bursts(self, bursts: list[list[Edit]]) -> Any:
        document = y_py.YDoc()
        text = document.get_text("text")
        for burst in bursts:
            with document.begin_transaction() as transaction:
                for position, deleted, inserted in burst:
                    if deleted:
                        text.delete_range(transaction, position, deleted)
                    if inserted:
                        text.insert(transaction, position, inserted)
        return document

    def edit_and_emit(self, edits: list[Edit]) -> tuple[Any, list[bytes]]:
        document = y_py.YDoc()
        # Naming the text is a transaction too: it comes before, and a copy leaves later ones out.
        text = document.get_text("text")
        messages: list[bytes] = []
        document.observe_after_transaction(lambda event: messages.append(event.get_update()))
        _edit(document, text, edits)
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
        document.get_text("text")
        return document

    def change(self, document: Any, edits: list[Edit]) -> bytes:
        before = y_py.encode_state_vector(document)
        for edit in edits:
            self.edit_on(document, [to_bytes(self.text(document), edit)])
        return bytes(y_py.encode_state_as_update(document, before))

    def take_in(self, document: Any, message: bytes) -> None:
        y_py.apply_update(document, message)


def _edit(document: Any, text: Any, edits: Iterable[Edit]) -> None:
    for position, deleted, inserted in edits:
        with document.begin_transaction() as transaction:
            if deleted:
                text.delete_range(transaction, position, deleted)
            if inserted:
                text.insert(transaction, position, inserted)
