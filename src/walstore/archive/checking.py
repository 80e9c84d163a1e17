"""Checks a whole archive: every object that its manifest names, and what its rows say.

- Every artifact is read in every format that it is there in: its size, hash, count and order, and
  that all formats hold the same.
- The rows of a sealed table prove themselves; see `verification`. Those of earlier artifacts are
  the same ones, byte for byte.
- The states of a folded table are signed by whoever folded them, and hold the values beside them.
  That is so for every row that there ever was, each looked at once. A row without a state proves
  nothing: it is counted, and told as a note, as states may be off, or too large to be kept.
- Every row is in the part that its key says.
- No row is of an event beyond the end of its artifact, and none of a folded diff of one before its
  beginning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from heapq import merge

from walstore.archive.artifacts import (
    DamagedObjectError,
    NoFormatError,
    checked_changes,
    checked_count,
    checked_rows,
    key_of_part,
    read_object,
)
from walstore.archive.destination import DestinationError
from walstore.archive.extras import ExtraMissingError
from walstore.archive.formats import UnknownFormatError, open_format
from walstore.archive.keys import PartOf
from walstore.archive.manifest import Artifact, Manifest
from walstore.archive.merge import OrderError, merged
from walstore.archive.plan import plan
from walstore.archive.reader import Archive
from walstore.archive.rows import Row, RowChange, SortKey, key_of, sort_key
from walstore.archive.states import is_bare, state_flaw
from walstore.archive.verification import Verification, verify_rows
from walstore.canon import canonical_bytes
from walstore.errors import PeerError, StorageError

# The hashes of rows that were met: by key where a row stays what it is, else by themselves.
_Seen = dict[SortKey | bytes, bytes]


@dataclass
class Checked:
    """What came of checking an archive.

    Attributes:
        manifest: What it is made of.
        objects: How many objects were read.
        object_bytes: How large they are.
        rows: How many rows there are at the head.
        flaws: What is wrong, in sentences.
        notes: What is worth knowing, and not wrong.
        verification: What the rows of a sealed table prove.
    """

    manifest: Manifest
    objects: int = 0
    object_bytes: int = 0
    rows: int = 0
    flaws: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verification: Verification | None = None

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.flaws


async def check_archive(
    archive: Archive, *, on_object: Callable[[int, int], None] | None = None
) -> Checked:
    """Check an archive; `on_object` is told how many of how many objects were read.

    Raises:
        ArchiveNotFoundError: There is none.
        ManifestError: The manifest itself is damaged.
        DestinationError: It cannot be read now.
    """
    manifest = await archive.manifest()
    checked = Checked(manifest)
    count = sum(len(list(each.objects)) for each in manifest.artifacts)
    flaws: list[str] = []
    bare: set[str] = set()
    rows = 0
    for number in range(manifest.parts):
        seen: _Seen = {}
        for artifact in manifest.artifacts:
            for row in await _check_part(archive, artifact, number, checked):
                flaws += _row_flaws(row, artifact, manifest, seen)
                if is_bare(row):
                    bare.add(str(row.get("document")))
            if on_object is not None:
                on_object(checked.objects, count)
        rows += len(seen)
    if checked.is_sound:
        try:
            await _check_head(archive, checked, rows)
        except NoFormatError as error:
            checked.notes.append(f"the rows at the head were not checked: {error}")
    checked.flaws += flaws
    if manifest.gap_upto:
        checked.notes.append(f"events up to {manifest.gap_upto} may be missing")
    if bare and manifest.mode == "folded":
        checked.notes.append(
            f"documents with a value that no state proves: {len(bare)}, {min(bare)!r} the first"
        )
    return checked


async def _check_part(
    archive: Archive, artifact: Artifact, number: int, checked: Checked
) -> Iterator[Row]:
    """Check a part of an artifact in all its formats; the rows that it has."""
    contents: dict[str, list[Row] | list[RowChange]] = {}
    for format_id, parts in artifact.formats.items():
        part = parts[number]
        try:
            contents[format_id] = await _decoded(archive, artifact, format_id, number, checked)
        except (ExtraMissingError, UnknownFormatError) as error:
            checked.notes.append(f"{key_of_part(archive.prefix, part)} was not decoded: {error}")
        except DestinationError:
            raise
        except (PeerError, StorageError) as error:
            checked.flaws.append(str(error))
    first = next(iter(contents.values()), None)
    for format_id, content in contents.items():
        if content != first:
            checked.flaws.append(
                f"the {artifact.kind.value} to {artifact.to_position} is another one in {format_id}"
            )
    return _rows_in(first or [])


def _rows_in(content: list[Row] | list[RowChange]) -> Iterator[Row]:
    for each in content:
        row = each.new if isinstance(each, RowChange) else each
        if row is not None:
            yield row


def _row_flaws(row: Row, artifact: Artifact, manifest: Manifest, seen: _Seen) -> list[str]:
    """What is wrong with a row of an artifact; what it holds is looked at once."""
    if manifest.mode == "rows":
        return []
    is_sealed, digest = manifest.mode == "sealed", sha256(canonical_bytes(row)).digest()
    key = sort_key(key_of(row, manifest.key_fields)) if is_sealed else digest
    flaws = _seq_flaws(row, artifact, is_sealed=is_sealed)
    if key in seen and seen[key] != digest:
        flaws.append(f"it is another one in the {artifact.kind.value} to {artifact.to_position}")
    flaw = None if is_sealed or key in seen else state_flaw(row)
    if flaw is not None:
        flaws.append(flaw)
    seen[key] = digest
    place = f"{row.get('document')}, seq {row.get('seq')}" if is_sealed else row.get("document")
    return [f"{place}: {each}" for each in flaws]


def _seq_flaws(row: Row, artifact: Artifact, *, is_sealed: bool) -> list[str]:
    """Whether a row is of an event that its artifact cannot have."""
    kind, seq = artifact.kind.value, row.get("seq")
    first, end = artifact.from_position, artifact.to_position
    if type(seq) is not int:
        return []
    if seq > end:
        return [f"it is at {seq}, but the {kind} ends at {end}"]
    # What a sealed archive has missed it takes from snapshots, and those may be older.
    if not is_sealed and first is not None and seq <= first:
        return [f"it is at {seq}, but the {kind} begins after {first}"]
    return []


async def _decoded(
    archive: Archive, artifact: Artifact, format_id: str, number: int, checked: Checked
) -> list[Row] | list[RowChange]:
    part = artifact.formats[format_id][number]
    body = await read_object(archive.destination, archive.prefix, part)
    checked.objects += 1
    checked.object_bytes += len(body)
    key = key_of_part(archive.prefix, part)
    format, columns = open_format(format_id), checked.manifest.columns
    is_whole = checked.manifest.parts == 1
    expected = artifact.count if is_whole else part.row_count
    fields, place = checked.manifest.key_fields, PartOf(number, checked.manifest.parts)
    content: list[Row] | list[RowChange]
    try:
        # Merging it with nothing goes through it in order.
        if artifact.is_base:
            rows = checked_rows(format.read_base(body, columns), key, fields, place)
            content = list(checked_count(rows, key, expected))
            deque(merged(content, [], fields), maxlen=0)
        else:
            changes = checked_changes(format.read_diff(body, columns), key, fields, place)
            content = list(checked_count(changes, key, expected))
            deque(merged([], [content], fields), maxlen=0)
    except OrderError as error:
        raise DamagedObjectError(key, str(error)) from error
    return content


async def _check_head(archive: Archive, checked: Checked, seen: int) -> None:
    """Check the rows at the head, given how many different ones there are in all artifacts."""
    manifest = checked.manifest
    way = plan(manifest)
    if way is None:
        return
    parts = [await archive.part_rows(manifest, way, number) for number in range(manifest.parts)]
    rows = merge(*parts, key=lambda row: sort_key(key_of(row, manifest.key_fields)))
    if manifest.mode == "sealed":
        verification = verify_rows(rows)
        checked.verification, checked.rows = verification, verification.rows
        checked.flaws += [
            f"{flaw.document}, seq {flaw.seq}: {flaw.reason}" for flaw in verification.flaws
        ]
        checked.notes += [
            f"{each.document}: elements {each.first} to {each.end - 1} of"
            f" {each.author[:8]}… are not in the archive"
            for each in verification.missing
        ]
        if verification.rows != seen:
            checked.flaws.append(f"{seen - verification.rows} rows of before are not at the head")
        return
    checked.rows = sum(1 for _ in rows)
