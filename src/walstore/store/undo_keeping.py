"""Keeps an undo stack in a local file, sealed as the document is: it holds values."""

from __future__ import annotations

from walstore.canon import Json
from walstore.local import LocalFile
from walstore.sealed.encryptor import Encryptor, SealContext
from walstore.sealed.outcomes import SealRejectedError, UnreadableError
from walstore.store.undo import UndoStack

_SLOT = "undo"
_PLACE = "__undo"


class UndoKeeping:
    """Where the undo stack of one author in one document is kept."""

    def __init__(
        self, file: LocalFile, *, document_key: str, author: str, encryptor: Encryptor
    ) -> None:
        """Keep it in a file."""
        self._file = file
        self._author = author
        self._encryptor = encryptor
        self._context = SealContext(document_key + _PLACE, author, 0)

    def load(self) -> UndoStack:
        """The stack that was kept; an empty one if there is none, or it cannot be opened."""
        kept = self._file.get(_SLOT)
        value: Json = None
        if kept is not None:
            try:
                value = self._encryptor.open(kept, self._context)
            except (SealRejectedError, UnreadableError):
                value = None
        return UndoStack.from_json(value, author=self._author)

    def save(self, stack: UndoStack) -> None:
        """Keep a stack."""
        self._file.put(_SLOT, self._encryptor.seal(stack.to_json(), self._context))
