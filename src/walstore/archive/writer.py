"""Commits windows to an archive: as a diff, or as the base of a new epoch.

- A window goes on from the head. Its artifact is durable in all places before the manifest names
  it, and replacing the manifest is what commits it. Until then nothing has happened, and the same
  window may be tried again.
- The manifest is built beside the one that counts, and takes its place only once it is stored.
- Somebody else's commit is a `MovedError`: whoever reads the source goes on from the new head.
- A window that begins with a TRUNCATE is the whole table. As a base it may begin anywhere: so a
  table is read anew when what happened since the head is no longer to be had.
- There should be one writer for a table; a second one is noticed, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import anyio
from anyio.to_thread import run_sync

from walstore.archive.artifacts import Encoded, Spot, encode_base, encode_diff, put_part
from walstore.archive.buckets import by_bucket
from walstore.archive.destination import Destination
from walstore.archive.format import Format
from walstore.archive.keys import check_prefix
from walstore.archive.manifest import Artifact, Manifest, Mode, Part, opened
from walstore.archive.merge import merged
from walstore.archive.places import Places
from walstore.archive.plan import plan
from walstore.archive.policy import Decision, Measures, Policy, decide
from walstore.archive.reader import Archive
from walstore.archive.rows import Action, Column, RowChange, Window
from walstore.errors import UsageError


class OtherTableError(UsageError):
    """The archive there is one of something else."""

    def __init__(self, what: str, *, there: object, here: object) -> None:
        super().__init__(
            f"the archive there has the {what} {there!r}, not {here!r}: use another prefix"
        )


class Table(NamedTuple):
    """What is archived.

    Attributes:
        name: What it is called.
        prefix: What the keys of its objects begin with.
        key_fields: The members of a row that are its key.
        columns: What rows have; empty if nobody knows.
        mode: What the rows are.
        source: The relay that they are from, if they are from one.
        parts: How many parts each artifact has.
    """

    name: str
    prefix: str
    key_fields: tuple[str, ...]
    columns: tuple[Column, ...] = ()
    mode: Mode = "rows"
    source: str | None = None
    parts: int = 1

    def new_manifest(self, now_ms: int) -> Manifest:
        """The manifest of an archive that has nothing yet."""
        return opened(
            self.name,
            now_ms=now_ms,
            parts=self.parts,
            columns=self.columns,
            key_fields=self.key_fields,
            mode=self.mode,
            source=self.source,
        )

    def check(self, manifest: Manifest) -> None:
        """Check that a manifest is one of this table.

        Raises:
            OtherTableError: It is not.
        """
        for what, there, here in (
            ("table", manifest.table, self.name),
            ("mode", manifest.mode, self.mode),
            ("key", manifest.key_fields or self.key_fields, self.key_fields),
            ("columns", manifest.columns or self.columns, self.columns),
            ("number of parts", manifest.parts, self.parts),
            ("source", manifest.source or self.source, self.source or manifest.source),
        ):
            if there != here:
                raise OtherTableError(what, there=there, here=here)


class Committed(NamedTuple):
    """What a commit has added.

    Attributes:
        artifact: The base or diff.
        manifest: The manifest that names it.
        manifest_uri: Where that is.
        trigger: The rule that asked for a base, if one did.
    """

    artifact: Artifact
    manifest: Manifest
    manifest_uri: str
    trigger: str | None


class Writer:
    """The one writer of an archive."""

    def __init__(
        self,
        table: Table,
        destinations: Sequence[Destination],
        *,
        base_formats: Sequence[Format],
        diff_formats: Sequence[Format],
        policy: Policy,
        now_ms: Callable[[], int],
        keep_epochs: int = 0,
        on_error: Callable[[str], None] | None = None,
    ) -> None:
        """Describe an archive; nothing is read before `open()`.

        Args:
            table: What is archived.
            destinations: Where to; what is in the first one counts.
            base_formats: What bases are written as.
            diff_formats: What diffs are written as.
            policy: When a base is due.
            now_ms: The time in milliseconds since 1970.
            keep_epochs: How many epochs to keep; all if 0.
            on_error: Told the name of each place that failed after a commit.

        Raises:
            UsageError: There is no table, place or format, or the prefix cannot be used.
        """
        if not table.name:
            raise UsageError("an archive needs the name of its table")
        if not destinations:
            raise UsageError("an archive needs at least one destination")
        if not base_formats or not diff_formats:
            raise UsageError("an archive needs a format for bases and one for diffs")
        if keep_epochs < 0:
            raise UsageError("the number of epochs to keep cannot be negative")
        check_prefix(table.prefix)
        self.table = table
        self._places = Places(destinations, table.prefix, on_error=on_error)
        self._archive = Archive(destinations[0], table.prefix, key_fields=table.key_fields)
        self._base_formats, self._diff_formats = tuple(base_formats), tuple(diff_formats)
        self._policy = policy
        self._now_ms = now_ms
        self._keep_epochs = keep_epochs
        self._lock = anyio.Lock()

    @property
    def manifest(self) -> Manifest | None:
        """What the archive is made of, as far as this writer knows; None before its first base."""
        return self._places.manifest

    @property
    def head(self) -> int:
        """What the archive has reached; 0 before its first base."""
        return 0 if self.manifest is None else self.manifest.head_position

    async def open(self) -> None:
        """Read what is there, and bring all places up to the first; again after a `MovedError`.

        Raises:
            OtherTableError: It is the archive of something else.
            DivergedError: A place holds another archive than the first one.
            ManifestError: The manifest is damaged.
            NewerManifestError: A later version has written it.
            DestinationError: A place cannot be read or written now.
        """
        async with self._lock:
            manifest = await self._places.reload()
            if manifest is not None:
                self.table.check(manifest)
            await self._places.roll_forward()

    async def commit(self, window: Window, *, is_base_wanted: bool = False) -> Committed | None:
        """Write what happened since the head; None if there is nothing to write.

        Args:
            window: What happened from the head on; or the whole table, if a base is wanted.
            is_base_wanted: Whether to open a new epoch, whatever the policy says.

        Raises:
            UsageError: The window does not begin at the head.
            MovedError: Somebody else has committed, and nothing was; `open` again.
            DestinationError: It is not known to be committed; the same window may be tried again.
        """
        async with self._lock:
            await self._places.roll_forward()
            before = self.manifest or self.table.new_manifest(self._now_ms())
            _check_window(window, before, is_base_wanted)
            after, trigger = await self._write(before, window, is_base_wanted)
            if after is before:
                return None
            await self._places.replace(after.dropping_epochs(self._keep_epochs))
            return Committed(after.artifacts[-1], after, self._places.manifest_uri, trigger)

    async def _write(
        self, before: Manifest, window: Window, is_base_wanted: bool
    ) -> tuple[Manifest, str | None]:
        """Store the artifact of a window; the manifest that would name it, and why it is a base."""
        buckets = by_bucket(window.changes, self.table.parts)
        if is_base_wanted or before.newest_base is None:
            return await self._with_base(before, window, buckets), None
        diff = await run_sync(self._encode_diff, buckets)
        decision = self._decide(before, window, diff)
        if decision.is_base:
            return await self._with_base(before, window, buckets), decision.trigger
        if not window.changes:
            return before, None
        return await self._with_diff(before, window, diff), None

    def _decide(
        self, before: Manifest, window: Window, diff: Sequence[Sequence[Encoded]]
    ) -> Decision:
        base = before.newest_base
        assert base is not None
        has_moved = bool(window.changes) or before.head_position > base.to_position
        return decide(
            self._policy,
            Measures(
                age_ms=self._now_ms() - base.created_ms,
                diff_bytes=sum(len(part[0].body) for part in diff) if window.changes else 0,
                base_bytes=base.size_bytes(self._base_formats[0].id),
                churn=before.churn + window.churn,
                rows=before.rows + _net(window.changes),
                has_moved=has_moved,
            ),
        )

    async def _with_base(
        self, before: Manifest, window: Window, buckets: Sequence[Sequence[RowChange]]
    ) -> Manifest:
        spot = Spot(self.table.prefix, before.epoch + 1, None, window.to, self.table.parts)
        way = None if is_whole(window) else plan(before)
        stored = []
        for number, changes in enumerate(buckets):
            # One part at a time: what is held is a part, not the table.
            old = iter(()) if way is None else await self._archive.part_rows(before, way, number)
            rows = merged(old, [changes], self.table.key_fields)
            encoded = await run_sync(encode_base, rows, self._base_formats, self.table.columns)
            parts = await put_part(self._places.destinations, spot, number, encoded)
            stored.append((parts, encoded[0].row_count))
        return before.with_base(
            to=window.to,
            count=sum(count for _, count in stored),
            formats=_by_format([parts for parts, _ in stored]),
            now_ms=self._now_ms(),
            churn=window.churn,
        )

    async def _with_diff(
        self, before: Manifest, window: Window, diff: Sequence[Sequence[Encoded]]
    ) -> Manifest:
        spot = Spot(self.table.prefix, before.epoch, window.since, window.to, self.table.parts)
        stored = [
            await put_part(self._places.destinations, spot, number, encoded)
            for number, encoded in enumerate(diff)
        ]
        return before.with_diff(
            to=window.to,
            count=sum(encoded[0].row_count for encoded in diff),
            formats=_by_format(stored),
            now_ms=self._now_ms(),
            churn=window.churn,
            table_rows=max(before.rows + _net(window.changes), 0),
        )

    def _encode_diff(self, buckets: Sequence[Sequence[RowChange]]) -> list[list[Encoded]]:
        return [encode_diff(each, self._diff_formats, self.table.columns) for each in buckets]


def is_whole(window: Window) -> bool:
    """Whether a window is the whole table, and needs nothing of what is there."""
    return bool(window.changes) and window.changes[0].action is Action.TRUNCATE


def _check_window(window: Window, manifest: Manifest, is_base_wanted: bool) -> None:
    since, to, head = window.since, window.to, manifest.head_position
    is_anew = is_base_wanted and is_whole(window)
    if since != head and not is_anew:
        raise UsageError(f"a window from {since} on does not go on from the head at {head}")
    if to < head or (window.changes and to == head and not is_anew):
        raise UsageError(f"a window to {to} does not move the head from {head}")


def _net(changes: Sequence[RowChange]) -> int:
    """How many rows a table gains."""
    actions = [each.action for each in changes]
    return actions.count(Action.INSERT) - actions.count(Action.DELETE)


def _by_format(stored: Sequence[dict[str, Part]]) -> dict[str, tuple[Part, ...]]:
    return {name: tuple(part[name] for part in stored) for name in stored[0]}
