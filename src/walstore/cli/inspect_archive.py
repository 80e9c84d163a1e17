"""What `walstore inspect` sees of an archive: all elements in a sealed one, states in a folded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from walstore.archive.bootstrap import archived_elements, archived_state
from walstore.archive.plan import plan
from walstore.archive.reader import Archive, NotReachedError
from walstore.canon import content_hash
from walstore.document.ports import CheckpointTooOldError, RawElement, StoredSnapshot
from walstore.document.snapshot import SNAPSHOT_SUFFIX
from walstore.inspect.overview import DocumentRow, Look, Overview
from walstore.inspect.places import StillPlace
from walstore.wire.limits import PULL_ELEMENTS_MAX

# Documents that are listed.
DOCUMENTS_MAX: Final = 1000


class ArchivePlace(StillPlace):
    """A document in an archive, as it is at its head."""

    def __init__(self, archive: Archive, name: str) -> None:
        """Read an archive."""
        super().__init__(name)
        self._archive = archive
        self._elements: Sequence[RawElement] | None = None

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        """The elements above a checkpoint; a folded archive has none.

        Raises:
            NoPastError: Some are gone, or are not what they say.
            WalStoreError: They cannot be read.
        """
        if (await self._archive.manifest()).mode != "sealed":
            state = await archived_state(self._archive, document_key)
            upto = 0 if state is None else state.get("uptoTs")
            self.floor = upto if isinstance(upto, int) else 0
            if checkpoint < self.floor:
                raise CheckpointTooOldError(self.floor)
            return []
        if self._elements is None:
            self._elements = await archived_elements(
                self._archive, document_key, floor=0, may_lack=True
            )
        above = [each for each in self._elements if each.ts > checkpoint]
        return above[:PULL_ELEMENTS_MAX]

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """The state of a folded archive."""
        if (await self._archive.manifest()).mode != "folded":
            return None
        key = snapshot_key.removesuffix(SNAPSHOT_SUFFIX)
        state = await archived_state(self._archive, key)
        return None if state is None else StoredSnapshot(dict(state), content_hash(dict(state)))


def archive_overview(archive: Archive, name: str) -> Look:
    """Looks at the documents of an archive."""

    async def look() -> Overview:
        manifest = await archive.manifest()
        way = plan(manifest)
        if way is None:
            raise NotReachedError(None)
        rows: dict[str, DocumentRow] = {}
        total, last = 0, ""
        for number in range(manifest.parts):
            for row in await archive.part_rows(manifest, way, number):
                key = str(row.get("document", ""))
                if key not in rows and len(rows) >= DOCUMENTS_MAX:
                    # The rows of a document follow one another.
                    total += key != last
                    last = key
                    continue
                rows[key] = _counted(rows.get(key), row, key)
        facts = [f"{manifest.mode} archive, at position {way.place.position}"]
        ordered = [rows[key] for key in sorted(rows)]
        return Overview(name, ordered, len(rows) + total, facts)

    return look


def _counted(before: DocumentRow | None, row: Mapping[str, Any], key: str) -> DocumentRow:
    ts, data = row.get("ts"), row.get("data")
    known = DocumentRow(key, 0, 0, 0, 0, 0) if before is None else before
    is_element = row.get("kind", "element") == "element"
    return DocumentRow(
        key,
        known.elements + is_element,
        known.bytes + (len(data) if isinstance(data, str) else 0),
        max(known.head, ts if isinstance(ts, int) else 0),
        0,
        known.snapshots + (not is_element),
    )
