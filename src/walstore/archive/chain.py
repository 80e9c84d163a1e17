"""Whether a manifest's artifacts are chains: epochs that rise, and ranges without a gap.

- An epoch is opened by a base, which may take in what is new itself.
- A diff begins where the artifact before it ends, and ends beyond that.
- The head is where the last artifact ends; with none of them it is 0.
- No artifact is of an epoch below the one that the archive began with.
"""

from __future__ import annotations

from walstore.archive.manifest import PARTS_MAX, Artifact, Manifest, ManifestError


def check(manifest: Manifest) -> None:
    """Check that the artifacts are chains without a gap, and end at the head.

    Raises:
        ManifestError: They do not.
    """
    if not 1 <= manifest.parts <= PARTS_MAX:
        raise ManifestError(f"it has {manifest.parts} parts; 1 to {PARTS_MAX} can be")
    _check_columns(manifest)
    before: Artifact | None = None
    for index, artifact in enumerate(manifest.artifacts):
        flaw = _link_flaw(before, artifact) or _parts_flaw(artifact, manifest.parts)
        if flaw is not None:
            raise ManifestError(f"artifacts[{index}] {flaw}")
        before = artifact
    begun = manifest.first_epoch - 1
    epoch, head = (begun, 0) if before is None else (before.epoch, before.to_position)
    if any(each.epoch <= begun for each in manifest.artifacts[:1]):
        raise ManifestError(f"it has artifacts from before epoch {manifest.first_epoch}")
    if manifest.epoch != epoch:
        raise ManifestError(f"its epoch is {manifest.epoch}, but that of its artifacts {epoch}")
    if manifest.head_position != head:
        raise ManifestError(f"its head is at {manifest.head_position}, but they end at {head}")


def _link_flaw(before: Artifact | None, artifact: Artifact) -> str | None:
    """What is wrong with an artifact in its place."""
    since, to = artifact.from_position, artifact.to_position
    if artifact.is_base:
        if since is not None:
            return "is a base, and yet begins somewhere"
        if before is not None and artifact.epoch <= before.epoch:
            return f"opens epoch {artifact.epoch} after epoch {before.epoch}"
        if before is not None and to < before.to_position:
            return f"ends at {to}, behind the artifact before it"
        return None if artifact.epoch >= 1 else f"opens epoch {artifact.epoch}"
    if before is None or artifact.epoch != before.epoch:
        return f"is a diff in epoch {artifact.epoch}, which no base opens"
    if since != before.to_position:
        return f"begins at {since}, but the artifact before it ends at {before.to_position}"
    return None if to > since else f"covers nothing: it is from {since} to {to}"


def _parts_flaw(artifact: Artifact, parts: int) -> str | None:
    if not artifact.formats:
        return "is there in no format"
    for format_id, objects in artifact.formats.items():
        if len(objects) != parts:
            return f"has {len(objects)} parts in {format_id}, and not {parts}"
        counts = [each.row_count for each in objects if each.row_count is not None]
        if parts > 1 and (len(counts) < parts or sum(counts) != artifact.count):
            return f"has parts in {format_id} that do not add up to {artifact.count}"
    return None


def _check_columns(manifest: Manifest) -> None:
    names = [column.name for column in manifest.columns]
    if len(set(names)) < len(names):
        raise ManifestError("two of its columns have one name")
    if len(set(manifest.key_fields)) < len(manifest.key_fields):
        raise ManifestError("a key field is named twice")
    if names and not set(manifest.key_fields) <= set(names):
        raise ManifestError("a key field is none of its columns")
