"""An archive as its readers see it: rows, at the head or as of a position.

- A manifest is read once for each question; what it names is then read and checked.
- Of an artifact's formats the first that was asked for is read; if none was, any that can be.
- One part is read at a time: what is held of it are the bytes of its artifacts.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from walstore.archive.artifacts import (
    NoFormatError,
    checked_changes,
    checked_count,
    checked_rows,
    key_of_part,
    read_object,
)
from walstore.archive.destination import Destination
from walstore.archive.format import Format
from walstore.archive.formats import open_format
from walstore.archive.keys import PartOf, manifest_key
from walstore.archive.manifest import Artifact, Manifest, Part
from walstore.archive.manifest_json import read_manifest
from walstore.archive.merge import merged
from walstore.archive.plan import Plan, plan, plan_as_of
from walstore.archive.rows import Action, Row, RowChange
from walstore.errors import StorageError, UsageError

# What rows are keyed by where nobody says otherwise.
KEY_FIELDS = ("id",)


class ArchiveNotFoundError(StorageError):
    """There is no archive there."""

    def __init__(self, destination: str, key: str) -> None:
        directory, slash, name = key.rpartition("/")
        prefix = name.removesuffix(manifest_key(""))
        if prefix:
            # The commonest mistake: a prefix is no directory, and nothing is put behind it.
            hint = f"is the prefix {directory}{slash}{prefix}/ meant?"
        elif directory:
            hint = "is the prefix right?"
        else:
            hint = "does it have a prefix, such as notes/?"
        super().__init__(f"{destination}: there is no archive, {key} is not there; {hint}")
        self.key = key


class KeyFieldsError(UsageError):
    """The rows of an archive have another key than the reader expects."""

    def __init__(self, expected: Sequence[str], there: Sequence[str]) -> None:
        super().__init__(
            f"the archive's rows are keyed by {', '.join(there)}, not by {', '.join(expected)}"
        )


class NotReachedError(UsageError):
    """The archive has nothing of a position: it begins later, or has no base yet."""

    def __init__(self, position: int | None) -> None:
        asked = "" if position is None else f" at or before {position}"
        super().__init__(f"the archive has no base{asked}")
        self.position = position


class Reading(NamedTuple):
    """A part of an artifact as bytes, ready to be decoded."""

    format: Format
    key: str
    body: bytes
    row_count: int | None


class Archive:
    """An archive in one place."""

    def __init__(
        self,
        destination: Destination,
        prefix: str = "",
        *,
        formats: Sequence[Format] = (),
        key_fields: Sequence[str] = (),
    ) -> None:
        """Name an archive; nothing is read yet.

        Args:
            destination: Where it is.
            prefix: What its keys begin with.
            formats: What to read, the first that an artifact has; any if left out.
            key_fields: What makes a row's key, for manifests that do not say; else as they say.
        """
        self.destination = destination
        self.prefix = prefix
        self._formats = tuple(formats)
        self._key_fields = tuple(key_fields)

    async def manifest(self) -> Manifest:
        """What the archive is made of now.

        Raises:
            ArchiveNotFoundError: There is none.
            ManifestError: It is damaged.
            NewerManifestError: It is of a later version than this one can read.
            KeyFieldsError: Its rows have another key than was expected.
            DestinationError: It cannot be read now.
        """
        key = manifest_key(self.prefix)
        found = await self.destination.get(key)
        if found is None:
            raise ArchiveNotFoundError(self.destination.name, key)
        manifest = read_manifest(found.body)
        if not manifest.key_fields:
            return replace(manifest, key_fields=self._key_fields or KEY_FIELDS)
        if self._key_fields and self._key_fields != manifest.key_fields:
            raise KeyFieldsError(self._key_fields, manifest.key_fields)
        return manifest

    async def rows(self, *, at: int | None = None) -> AsyncGenerator[Row, None]:
        """The rows at the head, or as of a position: part after part, each in order of the keys.

        Raises:
            NotReachedError: The archive begins later.
            MissingObjectError: Something that the manifest names is not there.
            MalformedError: Something is not what it should be.
            DestinationError: It cannot be read now.
        """
        manifest = await self.manifest()
        wanted = plan(manifest) if at is None else plan_as_of(manifest, at)
        if wanted is None:
            raise NotReachedError(at)
        for number in range(manifest.parts):
            for row in await self.part_rows(manifest, wanted, number):
                yield row

    async def part_rows(self, manifest: Manifest, wanted: Plan, number: int) -> Iterator[Row]:
        """The rows of one part after a plan that has a base; decoded as they are taken."""
        if wanted.base is None:
            raise NotReachedError(None)
        base = await self._read(wanted.base, number)
        diffs = [await self._read(each, number) for each in wanted.diffs]
        changes = [_changes(each, manifest, number) for each in diffs]
        return merged(_rows(base, manifest, number), changes, manifest.key_fields)

    async def changes(self, manifest: Manifest, diff: Artifact) -> list[RowChange]:
        """The changes of a diff: a TRUNCATE first, if there is one, then part after part."""
        changes: list[RowChange] = []
        for number in range(manifest.parts):
            for change in _changes(await self._read(diff, number), manifest, number):
                # Every part has it; once they are one, it would empty what came before.
                if change.action is not Action.TRUNCATE or not changes:
                    changes.append(change)
        return changes

    async def _read(self, artifact: Artifact, number: int) -> Reading:
        format, part = self._choose(artifact, number)
        body = await read_object(self.destination, self.prefix, part)
        expected = artifact.count if len(artifact.formats[format.id]) == 1 else part.row_count
        return Reading(format, key_of_part(self.prefix, part), body, expected)

    def _choose(self, artifact: Artifact, number: int) -> tuple[Format, Part]:
        for format in self._formats or _openable(artifact):
            if format.id in artifact.formats:
                return format, artifact.formats[format.id][number]
        raise NoFormatError(artifact, [each.id for each in self._formats])


def _rows(reading: Reading, manifest: Manifest, number: int) -> Iterator[Row]:
    rows = reading.format.read_base(reading.body, manifest.columns)
    part = PartOf(number, manifest.parts)
    placed = checked_rows(rows, reading.key, manifest.key_fields, part)
    return checked_count(placed, reading.key, reading.row_count)


def _changes(reading: Reading, manifest: Manifest, number: int) -> Iterator[RowChange]:
    changes = reading.format.read_diff(reading.body, manifest.columns)
    part = PartOf(number, manifest.parts)
    placed = checked_changes(changes, reading.key, manifest.key_fields, part)
    return checked_count(placed, reading.key, reading.row_count)


def _openable(artifact: Artifact) -> Iterator[Format]:
    """The formats of an artifact that can be read here, those without further packages first."""
    for format_id in sorted(artifact.formats, key=lambda each: (each != "jsonl", each)):
        try:
            yield open_format(format_id)
        except UsageError:
            continue
