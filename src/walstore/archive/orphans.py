"""Objects that no manifest names: what is left of writers that were killed, and of dropped epochs.

- An orphan is collected only when it is older than a grace period: a younger one may be what a
  writer is about to commit, or what a reader is reading.
- The objects are listed before the manifest is read: what is committed in between is named by it.
- Each is looked at once more right before it is removed: whoever is about to commit it has put it
  there again, or has committed it.
- Only objects that an archive writes are ever looked at: `<prefix>epoch=…`, from the epoch on that
  it began with. Those below are of an archive whose manifest was moved away, and may be all that
  there is of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from walstore.archive.artifacts import key_of_part
from walstore.archive.destination import Destination, Listed
from walstore.archive.keys import epoch_of
from walstore.archive.manifest import Manifest
from walstore.archive.reader import Archive

# Longer than any writer takes between an object and its commit.
GRACE_MS = 24 * 60 * 60 * 1000

# A commit may take that long.
GRACE_MS_MIN = 60_000


class Orphans(NamedTuple):
    """What was found, and whether it was removed."""

    objects: tuple[Listed, ...]
    is_removed: bool

    @property
    def size_bytes(self) -> int:
        """How much they take."""
        return sum(each.size_bytes for each in self.objects)


async def collect_orphans(
    archive: Archive, *, now_ms: int, grace_ms: int = GRACE_MS, dry_run: bool = False
) -> Orphans:
    """Remove what no manifest names and is older than the grace period; what was removed.

    Raises:
        ArchiveNotFoundError: There is no manifest: nothing can be told from nothing.
        DestinationError: Something could not be listed or removed; the rest was.
    """
    destination, prefix = archive.destination, archive.prefix
    listed = [each async for each in destination.list(f"{prefix}epoch=")]
    until_ms = now_ms - grace_ms
    found = _orphans(listed, await archive.manifest(), prefix, until_ms)
    if dry_run:
        return Orphans(tuple(found), is_removed=False)
    removed: list[Listed] = []
    for orphan in found:
        again = [each async for each in destination.list(orphan.key) if each.key == orphan.key]
        for each in _orphans(again, await archive.manifest(), prefix, until_ms):
            await destination.delete(each.key)
            removed.append(each)
    return Orphans(tuple(removed), is_removed=True)


def _orphans(
    listed: Iterable[Listed], manifest: Manifest, prefix: str, until_ms: int
) -> list[Listed]:
    named = names(manifest, prefix)
    return [
        each
        for each in listed
        if each.key not in named
        and each.modified_ms <= until_ms
        and epoch_of(prefix, each.key) >= manifest.first_epoch
    ]


async def remove_dropped(
    destination: Destination, *, prefix: str, before: Manifest, after: Manifest
) -> None:
    """Remove the objects of artifacts that a manifest no longer names.

    Raises:
        DestinationError: Not all of them are known to be gone; they are orphans now.
    """
    for key in sorted(names(before, prefix) - names(after, prefix)):
        await destination.delete(key)


def names(manifest: Manifest, prefix: str) -> set[str]:
    """The keys of the objects that a manifest names."""
    return {
        key_of_part(prefix, part) for artifact in manifest.artifacts for part in artifact.objects
    }
