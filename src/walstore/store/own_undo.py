"""The undo of one store: its stack, and what was kept of it, which is read when it is needed.

- An edit is pushed to what is here; it does not wait for what an earlier process has kept.
- Undoing, redoing and renaming read that first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Literal

from walstore.crdt import WalCrdt
from walstore.document import WalDocument
from walstore.document.remaking import Alias
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
        self._stack = UndoStack(author=author)
        self._keeping: UndoKeeping | None = None
        # Whether what was kept is part of the stack.
        self._is_whole = True
        self._selection: Selection | None = None
        self._is_kept = True

    def keep_in(self, keeping: UndoKeeping) -> None:
        """Go on from what was kept, and keep it there."""
        self._keeping = keeping
        self._is_whole = False

    @property
    def can_undo(self) -> bool:
        """Whether there is a step to undo."""
        known = None if self._is_whole or self._keeping is None else self._keeping.has_undo
        return self._stack.can_undo or (self._whole().can_undo if known is None else known)

    @property
    def can_redo(self) -> bool:
        """Whether there is a step to redo."""
        known = None if self._is_whole or self._keeping is None else self._keeping.has_redo
        if self._stack.has_pushed or known is None:
            return (self._stack if self._stack.has_pushed else self._whole()).can_redo
        return known

    def push(self, step: Step) -> None:
        """Take an edit that was just made."""
        now_ms = time.monotonic_ns() // 1_000_000
        self._stack.push(step, now_ms=now_ms, before=self._selection)
        self._selection = None
        self._is_kept = False

    def select(self, crdt: WalCrdt, selected: Selected) -> None:
        """Note what is selected, after the last edit and before the next one."""
        self._selection = select(crdt, selected)
        self._stack.set_after(self._selection)

    def boundary(self) -> None:
        """Let the next edit be a step of its own."""
        self._stack.boundary()

    def batch(self) -> AbstractContextManager[None]:
        """Make all edits within one step."""
        return self._stack.batch()

    def move(self, document: WalDocument, origin: Literal["undo", "redo"]) -> Undone | None:
        """Undo or redo; None if there is nothing."""
        self.origin = origin
        stack = self._whole()
        self._is_kept = False
        try:
            return stack.undo(document) if origin == "undo" else stack.redo(document)
        finally:
            self.origin = None

    def rename(self, aliases: Iterable[Alias]) -> None:
        """Take note that elements and writes of edits were made anew, and as which."""
        self._whole().rename(aliases)
        self._is_kept = False

    def save(self) -> None:
        """Keep the steps, if there is where, and they are others than before."""
        if self._keeping is None or self._is_kept:
            return
        if self._stack.is_changed or not self._keeping.append(self._stack):
            self._keeping.save(self._whole())
        self._is_kept = True

    def tidy(self) -> None:
        """Keep the steps so that they are read in one piece, if there are many."""
        if self._keeping is not None and self._keeping.is_untidy:
            self._keeping.save(self._whole())

    def _whole(self) -> UndoStack:
        if not self._is_whole and self._keeping is not None:
            self._stack.put_under(self._keeping.load())
            self._is_whole = True
        return self._stack
