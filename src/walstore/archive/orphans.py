"""Objects that no manifest names: what is left of writers that were killed, and of dropped epochs.

- An orphan is collected only when it is older than a grace period: a younger one may be what a
  writer is about to commit, or what a reader is reading.
- The objects are listed before the manifest is read: what is committed in between is named by it.
- They are looked at once more right before they are removed, a few at a time: whoever is about to
  commit one has put it there again, or has committed it.
- To look is to list, then to read the manifest. That is parsed again only if it is another one.
- Only objects that an archive writes are ever looked at: `<prefix>epoch=…`, from the epoch on that
  it began with. Those below are of an archive whose manifest was moved away, and may be all that
  there is of it.
"""

from __future__ import annotations

from os.path import commonprefix
from typing import NamedTuple

from anyio.to_thread import run_sync

from walstore.archive.artifacts import key_of_part
from walstore.archive.destination import Destination, Listed
from walstore.archive.keys import epoch_of, manifest_key
from walstore.archive.manifest import Manifest
from walstore.archive.manifest_json import read_manifest
from walstore.archive.reader import Archive, ArchiveNotFoundError

# Longer than any writer takes between an object and its commit.
GRACE_MS = 24 * 60 * 60 * 1000

# A commit may take that long.
GRACE_MS_MIN = 60_000

# How many are removed after one look. More of them would be cheaper, and leave more time in which
# one of them is put again.
_LOOK_COUNT_MAX = 16


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
    look = _Look(archive, until_ms=now_ms - grace_ms)
    found = await look.orphans(f"{archive.prefix}epoch=")
    if dry_run:
        return Orphans(tuple(found), is_removed=False)
    removed: list[Listed] = []
    for start in range(0, len(found), _LOOK_COUNT_MAX):
        keys = [each.key for each in found[start : start + _LOOK_COUNT_MAX]]
        shared = commonprefix(keys)  # noqa: RUF071 - a listing is by characters, too
        for again in await look.orphans(shared):
            if again.key in keys:
                await archive.destination.delete(again.key)
                removed.append(again)
    return Orphans(tuple(removed), is_removed=True)


class _Look:
    """Looks for orphans again and again."""

    def __init__(self, archive: Archive, *, until_ms: int) -> None:
        """Look for those that have not been written since a time."""
        self._destination, self._prefix = archive.destination, archive.prefix
        self._until_ms = until_ms
        # The manifest as it was read last, and what it says.
        self._body = b""
        self._named: set[str] = set()
        self._first_epoch = 1

    async def orphans(self, prefix: str) -> list[Listed]:
        """Those that are there now, by key, of the objects whose keys begin with a prefix."""
        listed = [each async for each in self._destination.list(prefix)]
        await self._read_manifest()
        return [each for each in listed if self._is_orphan(each)]

    async def _read_manifest(self) -> None:
        key = manifest_key(self._prefix)
        found = await self._destination.get(key)
        if found is None:
            raise ArchiveNotFoundError(self._destination.name, key)
        if found.body != self._body:
            # A large one takes long, and others have their turn meanwhile.
            manifest = await run_sync(read_manifest, found.body)
            self._body, self._named = found.body, names(manifest, self._prefix)
            self._first_epoch = manifest.first_epoch

    def _is_orphan(self, listed: Listed) -> bool:
        return (
            listed.key not in self._named
            and listed.modified_ms <= self._until_ms
            and epoch_of(self._prefix, listed.key) >= self._first_epoch
        )


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
