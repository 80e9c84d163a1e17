"""The manifest: which artifacts an archive is made of.

- A base opens an archive epoch; diffs follow, each from where the artifact before it ends.
- Epochs rise, positions never fall, and the head is where the last artifact ends.
- An artifact is there in one or more formats. In each it is one object, or as many parts as the
  manifest says.
- A manifest never changes: every operation gives another one, which is nobody's until it has been
  put in the place of the one before.

    epoch 1: base →40, diff 40→50, diff 50→57     epoch 2: base →57, diff 57→60     head 60
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, NamedTuple

from walstore.archive.rows import Column
from walstore.errors import MalformedError, PeerError, UsageError

Mode = Literal["rows", "sealed", "folded"]

# What a manifest's version may be; the second has artifacts in parts.
VERSION_WHOLE = 1
VERSION_PARTS = 2

# Every part is an object, and every diff has as many: more than this is a mistake.
PARTS_MAX = 4096

POSITION_MAX = 2**63 - 1


class ManifestError(MalformedError):
    """A manifest that is damaged, or not one at all."""

    def __init__(self, reason: str) -> None:
        super().__init__("manifest", reason)


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


class Kind(Enum):
    """What an artifact is; a base is called a snapshot in the manifest's text."""

    BASE = "snapshot"
    DIFF = "diff"


class Part(NamedTuple):
    """An object that an artifact, or a part of it, is in.

    Attributes:
        uri: Where it was written.
        size_bytes: Its size.
        key: Its key, by which it is found in a copy of the archive; None if nobody said.
        sha256: The hash of its bytes, in hex; None if nobody said.
        row_count: How many rows or changes are in it, if it is one of several.
    """

    uri: str
    size_bytes: int
    key: str | None = None
    sha256: str | None = None
    row_count: int | None = None


@dataclass(frozen=True, slots=True)
class Artifact:
    """A base, or a diff over the half-open range `(from_position, to_position]`.

    Attributes:
        kind: Which of them.
        epoch: The archive epoch.
        from_position: Where a diff begins; None for a base.
        to_position: The position that the table has reached with it.
        created_ms: When it was written.
        count: How many rows a base has, or how many changes a diff.
        formats: Its objects, by format: one, or one for each part.
        churn: How many events it stands for; None if nobody said.
        table_rows: How many rows the table has after a diff; None if nobody said.
    """

    kind: Kind
    epoch: int
    from_position: int | None
    to_position: int
    created_ms: int
    count: int
    formats: Mapping[str, tuple[Part, ...]]
    churn: int | None = None
    table_rows: int | None = None

    @property
    def is_base(self) -> bool:
        """Whether it opens its epoch."""
        return self.kind is Kind.BASE

    @property
    def objects(self) -> Iterator[Part]:
        """Its objects, in all formats."""
        for parts in self.formats.values():
            yield from parts

    @property
    def stored_bytes(self) -> int:
        """How large it is, in all formats."""
        return sum(part.size_bytes for part in self.objects)

    def size_bytes(self, format_id: str) -> int:
        """How large it is in a format; 0 if it is not there in it."""
        return sum(part.size_bytes for part in self.formats.get(format_id, ()))


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an archive is made of.

    Attributes:
        table: What it is an archive of.
        epoch: The archive epoch; before the first base the one before `first_epoch`.
        updated_ms: When it was written.
        head_position: What the archive has reached; 0 before the first base.
        artifacts: The oldest first.
        parts: How many parts each artifact has.
        columns: What the rows have; empty if nobody said.
        key_fields: The members of a row that are its key; empty if nobody said.
        mode: What the rows are.
        source: The relay that they are from; None if nobody said.
        first_epoch: The epoch that it began with: objects of lower ones are not its own.
        prefix: What the keys of its documents begin with; None if nobody said.
        gap_upto: Up to here events may be missing, which the source had let go of before they were
            read; 0 if none are.
    """

    table: str
    epoch: int
    updated_ms: int
    head_position: int
    artifacts: tuple[Artifact, ...] = ()
    parts: int = 1
    columns: tuple[Column, ...] = ()
    key_fields: tuple[str, ...] = ()
    mode: Mode = "rows"
    source: str | None = None
    first_epoch: int = 1
    prefix: str | None = None
    gap_upto: int = 0

    @property
    def version(self) -> int:
        """The version of the text that it needs."""
        return VERSION_WHOLE if self.parts == 1 else VERSION_PARTS

    @property
    def newest_base(self) -> Artifact | None:
        """The base of the highest epoch; None if there is none."""
        return next((each for each in reversed(self.artifacts) if each.is_base), None)

    @property
    def chain(self) -> tuple[Artifact, ...]:
        """The artifacts of the highest epoch: its base, and the diffs on it."""
        return tuple(each for each in self.artifacts if each.epoch == self.epoch)

    @property
    def diffs(self) -> tuple[Artifact, ...]:
        """The diffs since the last base."""
        return tuple(each for each in self.chain if not each.is_base)

    @property
    def churn(self) -> int:
        """How many events the diffs since the last base stand for; changes, where nobody said."""
        return sum(each.count if each.churn is None else each.churn for each in self.diffs)

    @property
    def rows(self) -> int:
        """How many rows the table has at the head, as far as anybody said."""
        known = [each.count if each.is_base else each.table_rows for each in self.chain]
        return next((rows for rows in reversed(known) if rows is not None), 0)

    def with_base(
        self,
        *,
        to: int,
        count: int,
        formats: Mapping[str, tuple[Part, ...]],
        now_ms: int,
        churn: int | None = None,
    ) -> Manifest:
        """The manifest with a base that opens the next epoch.

        Raises:
            UsageError: The base ends before the head.
        """
        if to < self.head_position:
            raise UsageError(f"a base to {to} falls behind the head at {self.head_position}")
        base = Artifact(Kind.BASE, self.epoch + 1, None, to, now_ms, count, dict(formats), churn)
        return self._with(base, now_ms)

    def with_diff(
        self,
        *,
        to: int,
        count: int,
        formats: Mapping[str, tuple[Part, ...]],
        now_ms: int,
        churn: int | None = None,
        table_rows: int | None = None,
    ) -> Manifest:
        """The manifest with a diff from its head on.

        Raises:
            UsageError: There is no base yet, or the diff does not move the head.
        """
        if not self.artifacts:
            raise UsageError("a diff needs a base before it")
        since = self.head_position
        if to <= since:
            raise UsageError(f"a diff from {since} to {to} does not move the head")
        place = self.epoch, since, to
        diff = Artifact(Kind.DIFF, *place, now_ms, count, dict(formats), churn, table_rows)
        return self._with(diff, now_ms)

    def dropping_epochs(self, keep: int) -> Manifest:
        """The manifest with the last `keep` epochs alone; with all of them if that is 0.

        Raises:
            UsageError: `keep` is negative.
        """
        if keep < 0:
            raise UsageError("the number of epochs to keep cannot be negative")
        first = self.epoch - keep + 1 if keep else 0
        return replace(self, artifacts=tuple(e for e in self.artifacts if e.epoch >= first))

    def as_of(self, count: int) -> Manifest:
        """The manifest with its first artifacts alone, of which there is at least one."""
        artifacts = self.artifacts[:count]
        last = artifacts[-1]
        return replace(
            self,
            epoch=last.epoch,
            updated_ms=last.created_ms,
            head_position=last.to_position,
            artifacts=artifacts,
        )

    def _with(self, artifact: Artifact, now_ms: int) -> Manifest:
        return replace(
            self,
            epoch=artifact.epoch,
            updated_ms=now_ms,
            head_position=artifact.to_position,
            artifacts=(*self.artifacts, artifact),
        )


def opened(
    table: str,
    *,
    now_ms: int,
    parts: int = 1,
    columns: tuple[Column, ...] = (),
    key_fields: tuple[str, ...] = (),
    mode: Mode = "rows",
    source: str | None = None,
    first_epoch: int = 1,
    prefix: str | None = None,
) -> Manifest:
    """The manifest of an archive that has nothing yet."""
    return Manifest(
        table,
        epoch=first_epoch - 1,
        updated_ms=now_ms,
        head_position=0,
        parts=parts,
        columns=columns,
        key_fields=key_fields,
        mode=mode,
        source=source,
        first_epoch=first_epoch,
        prefix=prefix,
    )
