"""The undo of one store: its stack, read when it is first needed, and kept when there is a file."""

from __future__ import annotations

import time
from typing import Literal

from walstore.crdt import WalCrdt
from walstore.document import WalDocument
from walstore.document.undoing import Step
from walstore.store.undo import Selected, Undone, UndoStack, select
from walstore.store.undo_keeping import UndoKeeping
from walstore.store.undo_record import Selection


class OwnUndo:
    """What one author can take back in one document.

    Attributes:
        origin: Whether an edit that is made now is an undo or a redo; None if it is neither.
    """

    def __init__(self, author: str) -> None:
        """Begin with nothing, unless something was kept."""
        self.origin: Literal["undo", "redo"] | None = None
        self._author = author
        self._keeping: UndoKeeping | None = None
        self._stack: UndoStack | None = None
        self._selection: Selection | None = None
        self._is_kept = True

    def keep_in(self, keeping: UndoKeeping) -> None:
        """Go on from what was kept, and keep it there."""
        self._keeping = keeping

    @property
    def stack(self) -> UndoStack:
        """The steps; opening a store does not wait for them."""
        if self._stack is None:
            new = UndoStack(author=self._author)
            self._stack = new if self._keeping is None else self._keeping.load()
        return self._stack

    def push(self, step: Step) -> None:
        """Take an edit that was just made."""
        now_ms = time.monotonic_ns() // 1_000_000
        self.stack.push(step, now_ms=now_ms, before=self._selection)
        self._selection = None
        self._is_kept = False

    def select(self, crdt: WalCrdt, selected: Selected) -> None:
        """Note what is selected, after the last edit and before the next one."""
        self._selection = select(crdt, selected)
        self.stack.set_after(self._selection)

    def move(self, document: WalDocument, origin: Literal["undo", "redo"]) -> Undone | None:
        """Undo or redo; None if there is nothing."""
        self.origin = origin
        try:
            return self.stack.undo(document) if origin == "undo" else self.stack.redo(document)
        finally:
            self.origin = None

    def save(self) -> None:
        """Keep the steps, if there is where, and they are others than before."""
        if self._keeping is not None and not self._is_kept:
            self._keeping.save(self.stack)
            self._is_kept = True
