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
- What may be missing: `columns`, `key_fields`, `mode`, `source`, `checksum`, an artifact's `churn`,
  an object's `key` and `sha256`. What is there is checked.
- Version 2 has artifacts in parts: `"parts": N` for all of them, and in each format
  `{"parts": [{"uri": …, "size_bytes": …, "row_count": …, …}, …]}`.
- A version that is not known is refused, never guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, get_args

from walstore.archive.keys import key_flaw
from walstore.archive.manifest import (
    PARTS_MAX,
    POSITION_MAX,
    VERSION_PARTS,
    VERSION_WHOLE,
    Artifact,
    Kind,
    Manifest,
    ManifestError,
    Mode,
    Part,
    check,
)
from walstore.archive.rows import Column, ColumnType
from walstore.archive.times import time_ms, time_text
from walstore.canon import INTEGER_MAX, Json, canonical_bytes, content_hash, parse
from walstore.errors import MalformedError, NotJsonError, PeerError

# A million diffs. Whoever comes near should make bases more often, and keep fewer epochs.
MANIFEST_BYTES_MAX = 512 * 2**20

_Value = TypeVar("_Value")
_Members = Mapping[str, Any]

_POSITION = re.compile(r"0|[1-9][0-9]{0,18}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COUNTS = {Kind.BASE: "row_count", Kind.DIFF: "change_count"}


class NewerManifestError(PeerError):
    """A manifest that a newer version of walstore has written.

    Attributes:
        version: Its version.
    """

    def __init__(self, version: int) -> None:
        super().__init__(
            f"the manifest is of version {version}, which is newer than this walstore: upgrade it"
        )
        self.version = version


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
    members = _object(value, "it")
    version = _required(members, "manifest_version", _version)
    _check_sum(members)
    manifest = _manifest(members, version)
    check(manifest)
    return manifest


def _check_size(body: bytes) -> None:
    if len(body) > MANIFEST_BYTES_MAX:
        raise ManifestError(f"it has {len(body)} bytes, more than {MANIFEST_BYTES_MAX}")


def _check_sum(members: _Members) -> None:
    said = _optional(members, "checksum", _sha256)
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


def _manifest(members: _Members, version: int) -> Manifest:
    parts = _required(members, "parts", _parts) if version == VERSION_PARTS else 1
    return Manifest(
        table=_required(members, "table", _text),
        epoch=_required(members, "epoch", _count),
        updated_ms=_required(members, "updated_at", _time),
        head_position=_required(members, "head_position", _position),
        artifacts=tuple(
            _artifact(each, f"artifacts[{index}]", parts)
            for index, each in enumerate(_required(members, "artifacts", _array))
        ),
        parts=parts,
        columns=_optional(members, "columns", _columns) or (),
        key_fields=_optional(members, "key_fields", _key_fields) or (),
        mode=_optional(members, "mode", _mode) or "rows",
        source=_optional(members, "source", _text),
    )


def _artifact(value: object, where: str, parts: int) -> Artifact:
    members = _object(value, where)
    kind = _required(members, "kind", _kind, where)
    formats = _required(members, "formats", _object, where)
    return Artifact(
        kind,
        epoch=_required(members, "epoch", _count, where),
        from_position=_optional(members, "from_position", _position, where),
        to_position=_required(members, "to_position", _position, where),
        created_ms=_required(members, "created_at", _time, where),
        count=_required(members, _COUNTS[kind], _count, where),
        formats={
            _text(name, f"{where}.formats"): _objects(each, f"{where}.formats.{name[:64]}", parts)
            for name, each in formats.items()
        },
        churn=_optional(members, "churn", _count, where),
        table_rows=_optional(members, "table_rows", _count, where),
    )


def _objects(value: object, where: str, parts: int) -> tuple[Part, ...]:
    """The objects that an artifact is in, in one format."""
    members = _object(value, where)
    if parts == 1:
        return (_part(members, where),)
    return tuple(
        _part(each, f"{where}.parts[{index}]")
        for index, each in enumerate(_required(members, "parts", _array, where))
    )


def _part(value: object, where: str) -> Part:
    members = _object(value, where)
    return Part(
        uri=_required(members, "uri", _text, where),
        size_bytes=_required(members, "size_bytes", _count, where),
        key=_optional(members, "key", _key, where),
        sha256=_optional(members, "sha256", _sha256, where),
        row_count=_optional(members, "row_count", _count, where),
    )


def _columns(value: object, where: str) -> tuple[Column, ...]:
    return tuple(
        _column(each, f"{where}[{index}]") for index, each in enumerate(_array(value, where))
    )


def _column(value: object, where: str) -> Column:
    members = _object(value, where)
    type_ = _required(members, "type", _text, where)
    if type_ not in get_args(ColumnType):
        raise ManifestError(f"{where}.type is none of {', '.join(get_args(ColumnType))}")
    return Column(_required(members, "name", _text, where), cast(ColumnType, type_))


def _key_fields(value: object, where: str) -> tuple[str, ...]:
    return tuple(_text(each, where) for each in _array(value, where))


# ── members ────────────────────────────────────────────────────────────────────────────


def _required(
    members: _Members, name: str, read: Callable[[object, str], _Value], where: str = ""
) -> _Value:
    path = f"{where}.{name}" if where else name
    if name not in members:
        raise ManifestError(f"{path} is missing")
    return read(members[name], path)


def _optional(
    members: _Members, name: str, read: Callable[[object, str], _Value], where: str = ""
) -> _Value | None:
    return None if members.get(name) is None else _required(members, name, read, where)


def _object(value: object, where: str) -> _Members:
    if type(value) is not dict:
        raise ManifestError(f"{where} is not an object")
    return value


def _array(value: object, where: str) -> list[Any]:
    if type(value) is not list:
        raise ManifestError(f"{where} is not an array")
    return value


def _text(value: object, where: str) -> str:
    if type(value) is not str or not value:
        raise ManifestError(f"{where} is not a text, or empty")
    return value


def _count(value: object, where: str) -> int:
    if type(value) is not int or not 0 <= value <= INTEGER_MAX:
        raise ManifestError(f"{where} is not a whole number from 0 to 2^53 − 1")
    return value


def _version(value: object, where: str) -> int:
    version = _count(value, where)
    if version > VERSION_PARTS:
        raise NewerManifestError(version)
    if version < VERSION_WHOLE:
        raise ManifestError(f"{where} is {version}")
    return version


def _parts(value: object, where: str) -> int:
    parts = _count(value, where)
    if not 2 <= parts <= PARTS_MAX:
        raise ManifestError(f"{where} is not from 2 to {PARTS_MAX}")
    return parts


def _position(value: object, where: str) -> int:
    text = _text(value, where)
    if not _POSITION.fullmatch(text) or int(text) > POSITION_MAX:
        raise ManifestError(f"{where} is not a whole number in decimal text")
    return int(text)


def _time(value: object, where: str) -> int:
    time = time_ms(_text(value, where))
    if time is None:
        raise ManifestError(f"{where} is not a time such as 2026-03-01T12:00:00.000Z")
    return time


def _sha256(value: object, where: str) -> str:
    text = _text(value, where)
    if not _SHA256.fullmatch(text):
        raise ManifestError(f"{where} is not a SHA-256 in lower-case hex")
    return text


def _key(value: object, where: str) -> str:
    key = _text(value, where)
    flaw = key_flaw(key)
    if flaw is not None:
        raise ManifestError(f"{where} {flaw}")
    return key


def _kind(value: object, where: str) -> Kind:
    try:
        return Kind(value)
    except ValueError:
        raise ManifestError(f"{where} is neither snapshot nor diff") from None


def _mode(value: object, where: str) -> Mode:
    if value not in get_args(Mode):
        raise ManifestError(f"{where} is none of {', '.join(get_args(Mode))}")
    return cast(Mode, value)
