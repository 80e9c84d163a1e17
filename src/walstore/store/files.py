"""A file on disk and a document that follow each other: edit either, and both have it.

       file ── edited ──► diff against what both last said ──► document
            ◄── replaced, if it still says what was read ──

- Edits of the file are made in the document as edits of what the file said before, so that
  what has arrived meanwhile stays. Then the file says what the document says.
- Nothing is written over an edit that was not read, and nothing while an edit cannot be read: a
  file that is not text, not JSON or too large is reported and left alone until it changes.
- An edit counts once two looks in a row find the same, because most programs empty a file before
  they fill it; an empty file counts once `EMPTY_LOOKS` do.
- A file that is gone is not made again, and nothing of the document goes with it: following pauses
  until there is a file again. Editors that save by renaming pass through this unnoticed.
- What both last said can be remembered in a file of its own, so that edits made while nobody
  followed merge as well. Without that, a document that holds something else than the file wins, and
  what the file said is kept beside it.
- A text file is one text; a JSON file is the whole document, each member a name of it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from walstore.document.view import View
from walstore.errors import UsageError, WalStoreError
from walstore.store.disk import Disk, Found
from walstore.store.file_format import Style
from walstore.store.file_sides import Closable, FileStore, JsonSide, Side, TextSide
from walstore.store.subscription import FAILURES

# How often the file is looked at. A look costs a system call unless the file has changed.
LOOK_MS = 200

# Looks that have to find the same before it counts.
_LOOKS = 2
EMPTY_LOOKS = 5

# Looks before a file that could not be written is written again.
_RETRY_LOOKS = 25


class FileState(StrEnum):
    """How a file and its document stand."""

    FOLLOWING = "following"
    MISSING = "missing"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A moment of a binding.

    Attributes:
        state: `missing` while there is no file, `refused` while one side cannot take the other's.
        reason: Why, in words; empty if all is well.
    """

    state: FileState
    reason: str = ""


class FileBinding:
    """A file and a document that follow each other, within an `async with` block."""

    def __init__(
        self,
        store: FileStore,
        path: str | os.PathLike[str],
        *,
        text: str | None = None,
        memory: str | os.PathLike[str] | None = None,
        encoding: str = "utf-8",
        on_status: Callable[[FileStatus], object] | None = None,
        disk: Disk | None = None,
        pause: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Prepare; `async with` begins to follow.

        Args:
            store: The document.
            path: The file. If there is none, one is made.
            text: The text that it says; the whole document as JSON if left out.
            memory: A file to remember in what both last said, from one time to the next.
            encoding: How the file spells characters, unless its byte order mark says otherwise.
            on_status: Called with every new status; what it raises goes to the event loop's
                handler of exceptions.
            disk: Reads and writes; this computer's if left out.
            pause: Waits until it is time to look; `LOOK_MS` if left out. What watches a folder
                may be put here.
        """
        style = Style(unmarked=encoding)
        self._side: Side = JsonSide(store, style) if text is None else TextSide(store, text, style)
        self._store = store
        self._path = Path(path)
        self._memory = None if memory is None else Path(memory)
        self._on_status = on_status
        self._disk = Disk() if disk is None else disk
        self._pause = _rest if pause is None else pause
        self._status = FileStatus(FileState.FOLLOWING)
        self._set_aside: Path | None = None
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._subscription: Closable | None = None
        # What was found last, and how many looks in a row have found it.
        self._found: Found | None = None
        self._looks = 0
        # What the file says and the document has taken, and the view that says the same: there is
        # none while the document says more. None of both until they came together.
        self._agreed: bytes | None = None
        self._view: View | None = None
        # What was to be written last, whatever came of it.
        self._attempt: tuple[bytes, View] | None = None
        self._is_dirty = False
        self._held_looks = 0

    # ── lifetime ───────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        """Bring both to one state, as far as they let, and follow from now on.

        Raises:
            UsageError: The binding was used before.
        """
        if self._subscription is not None:
            raise UsageError("a file is followed within one block; make another binding")
        self._subscription = self._store.subscribe(self._side.pattern, self._changed)
        await self._come_to_rest()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Take the last edits of both sides over, and follow no more."""
        assert self._task is not None
        assert self._subscription is not None
        try:
            async with self._lock:
                # Nothing is being written, so nothing is cut off.
                self._task.cancel()
            await asyncio.wait([self._task])
            await self._come_to_rest()
        finally:
            self._task.cancel()
            self._subscription.close()
        if not self._task.cancelled():
            self._task.result()

    async def _run(self) -> None:
        while True:
            await self._pause()
            await self.look()

    async def _come_to_rest(self) -> None:
        for _ in range(_LOOKS + EMPTY_LOOKS):
            if not await self.look():
                return
            await self._pause()

    @property
    def status(self) -> FileStatus:
        """How both stand."""
        return self._status

    @property
    def set_aside(self) -> Path | None:
        """Where that is kept which the file said and the document did not; None if nothing."""
        return self._set_aside

    # ── one look ───────────────────────────────────────────────────────────────────────

    async def look(self) -> bool:
        """Take over what has changed on either side; whether another look will tell more.

        It is done by itself after every pause.
        """
        async with self._lock:
            try:
                found = await asyncio.to_thread(self._disk.read, self._path, self._found)
            except OSError as error:
                self._found, self._looks = None, 0
                return self._refuse(error)
            if found is None:
                return await self._look_at_nothing()
            return await self._look_at(found)

    async def _look_at_nothing(self) -> bool:
        self._found, self._looks = None, 0
        if self._agreed is not None:
            self._tell(FileState.MISSING, "there is no such file")
            return False
        self._is_dirty = True
        return await self._write()

    async def _look_at(self, found: Found) -> bool:
        is_known = self._found is not None and self._found.content == found.content
        self._looks = self._looks + 1 if is_known else 1
        self._found = found
        if self._attempt is not None and found.content == self._attempt[0]:
            self._agreed, self._view = self._attempt
        if found.content == self._agreed:
            self._tell(FileState.FOLLOWING)
            return await self._write()
        if self._looks < (_LOOKS if found.content else EMPTY_LOOKS):
            return True
        return await self._take(found.content)

    async def _take(self, content: bytes) -> bool:
        """Take an edit of the file over."""
        try:
            self._side.learn(content)
            if self._agreed is None:
                await self._join(content)
            elif self._view is not None:
                self._side.edit(content, self._view)
            else:
                self._side.merge(content, self._agreed)
        except (WalStoreError, OSError) as error:
            return self._refuse(error)
        # The document may say more than the file by now, and no view says just what the file does.
        self._agreed, self._view, self._attempt = content, None, None
        self._is_dirty, self._held_looks = True, 0
        self._tell(FileState.FOLLOWING)
        return await self._write()

    async def _join(self, content: bytes) -> None:
        """Bring both together for the first time."""
        view, known = self._store.view(), await self._remembered()
        if known is not None:
            self._side.merge(content, known)
        elif self._side.is_blank(content) or self._side.render(view, content) == content:
            return
        elif self._side.is_empty(view):
            self._side.edit(content, view)
        else:
            self._set_aside = await asyncio.to_thread(self._disk.set_aside, self._path, content)

    async def _remembered(self) -> bytes | None:
        if self._memory is None:
            return None
        found = await asyncio.to_thread(self._disk.read, self._memory, None)
        return found.content if found is not None and self._side.reads(found.content) else None

    # ── writing ────────────────────────────────────────────────────────────────────────

    def _changed(self, change: object) -> None:
        self._is_dirty = True

    async def _write(self) -> bool:
        """Make the file say what the document says, unless it was edited meanwhile."""
        if not self._is_dirty:
            return False
        if self._held_looks:
            self._held_looks -= 1
            return False
        # What is edited from here on is another change.
        self._is_dirty = False
        try:
            is_written = await self._put(self._store.view())
        except (WalStoreError, OSError) as error:
            self._is_dirty, self._held_looks = True, _RETRY_LOOKS
            return self._refuse(error)
        if not is_written:
            # Somebody was faster; the next looks find what they wrote.
            self._is_dirty = True
        return not is_written

    async def _put(self, view: View) -> bool:
        content = self._side.render(view, self._agreed)
        if content != self._agreed:
            self._attempt = content, view
            before = self._agreed
            if not await asyncio.to_thread(self._disk.replace, self._path, content, before):
                return False
        self._agreed, self._view = content, view
        self._tell(FileState.FOLLOWING)
        if self._memory is not None:
            await asyncio.to_thread(self._disk.keep, self._memory, content)
        return True

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _refuse(self, error: Exception) -> bool:
        self._tell(FileState.REFUSED, getattr(error, "reason", None) or str(error))
        return False

    def _tell(self, state: FileState, reason: str = "") -> None:
        status = FileStatus(state, reason)
        if status == self._status:
            return
        self._status = status
        if self._on_status is None:
            return
        try:
            self._on_status(status)
        except FAILURES as error:
            # Whoever shows the status has failed, and following goes on.
            context = {"message": f"the callback {self._on_status!r} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)


async def _rest() -> None:
    await asyncio.sleep(LOOK_MS / 1000)
