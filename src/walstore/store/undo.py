"""Undo and redo of what this author has edited, and of nothing else.

    edits ──► push ──► undo stack ──undo──► redo stack
                            ▲                  │
                            └──────redo────────┘

- Typing on is one step, and so is a batch; `boundary` ends a step. Time is an argument.
- Undoing is an edit of its own, made by `WalDocument.undo_step` while others go on editing; the
  step of that edit is what redo undoes. A new edit leaves nothing to redo.
- A step that has nothing left to undo is passed over.
- A selection is kept as anchors, and given back as positions of the document as it is then.
- The stack keeps the newest steps, within named limits, and goes through JSON. What it reads is
  checked whole: a damaged stack is an empty one that says so.
- It can be pushed to before what was kept of it is read: that is put under it later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from walstore.canon import canonical_bytes
from walstore.crdt import WalCrdt
from walstore.document.anchors import Anchor, anchor_at, resolve
from walstore.document.remaking import Alias
from walstore.document.undoing import Aliases, Step
from walstore.errors import MalformedError, UsageError
from walstore.store.undo_pile import Pile
from walstore.store.undo_record import Moment, Selection, read_record, write_record

# Steps that can be undone; nobody goes back further by hand.
UNDO_STEPS_MAX = 1000

# What the stack takes on file, and about what it takes in memory.
UNDO_BYTES_MAX = 2 * 2**20

# Typing that rests longer than this is the next step.
UNDO_GROUP_MS = 500


class UndoInProgressError(UsageError):
    """Undo was asked for while an undo is being told of."""

    def __init__(self) -> None:
        super().__init__("something is being undone; undo again when that is done")


class Undoable(Protocol):
    """The document of a stack, which pushes to it the step of every edit that it makes."""

    @property
    def crdt(self) -> WalCrdt:
        """What it holds."""
        ...

    def undo_step(self, step: Step, aliases: Aliases) -> int:
        """Undo a step; how much cannot be brought back."""
        ...


class Selected(NamedTuple):
    """A selection as positions; a caret where both are the same.

    Attributes:
        name: The list.
        anchor: Where it was begun.
        head: Where the caret is.
    """

    name: str
    anchor: int
    head: int


class Undone(NamedTuple):
    """What came of undoing or redoing.

    Attributes:
        selection: What was selected then, where it is now; None if nobody said.
        lost: How many elements and values cannot be brought back: they were let go for good.
    """

    selection: Selected | None
    lost: int


def select(crdt: WalCrdt, selected: Selected) -> Selection:
    """Anchor a selection, so that it can be found again."""
    name, anchor, head = selected
    return Selection(name, anchor_at(crdt, name, anchor), anchor_at(crdt, name, head))


class UndoStack:
    """The steps of one author in one document."""

    def __init__(
        self,
        *,
        author: str,
        steps_max: int = UNDO_STEPS_MAX,
        bytes_max: int = UNDO_BYTES_MAX,
        group_ms: int = UNDO_GROUP_MS,
    ) -> None:
        """Start with nothing to undo.

        Args:
            author: The public key of who edits, in hex.
            steps_max: How many steps to keep.
            bytes_max: How much to keep.
            group_ms: How long typing may rest and still be one step.
        """
        # Why a stack that was read is an empty one; None if all is well.
        self.damage: str | None = None
        self._author = author
        self._steps_max = steps_max
        self._bytes_max = bytes_max
        self._group_ms = group_ms
        self._undo = Pile()
        self._redo = Pile()
        self._aliases = Aliases()
        # Whether the next step may be part of the last one, and when that one was made.
        self._is_open = False
        self._last_ms = 0
        # How many batches are open, and whether the outermost one has a step yet.
        self._batches = 0
        self._has_batched = False
        # What is being undone has made this edit; only while it is.
        self._is_moving = False
        self._made: Step | None = None
        # Whether anything was pushed, and whether anything else than that was done, since it was
        # kept whole.
        self.has_pushed = False
        self.is_changed = False

    @property
    def can_undo(self) -> bool:
        """Whether there is a step to undo."""
        return bool(self._undo)

    @property
    def can_redo(self) -> bool:
        """Whether there is a step to redo."""
        return bool(self._redo)

    def push(self, step: Step, *, now_ms: int, before: Selection | None = None) -> None:
        """Take an edit that was just made.

        Args:
            step: What it did.
            now_ms: The time.
            before: What was selected before it.
        """
        if step.is_empty:
            return
        if self._is_moving:
            self._note(step)
            return
        self._redo.clear()
        self.has_pushed = True
        top = self._undo.top
        if top is not None and self._is_continued(step, top.step, now_ms):
            self.is_changed = self.is_changed or top.is_frozen
            top.step.join(step)
            top.after, top.is_kept = None, False
        else:
            self._undo.append(Moment(step, before, None))
            self._limit()
            if len(self._undo) == 1:
                # Nothing that is older can be undone any more.
                self._aliases.clear()
        self._has_batched = self._batches > 0
        self._is_open = True
        self._last_ms = now_ms

    def set_after(self, selection: Selection) -> None:
        """Say what is selected after the edit that was pushed last: redo gives it back."""
        if self._is_open and self._undo.top is not None:
            self._undo.top.after, self._undo.top.is_kept = selection, False

    def boundary(self) -> None:
        """Let the next edit be a step of its own, unless a batch is open."""
        self._is_open = False

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Make all edits within one step."""
        if not self._batches:
            self._has_batched = False
        self._batches += 1
        try:
            yield
        finally:
            self._batches -= 1
            if not self._batches:
                self.boundary()

    def undo(self, document: Undoable) -> Undone | None:
        """Undo the last step that there is anything left to undo of; None if there is none.

        Raises:
            UndoInProgressError: An undo is being told of.
            UsageError: The document cannot be written; the step stays where it is.
        """
        done = self._move(document, self._undo, self._redo)
        return done and Undone(self._found(document, done.before), done.lost)

    def redo(self, document: Undoable) -> Undone | None:
        """Redo what was undone last; None if there is nothing.

        Raises:
            UndoInProgressError: An undo is being told of.
            UsageError: The document cannot be written; the step stays where it is.
        """
        done = self._move(document, self._redo, self._undo)
        return done and Undone(self._found(document, done.after), done.lost)

    def rename(self, aliases: Iterable[Alias]) -> None:
        """Take note that elements and writes of edits were made anew, and as which."""
        if self._undo or self._redo:
            self.is_changed = True
            for name, ids, clock in aliases:
                self._aliases.add(name, ids, clock)

    def put_under(self, kept: UndoStack) -> None:
        """Take what was kept as what came before all that was pushed here."""
        self._undo = Pile([*kept._undo, *self._undo])
        if not self.has_pushed:
            self._redo = kept._redo
        self._aliases, self.damage = kept._aliases, kept.damage
        self._limit()

    def append(self, moments: Iterable[Moment]) -> None:
        """Take steps that were pushed to it once, after all that is here."""
        for moment in moments:
            self._redo.clear()
            self._undo.append(moment)
        self._limit()

    def unfrozen(self) -> list[Moment]:
        """The newest steps that can be undone and can still be written alone."""
        return self._undo.unfrozen()

    def freeze(self) -> None:
        """Take note that all of it is on file, in one piece."""
        for pile in (self._undo, self._redo):
            for moment in pile:
                moment.is_frozen = True
        self.has_pushed = self.is_changed = False

    def clear(self) -> None:
        """Forget everything."""
        self._undo.clear()
        self._redo.clear()
        self._aliases.clear()
        self.is_changed = True
        self.boundary()

    def to_json(self) -> dict[str, Any]:
        """The stack as JSON, for `from_json`; the oldest steps are left out if it is too large."""
        undo, redo = list(self._undo), list(self._redo)
        while undo or redo:
            record = write_record(self._author, undo, redo, self._aliases)
            if len(canonical_bytes(record)) <= self._bytes_max:
                return record
            undo, redo = undo[len(undo) // 2 + 1 :], redo[len(redo) // 2 + 1 :]
        return write_record(self._author, [], [], Aliases())

    @classmethod
    def from_json(
        cls,
        value: object,
        *,
        author: str,
        steps_max: int = UNDO_STEPS_MAX,
        bytes_max: int = UNDO_BYTES_MAX,
        group_ms: int = UNDO_GROUP_MS,
    ) -> UndoStack:
        """The stack that `to_json` gave; None makes a new one, and so does what is damaged.

        `damage` then says what is wrong with it.
        """
        stack = cls(author=author, steps_max=steps_max, bytes_max=bytes_max, group_ms=group_ms)
        if value is None:
            return stack
        try:
            undo, redo, stack._aliases = read_record(value, author)
        except MalformedError as error:
            stack.damage = error.reason
            return stack
        stack._undo, stack._redo = Pile(undo), Pile(redo)
        stack._limit()
        return stack

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _is_continued(self, step: Step, last: Step, now_ms: int) -> bool:
        if self._batches:
            return self._has_batched
        is_soon = 0 <= now_ms - self._last_ms <= self._group_ms
        return self._is_open and is_soon and step.continues(last)

    def _move(self, document: Undoable, source: Pile, target: Pile) -> _Done | None:
        """Undo steps of one stack until something changes; the step of that goes to the other."""
        if self._is_moving:
            raise UndoInProgressError
        self.boundary()
        self.is_changed = True
        self._has_batched = False
        lost = 0
        while source:
            moment = source.pop()
            missing, made = self._undo_step(document, moment, source, target)
            lost += missing
            if made:
                return _Done(moment.before, moment.after, lost)
        return _Done(None, None, lost) if lost else None

    def _undo_step(
        self, document: Undoable, moment: Moment, source: Pile, target: Pile
    ) -> tuple[int, bool]:
        """Undo one step; how much is lost, and whether anything was changed."""
        self._is_moving = True
        try:
            lost = document.undo_step(moment.step, self._aliases)
        except BaseException:
            if not self._end_move(moment, target):
                # It failed before it had changed anything.
                source.append(moment)
            raise
        return lost, self._end_move(moment, target)

    def _end_move(self, moment: Moment, target: Pile) -> bool:
        """Keep the step of what undoing did; whether it did anything."""
        made, self._made, self._is_moving = self._made, None, False
        if made is not None:
            target.append(Moment(made, moment.before, moment.after))
        return made is not None

    def _note(self, step: Step) -> None:
        """Take what undoing did, and what those who were told of it did about it."""
        if self._made is None:
            self._made = step
        else:
            self._made.join(step)

    def _found(self, document: Undoable, selection: Selection | None) -> Selected | None:
        if selection is None:
            return None
        name = selection.name
        anchor, head = (
            self._position(document, name, each) for each in (selection.anchor, selection.head)
        )
        return None if anchor is None or head is None else Selected(name, anchor, head)

    def _position(self, document: Undoable, name: str, anchor: Anchor) -> int | None:
        if anchor.id:
            anchor = anchor._replace(id=self._aliases.newest_id(name, anchor.id))
        return resolve(document.crdt, name, anchor)

    def _limit(self) -> None:
        """Let go of the oldest steps beyond the limits; the newest one stays."""
        undo = self._undo
        while len(undo) > self._steps_max or (len(undo) > 1 and undo.bytes_about > self._bytes_max):
            undo.drop_oldest()


class _Done(NamedTuple):
    before: Selection | None
    after: Selection | None
    lost: int
