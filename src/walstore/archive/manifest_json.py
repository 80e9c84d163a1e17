"""The manifest as text: canonical JSON with a checksum.

    {"manifest_version": 1, "table": "notes", "epoch": 2, "updated_at": "2026-03-01T12:00:00.000Z",
     "head_position": "60", "artifacts": [
       {"kind": "snapshot", "epoch": 2, "from_position": null, "to_position": "57",
        "created_at": …, "row_count": 9, "formats": {"jsonl": {"uri": …, "size_bytes": 815, …}}},
       {"kind": "diff", "epoch": 2, "from_position": "57", "to_position": "60",
        "created_at": …, "change_count": 2, "formats": …}],
     "checksum": …}

- The checksum is the SHA-256 of the canonical text without it. Members that only newer writers
  know are under it too, and are otherwise let be.
- What may be missing: `columns`, `key_fields`, `mode`, `source`, `prefix`, `first_epoch`,
  `gap_upto`, `checksum`, an artifact's `churn`, an object's `key` and `sha256`. What is there is
  checked.
- Version 2 has artifacts in parts: `"parts": N` for all of them, and in each format
  `{"parts": [{"uri": …, "size_bytes": …, "row_count": …, …}, …]}`.
- A version that is not known is refused, never guessed at.
"""

from __future__ import annotations

from typing import cast, get_args

from walstore.archive.chain import check
from walstore.archive.manifest import (
    VERSION_PARTS,
    Artifact,
    Kind,
    Manifest,
    ManifestError,
    NewerManifestError,
    Part,
)
from walstore.archive.manifest_members import (
    Members,
    as_array,
    as_count,
    as_key,
    as_kind,
    as_mode,
    as_object,
    as_parts,
    as_position,
    as_prefix,
    as_sha256,
    as_text,
    as_time,
    as_version,
    optional,
    required,
)
from walstore.archive.rows import Column, ColumnType
from walstore.archive.times import time_text
from walstore.canon import Json, canonical_bytes, content_hash, parse
from walstore.errors import MalformedError, NotJsonError

__all__ = ["MANIFEST_BYTES_MAX", "NewerManifestError", "read_manifest", "write_manifest"]

# A million diffs. Whoever comes near should make bases more often, and keep fewer epochs.
MANIFEST_BYTES_MAX = 512 * 2**20

_COUNTS = {Kind.BASE: "row_count", Kind.DIFF: "change_count"}


def write_manifest(manifest: Manifest) -> bytes:
    """The canonical text of a manifest.

    Raises:
        ManifestError: Its artifacts are not chains, or it is too long.
    """
    check(manifest)
    members = _manifest_members(manifest)
    body = canonical_bytes({**members, "checksum": content_hash(members)})
    _check_size(body)
    return body


def read_manifest(body: bytes) -> Manifest:
    """The manifest of a text, once everything in it has been checked.

    Raises:
        NewerManifestError: It is of a version that is not known here.
        ManifestError: It is damaged, or no manifest.
    """
    _check_size(body)
    try:
        value = parse(body)
    except MalformedError as error:
        raise ManifestError(f"it is not JSON: {error.reason}") from error
    members = as_object(value, "it")
    version = required(members, "manifest_version", as_version)
    _check_sum(members)
    manifest = _manifest(members, version)
    check(manifest)
    return manifest


def _check_size(body: bytes) -> None:
    if len(body) > MANIFEST_BYTES_MAX:
        raise ManifestError(f"it has {len(body)} bytes, more than {MANIFEST_BYTES_MAX}")


def _check_sum(members: Members) -> None:
    said = optional(members, "checksum", as_sha256)
    if said is None:
        return
    rest = {name: value for name, value in members.items() if name != "checksum"}
    try:
        fits = content_hash(rest) == said
    except NotJsonError as error:
        raise ManifestError(f"it has no canonical text: {error.reason}") from error
    if not fits:
        raise ManifestError("its checksum does not fit: it was damaged or changed by hand")


# ── writing ────────────────────────────────────────────────────────────────────────────


def _manifest_members(manifest: Manifest) -> dict[str, Json]:
    members: dict[str, Json] = {
        "manifest_version": manifest.version,
        "table": manifest.table,
        "epoch": manifest.epoch,
        "updated_at": time_text(manifest.updated_ms),
        "head_position": str(manifest.head_position),
        "mode": manifest.mode,
        "artifacts": [_artifact_members(each) for each in manifest.artifacts],
    }
    if manifest.parts > 1:
        members["parts"] = manifest.parts
    if manifest.columns:
        members["columns"] = [{"name": name, "type": type_} for name, type_ in manifest.columns]
    if manifest.key_fields:
        members["key_fields"] = list(manifest.key_fields)
    if manifest.source is not None:
        members["source"] = manifest.source
    if manifest.prefix is not None:
        members["prefix"] = manifest.prefix
    if manifest.first_epoch > 1:
        members["first_epoch"] = manifest.first_epoch
    if manifest.gap_upto:
        members["gap_upto"] = str(manifest.gap_upto)
    return members


def _artifact_members(artifact: Artifact) -> dict[str, Json]:
    since = artifact.from_position
    members: dict[str, Json] = {
        "kind": artifact.kind.value,
        "epoch": artifact.epoch,
        "from_position": None if since is None else str(since),
        "to_position": str(artifact.to_position),
        "created_at": time_text(artifact.created_ms),
        _COUNTS[artifact.kind]: artifact.count,
        "formats": {name: _format_members(parts) for name, parts in artifact.formats.items()},
    }
    if artifact.churn is not None:
        members["churn"] = artifact.churn
    if artifact.table_rows is not None:
        members["table_rows"] = artifact.table_rows
    return members


def _format_members(parts: tuple[Part, ...]) -> dict[str, Json]:
    if len(parts) == 1:
        return _part_members(parts[0])
    return {"parts": [_part_members(part) for part in parts]}


def _part_members(part: Part) -> dict[str, Json]:
    return {name: value for name, value in part._asdict().items() if value is not None}


# ── reading ────────────────────────────────────────────────────────────────────────────


def _manifest(members: Members, version: int) -> Manifest:
    parts = required(members, "parts", as_parts) if version == VERSION_PARTS else 1
    return Manifest(
        table=required(members, "table", as_text),
        epoch=required(members, "epoch", as_count),
        updated_ms=required(members, "updated_at", as_time),
        head_position=required(members, "head_position", as_position),
        artifacts=tuple(
            _artifact(each, f"artifacts[{index}]", parts)
            for index, each in enumerate(required(members, "artifacts", as_array))
        ),
        parts=parts,
        columns=optional(members, "columns", _columns) or (),
        key_fields=optional(members, "key_fields", _key_fields) or (),
        mode=optional(members, "mode", as_mode) or "rows",
        source=optional(members, "source", as_text),
        first_epoch=optional(members, "first_epoch", as_count) or 1,
        prefix=optional(members, "prefix", as_prefix),
        gap_upto=optional(members, "gap_upto", as_position) or 0,
    )


def _artifact(value: object, where: str, parts: int) -> Artifact:
    members = as_object(value, where)
    kind = required(members, "kind", as_kind, where)
    formats = required(members, "formats", as_object, where)
    return Artifact(
        kind,
        epoch=required(members, "epoch", as_count, where),
        from_position=optional(members, "from_position", as_position, where),
        to_position=required(members, "to_position", as_position, where),
        created_ms=required(members, "created_at", as_time, where),
        count=required(members, _COUNTS[kind], as_count, where),
        formats={
            as_text(name, f"{where}.formats"): _objects(each, f"{where}.formats.{name[:64]}", parts)
            for name, each in formats.items()
        },
        churn=optional(members, "churn", as_count, where),
        table_rows=optional(members, "table_rows", as_count, where),
    )


def _objects(value: object, where: str, parts: int) -> tuple[Part, ...]:
    """The objects that an artifact is in, in one format."""
    members = as_object(value, where)
    if parts == 1:
        return (_part(members, where),)
    return tuple(
        _part(each, f"{where}.parts[{index}]")
        for index, each in enumerate(required(members, "parts", as_array, where))
    )


def _part(value: object, where: str) -> Part:
    members = as_object(value, where)
    return Part(
        uri=required(members, "uri", as_text, where),
        size_bytes=required(members, "size_bytes", as_count, where),
        key=optional(members, "key", as_key, where),
        sha256=optional(members, "sha256", as_sha256, where),
        row_count=optional(members, "row_count", as_count, where),
    )


def _columns(value: object, where: str) -> tuple[Column, ...]:
    return tuple(
        _column(each, f"{where}[{index}]") for index, each in enumerate(as_array(value, where))
    )


def _column(value: object, where: str) -> Column:
    members = as_object(value, where)
    type_ = required(members, "type", as_text, where)
    if type_ not in get_args(ColumnType):
        raise ManifestError(f"{where}.type is none of {', '.join(get_args(ColumnType))}")
    return Column(required(members, "name", as_text, where), cast(ColumnType, type_))


def _key_fields(value: object, where: str) -> tuple[str, ...]:
    return tuple(as_text(each, where) for each in as_array(value, where))
