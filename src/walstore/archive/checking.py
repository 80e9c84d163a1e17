"""Checks a whole archive: every object that its manifest names, and what its rows say.

- Every artifact is read in every format that it is there in: its size, hash, count and order, and
  that all formats hold the same.
- The rows of a sealed table prove themselves; see `verification`.
- The states of a folded table are signed by whoever folded them, and hold the values beside them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import merge

from walstore.archive.artifacts import DamagedObjectError, checked_count, key_of_part, read_object
from walstore.archive.destination import DestinationError
from walstore.archive.extras import ExtraMissingError
from walstore.archive.formats import open_format
from walstore.archive.manifest import Artifact, Manifest, Part
from walstore.archive.merge import OrderError, merged
from walstore.archive.plan import plan
from walstore.archive.reader import Archive
from walstore.archive.rows import Row, RowChange, key_of, sort_key
from walstore.archive.states import state_flaw
from walstore.archive.verification import Verification, verify_rows
from walstore.errors import PeerError, StorageError


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
    for artifact in manifest.artifacts:
        for number in range(manifest.parts):
            await _check_part(archive, artifact, number, checked)
            if on_object is not None:
                on_object(checked.objects, count)
    if checked.is_sound:
        await _check_rows(archive, checked)
    return checked


async def _check_part(archive: Archive, artifact: Artifact, number: int, checked: Checked) -> None:
    contents: dict[str, list[Row] | list[RowChange]] = {}
    for format_id, parts in artifact.formats.items():
        part = parts[number]
        try:
            contents[format_id] = await _decoded(archive, artifact, format_id, part, checked)
        except ExtraMissingError as error:
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


async def _decoded(
    archive: Archive, artifact: Artifact, format_id: str, part: Part, checked: Checked
) -> list[Row] | list[RowChange]:
    body = await read_object(archive.destination, archive.prefix, part)
    checked.objects += 1
    checked.object_bytes += len(body)
    key = key_of_part(archive.prefix, part)
    format, columns = open_format(format_id), checked.manifest.columns
    is_whole = checked.manifest.parts == 1
    expected = artifact.count if is_whole else part.row_count
    fields = checked.manifest.key_fields
    content: list[Row] | list[RowChange]
    try:
        # Merging it with nothing goes through it in order.
        if artifact.is_base:
            content = list(checked_count(format.read_base(body, columns), key, expected))
            deque(merged(content, [], fields), maxlen=0)
        else:
            content = list(checked_count(format.read_diff(body, columns), key, expected))
            deque(merged([], [content], fields), maxlen=0)
    except OrderError as error:
        raise DamagedObjectError(key, str(error)) from error
    return content


async def _check_rows(archive: Archive, checked: Checked) -> None:
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
        return
    for row in _counted(rows, checked):
        flaw = state_flaw(row) if manifest.mode == "folded" else None
        if flaw is not None:
            checked.flaws.append(f"{row.get('document')}: {flaw}")


def _counted(rows: Iterator[Row], checked: Checked) -> Iterator[Row]:
    for row in rows:
        checked.rows += 1
        yield row
