"""The places that one archive is written to, and the manifest in each of them.

- What the first place holds is the archive. Replacing its manifest is the commit; the others
  follow. One that fails holds nobody up, and is brought up to it around the next commit; nor does
  one that cannot be brought up, because the first place has lost an object that it lacks. What
  takes long is spread over many commits.
- An archive begins only where no place has one. If another place does and the first does not, the
  first was lost, and what the other holds may be all that there is.
- An answer that is lost is looked up: if what is there is what was to be written, it was written.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio

from walstore.archive.artifacts import DamagedObjectError, MissingObjectError
from walstore.archive.destination import ConflictError, Destination, DestinationError
from walstore.archive.keys import epoch_of, manifest_key
from walstore.archive.manifest import Manifest
from walstore.archive.manifest_json import read_manifest, write_manifest
from walstore.archive.mirror import DivergedError, mirror, read_theirs
from walstore.archive.orphans import remove_dropped
from walstore.errors import StorageError, WalStoreError

_logger = logging.getLogger("walstore.archive")

# How long a commit waits for places that are behind: to copy an archive may take days, and the
# source may let go of what is not read meanwhile. A last commit has 30 seconds for everything.
BRING_UP_S_MAX = 10.0


class MovedError(StorageError):
    """Somebody else has committed to the archive since it was read."""

    def __init__(self) -> None:
        super().__init__("somebody else has committed to the archive")


@dataclass
class _Place:
    """A destination that follows the first one, and whether it may lack something."""

    destination: Destination
    is_behind: bool = True


class Places:
    """Where an archive is."""

    def __init__(
        self,
        destinations: Sequence[Destination],
        prefix: str,
        *,
        on_error: Callable[[str], None] | None = None,
    ) -> None:
        """Name the places, the first one first; `on_error` is told the name of one that fails."""
        self._first = destinations[0]
        self._others = [_Place(each) for each in destinations[1:]]
        self._revision: str | None = None
        self._prefix = prefix
        self._key = manifest_key(prefix)
        self._on_error = on_error
        self._body = b""
        self.manifest: Manifest | None = None
        # What this writer has replaced last: copies hold it until they have followed.
        self._before: tuple[bytes, Manifest] | None = None

    @property
    def destinations(self) -> list[Destination]:
        """All of them."""
        return [self._first, *[each.destination for each in self._others]]

    @property
    def manifest_uri(self) -> str:
        """Where the manifest is."""
        return self._first.uri(self._key)

    async def reload(self) -> Manifest | None:
        """Read the manifest anew; None if there is none.

        Raises:
            ManifestError: It is damaged.
            NewerManifestError: A later version has written it.
            DestinationError: It cannot be read now.
        """
        found = await self._first.get(self._key)
        self._before = None
        for place in self._others:
            place.is_behind = True
        if found is None:
            self._revision, self._body, self.manifest = None, b"", None
        else:
            manifest = read_manifest(found.body)
            self._revision, self._body, self.manifest = found.revision, found.body, manifest
        return self.manifest

    async def check_new(self) -> None:
        """Check that no other place has an archive, where the first has no manifest.

        Raises:
            MovedError: Somebody else has begun one since the first was read.
            DivergedError: Another place has one, or a manifest that is damaged.
            NewerManifestError: A later version has written it.
            DestinationError: One of them cannot be read now.
        """
        for destination in self.destinations[1:]:
            found = await destination.get(self._key)
            manifest = None if found is None else read_theirs(destination.name, found.body)
            if manifest is not None and manifest.artifacts:
                if await self.has_moved():
                    raise MovedError
                raise DivergedError(
                    destination.name,
                    f"it is at {manifest.head_position}, and the first place has none",
                    way_out="copy it to the first place, or move its manifest away, too",
                )

    async def highest_epoch(self) -> int:
        """The highest epoch that there are objects of, in any place; 0 if there are none.

        Raises:
            DestinationError: A place cannot be listed now.
        """
        highest = 0
        for destination in self.destinations:
            async for each in destination.list(f"{self._prefix}epoch="):
                highest = max(highest, epoch_of(self._prefix, each.key))
        return highest

    async def has_moved(self) -> bool:
        """Whether another manifest is there than the one that was read.

        Raises:
            DestinationError: It cannot be read now.
        """
        found = await self._first.get(self._key)
        return (b"" if found is None else found.body) != self._body

    async def roll_forward(self) -> None:
        """Bring the other places up to the first one, where they are not, as far as there is time.

        One that fails waits, and one that takes longer goes on the next time.

        Raises:
            MovedError: Somebody else has committed, and brings them further.
            DivergedError: One of them holds another archive.
        """
        ends_at = anyio.current_time() + BRING_UP_S_MAX
        for place in self._others:
            if place.is_behind:
                await self._bring_up(place, ends_at)

    async def _bring_up(self, place: _Place, ends_at: float = math.inf) -> None:
        try:
            is_up = True
            if self.manifest is not None:
                is_up = await self._mirror(place.destination, self.manifest, ends_at)
            place.is_behind = not is_up
            if not is_up:
                _logger.info("%s is behind, and is being brought up", place.destination.name)
        except (DestinationError, MissingObjectError, DamagedObjectError) as error:
            self._failed(place.destination.name, error)

    async def _mirror(self, destination: Destination, manifest: Manifest, ends_at: float) -> bool:
        try:
            return await mirror(
                self._first,
                destination,
                prefix=self._prefix,
                manifest=manifest,
                body=self._body,
                ends_at=ends_at,
                before=self._before,
            )
        except (DivergedError, MissingObjectError, ConflictError) as error:
            # A place that is ahead of what was read is no other archive if the first is, too.
            if await self.has_moved():
                raise MovedError from error
            raise

    async def replace(self, manifest: Manifest) -> None:
        """Put a manifest in the place of the one that was read.

        Raises:
            MovedError: Another one is there by now; nothing has changed.
            DestinationError: It is not known to be there.
        """
        body, before = write_manifest(manifest), self.manifest
        self._revision = await self._swap(body)
        self._before = None if before is None else (self._body, before)
        self.manifest, self._body = manifest, body
        # What was behind a moment ago has failed just now, and is tried again at the next commit.
        ready = [place for place in self._others if not place.is_behind]
        # All of them until it is known better: whoever waits for this may give up.
        for place in self._others:
            place.is_behind = True
        for place in ready:
            try:
                await self._bring_up(place)
            except WalStoreError as error:
                # It is committed; what is wrong with a copy is raised before the next one.
                self._failed(place.destination.name, error)
        if before is not None:
            await self._remove_dropped(before, manifest)

    async def _swap(self, body: bytes) -> str:
        try:
            return await self._first.put_if(self._key, body, self._revision)
        except DestinationError as error:
            found = await self._first.get(self._key)
            if found is not None and found.body == body:
                return found.revision
            if isinstance(error, ConflictError):
                raise MovedError from error
            raise

    async def _remove_dropped(self, before: Manifest, after: Manifest) -> None:
        """Remove what is no longer named; what stays by accident is an orphan."""
        # The manifest of one that is behind still names them.
        up = [place.destination for place in self._others if not place.is_behind]
        for destination in [self._first, *up]:
            try:
                await remove_dropped(destination, prefix=self._prefix, before=before, after=after)
            except DestinationError as error:
                self._failed(destination.name, error)

    def _failed(self, name: str, error: Exception) -> None:
        _logger.warning("%s is behind, and is brought up at the next commit: %s", name, error)
        if self._on_error is not None:
            self._on_error(name)
