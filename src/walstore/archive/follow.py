"""An archive followed: its rows once, then what changes, each time it moves.

- The first step of a reader that has nothing, and of one that no chain of diffs leads on from
  where it stands, is `Replaced`: what it holds goes, what is given stays. Merging the two would
  leave rows behind that are gone.
- Every other step is `Moved`: the changes of the diffs since.
- A step is marked once it has been taken over; a reader that was killed in between is given it
  again, and taking it over twice changes nothing.
- The manifest is looked at every few seconds, and at once when somebody says that it has moved.
- What cannot be read now is tried again; what is damaged ends the reading.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import anyio

from walstore.archive.artifacts import MissingObjectError
from walstore.archive.destination import DestinationError
from walstore.archive.manifest import Manifest
from walstore.archive.place_file import read_place, write_place
from walstore.archive.plan import Place, Plan, plan
from walstore.archive.reader import Archive, ArchiveNotFoundError
from walstore.archive.rows import Row, RowChange

POLL_S = 5.0

# How often a manifest may be replaced while the objects that it names are being read.
_RETRIES_MAX = 5


class Replaced(NamedTuple):
    """Everything, in place of whatever there was."""

    rows: Sequence[Row]
    place: Place


class Moved(NamedTuple):
    """What has changed, in this order."""

    changes: Sequence[RowChange]
    place: Place


Step = Replaced | Moved


class Follower:
    """A reader that keeps up with an archive."""

    def __init__(
        self,
        archive: Archive,
        *,
        state: Path | None = None,
        poll_s: float = POLL_S,
        on_unreachable: Callable[[Exception], None] | None = None,
    ) -> None:
        """Name what is followed; nothing is read yet.

        Args:
            archive: The archive.
            state: Where to keep how far the reader has come; if left out it begins anew each time.
            poll_s: How often to look.
            on_unreachable: Told why the archive cannot be read for now.

        Raises:
            StorageError: The state cannot be read.
        """
        self._archive = archive
        self._state = state
        self._poll_s = poll_s
        self._on_unreachable = on_unreachable
        self._woken = anyio.Event()
        self.place: Place | None = None if state is None else read_place(state)

    def wake(self) -> None:
        """Look now: somebody says that the archive has moved."""
        self._woken.set()

    def mark(self, step: Step) -> None:
        """Remember that a step was taken over.

        Raises:
            StorageError: It cannot be kept.
        """
        if self._state is not None:
            write_place(self._state, step.place)
        self.place = step.place

    async def steps(self) -> AsyncGenerator[Step, None]:
        """What to take over, for ever; each is given again until it is marked.

        Raises:
            MalformedError: The archive is damaged.
            NewerManifestError: It is of a later version.
        """
        while True:
            self._woken = anyio.Event()
            step = await self._next_or_none()
            if step is not None:
                yield step
                continue
            with anyio.move_on_after(self._poll_s):
                await self._woken.wait()

    async def next(self) -> Step | None:
        """What to take over now; None if the reader is at the head, or there is nothing yet.

        Raises:
            MalformedError: The archive is damaged.
            NewerManifestError: It is of a later version.
            DestinationError: It cannot be read now.
            MissingObjectError: What the manifest names is not there, however often it is read.
        """
        for _ in range(_RETRIES_MAX):
            manifest = await self._manifest()
            way = None if manifest is None else plan(manifest, self.place)
            if manifest is None or way is None or not way.artifacts:
                return None
            try:
                return await self._step(manifest, way)
            except MissingObjectError:
                # An epoch may be dropped while it is read; the next manifest knows.
                if await self._manifest() == manifest:
                    raise
        return None

    async def _next_or_none(self) -> Step | None:
        try:
            return await self.next()
        except (DestinationError, MissingObjectError) as error:
            if self._on_unreachable is not None:
                self._on_unreachable(error)
            return None

    async def _manifest(self) -> Manifest | None:
        try:
            return await self._archive.manifest()
        except ArchiveNotFoundError:
            return None

    async def _step(self, manifest: Manifest, way: Plan) -> Step:
        if way.base is not None:
            rows: list[Row] = []
            for number in range(manifest.parts):
                rows.extend(await self._archive.part_rows(manifest, way, number))
            return Replaced(rows, way.place)
        changes: list[RowChange] = []
        for diff in way.diffs:
            changes += await self._archive.changes(manifest, diff)
        return Moved(changes, way.place)
