"""An author with a document and an undo stack, and a clock that stands still unless it is told."""

from __future__ import annotations

from typing import Any

from tests.rigged import ALICE, document
from walstore.canon import canonical_text, parse
from walstore.document import WalDocument
from walstore.document.undoing import Step
from walstore.signed import Identity
from walstore.store.undo import Selected, Undone, UndoStack, select
from walstore.store.undo_record import Selection


class Author:
    """Edits a document, and undoes what it did."""

    def __init__(self, transport: Any, who: Identity = ALICE, **options: Any) -> None:
        self.transport = transport
        self.who = who
        self.options = options
        self.stack = UndoStack(author=who.public_key)
        self.now_ms = 0
        self.before: Selection | None = None
        self.steps: list[Step] = []
        self.doc = self._new_document()

    def _new_document(self) -> WalDocument:
        return document(self.transport, self.who, on_step=self._push, **self.options)

    def _push(self, step: Step) -> None:
        self.steps.append(step)
        self.stack.push(step, now_ms=self.now_ms, before=self.before)

    async def open(self) -> Author:
        await self.doc.open()
        return self

    async def restart(self) -> None:
        """Send everything, and go on as another session with what was on file."""
        await self.doc.commit()
        kept = parse(canonical_text(self.stack.to_json()))
        self.stack = UndoStack.from_json(kept, author=self.who.public_key)
        assert self.stack.damage is None
        self.doc = self._new_document()
        await self.doc.open()

    def undo(self) -> Undone | None:
        return self.stack.undo(self.doc)

    def redo(self) -> Undone | None:
        return self.stack.redo(self.doc)

    def select(self, anchor: int, head: int | None = None, name: str = "body") -> Selection:
        selected = Selected(name, anchor, anchor if head is None else head)
        return select(self.doc.crdt, selected)

    def text(self, name: str = "body") -> str:
        return self.doc.text(name)


async def sync(*docs: WalDocument) -> None:
    """Let everybody know everything."""
    for doc in docs:
        await doc.commit()
    for doc in docs:
        await doc.pull()
