"""Keeps an undo stack in a local file, sealed as the document is: it holds values.

    undo        the whole stack, as it was when something was last undone
    undo.1 …    steps that were pushed since, in order
    undo-head   how many steps the whole stack has, so that a UI need not wait for it

- To keep what was pushed, nothing is read, and only a step that has grown since is written again.
  Whatever else is done to a stack has all of it written anew, in one step.
- Earlier versions had several steps in a slot.
- What cannot be opened is let go, with everything before it: nobody undoes past a gap.
"""

from __future__ import annotations

from typing import Any

from walstore.canon import Json, canonical_bytes
from walstore.document.undoing import Aliases
from walstore.errors import MalformedError
from walstore.local import LocalFile
from walstore.sealed.encryptor import Encryptor, SealContext
from walstore.sealed.outcomes import SealRejectedError, UnreadableError
from walstore.store.undo import UNDO_BYTES_MAX, UndoStack
from walstore.store.undo_record import Moment, read_record, write_record

_SLOT = "undo"
_PART = "undo."
_HEAD = "undo-head"
_PLACE = "__undo"

# A step that takes about so much is measured.
_STEP_BYTES_MAX = 2**16

# Slots; with more of them, all is written anew. Closing does so with fewer: nobody waits for it.
_PARTS_MAX = 1024
_PARTS_TIDY_MAX = 256


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
        # The parts that were there before, and how many there are now.
        self._parts = file.names(_PART)
        self._count = max(map(_number_of, self._parts), default=0)
        # Whether the newest part is this process's own, and may still grow.
        self._is_open = False

    @property
    def has_undo(self) -> bool | None:
        """Whether there is something to undo in what is kept; None if it has to be read."""
        return True if self._parts else self._head("undo")

    @property
    def has_redo(self) -> bool | None:
        """Whether there is something to redo in what is kept; None if it has to be read."""
        return False if self._parts else self._head("redo")

    @property
    def is_untidy(self) -> bool:
        """Whether it is time to write all of it anew."""
        return self._count > _PARTS_TIDY_MAX

    def load(self) -> UndoStack:
        """The stack that was kept before this process pushed to it; an empty one if there is none,
        or it cannot be opened.
        """
        stack = UndoStack.from_json(self._read(_SLOT), author=self._author)
        for name in self._parts:
            try:
                moments, _, _ = read_record(self._read(name), self._author)
            except MalformedError:
                stack = UndoStack(author=self._author)
                continue
            stack.append(moments)
        stack.freeze()
        return stack

    def append(self, stack: UndoStack) -> bool:
        """Keep what was pushed to a stack since; False if all of it has to be written anew."""
        moments = stack.unfrozen()
        if not moments:
            return True
        first = self._count if self._is_open else self._count + 1
        count = first + len(moments) - 1
        if count > _PARTS_MAX:
            return False
        values: dict[str, Json] = {}
        for number, moment in enumerate(moments, first):
            if moment.is_kept:
                continue
            record = write_record(self._author, [moment], [], Aliases())
            if _is_too_large(moment, record):
                return False
            values[_part(number)] = self._sealed(record)
        self._file.put_all(values)
        self._count, self._is_open = count, True
        for moment in moments:
            # The newest one may still grow.
            moment.is_kept, moment.is_frozen = True, moment is not moments[-1]
        return True

    def save(self, stack: UndoStack) -> None:
        """Keep a whole stack, in place of all that was kept."""
        record = stack.to_json()
        head = {"undo": len(record["undo"]), "redo": len(record["redo"])}
        gone = self._file.names(_PART)
        self._file.put_all({_SLOT: self._sealed(record), _HEAD: head}, gone)
        self._parts, self._count, self._is_open = [], 0, False
        stack.freeze()

    def _head(self, name: str) -> bool | None:
        match self._file.get(_HEAD):
            case {"undo": int(undo), "redo": int(redo)}:
                return bool(undo if name == "undo" else redo)
            case _:
                # It was kept by an earlier version, or never.
                return None

    def _read(self, name: str) -> Json:
        kept = self._file.get(name)
        if kept is None:
            return None
        try:
            return self._encryptor.open(kept, self._context)
        except (SealRejectedError, UnreadableError):
            return None

    def _sealed(self, record: dict[str, Any]) -> Json:
        return self._encryptor.seal(record, self._context)


def _part(number: int) -> str:
    return f"{_PART}{number:06d}"


def _is_too_large(moment: Moment, record: dict[str, Any]) -> bool:
    """Whether a step is beyond what is kept of a whole stack."""
    is_small = moment.step.bytes_about <= _STEP_BYTES_MAX
    return not is_small and len(canonical_bytes(record)) > UNDO_BYTES_MAX


def _number_of(name: str) -> int:
    return int(name.removeprefix(_PART))
