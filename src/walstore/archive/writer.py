"""Commits windows to an archive: as a diff, or as the base of a new epoch.

- A window goes on from the head. Its artifact is durable in the first place before the manifest
  names it, and replacing the manifest is what commits it. Until then nothing has happened, and the
  same window may be tried again. The other places follow.
- The manifest is built beside the one that counts, and takes its place only once it is stored.
- Somebody else's commit is a `MovedError`: whoever reads the source goes on from the new head.
- A window that begins with a TRUNCATE is the whole table. As a base it may begin anywhere: so a
  table is read anew when what happened since the head is no longer to be had.
- There should be one writer for a table; a second one is noticed, and nothing is lost.
- An archive begins with a manifest that names nothing, before any object is written. So objects
  without a manifest are of one whose manifest was moved away: they are left alone, and epochs go on
  above theirs, so that no reader takes one chain for the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import anyio

from walstore.archive.artifacts import MissingObjectError, Spot
from walstore.archive.destination import Destination
from walstore.archive.format import Format
from walstore.archive.keys import check_prefix
from walstore.archive.manifest import Artifact, Manifest, Mode, Part, opened
from walstore.archive.places import MovedError, Places
from walstore.archive.plan import plan
from walstore.archive.policy import Decision, Measures, Policy, decide
from walstore.archive.reader import Archive
from walstore.archive.rows import Column, Window
from walstore.archive.work import Formats, Measured, WindowWork, Work, Written
from walstore.errors import UsageError

_logger = logging.getLogger("walstore.archive")

# How often somebody else may commit while the archive is being opened.
_OPEN_MAX = 4


class OtherTableError(UsageError):
    """The archive there is one of something else."""

    def __init__(self, what: str, *, there: object, here: object) -> None:
        super().__init__(
            f"the archive there has the {what} {there!r}, not {here!r}: use another"
            " archive.key_prefix"
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
        documents: What the keys of its documents begin with; None if it is not of documents.
    """

    name: str
    prefix: str
    key_fields: tuple[str, ...]
    columns: tuple[Column, ...] = ()
    mode: Mode = "rows"
    source: str | None = None
    parts: int = 1
    documents: str | None = None

    def new_manifest(self, now_ms: int, *, first_epoch: int = 1) -> Manifest:
        """The manifest of an archive that has nothing yet."""
        return opened(
            self.name,
            now_ms=now_ms,
            parts=self.parts,
            columns=self.columns,
            key_fields=self.key_fields,
            mode=self.mode,
            source=self.source,
            first_epoch=first_epoch,
            prefix=self.documents,
        )

    def check(self, manifest: Manifest) -> None:
        """Check that a manifest is one of this table; what it does not say is as it should be.

        Raises:
            OtherTableError: It is not.
        """
        before = manifest.prefix
        for what, there, here in (
            ("table", manifest.table, self.name),
            ("mode", manifest.mode, self.mode),
            ("key", manifest.key_fields or self.key_fields, self.key_fields),
            ("columns", manifest.columns or self.columns, self.columns),
            ("number of parts", manifest.parts, self.parts),
            ("source", manifest.source or self.source, self.source or manifest.source),
            ("source.prefix", self.documents if before is None else before, self.documents),
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
            on_error: Told the name of each place that failed to follow.

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
        self._formats = Formats(tuple(base_formats), tuple(diff_formats))
        self._policy = policy
        self._now_ms = now_ms
        self._keep_epochs = keep_epochs
        # What an archive begins with, until it is opened anew: the same bytes at each try, so that
        # one whose answer was lost is not taken for somebody else's.
        self._beginning = table.new_manifest(now_ms(), first_epoch=1)
        self._has_warned = False
        self._lock = anyio.Lock()

    @property
    def manifest(self) -> Manifest | None:
        """What the archive is made of, as far as this writer knows; None before its first base."""
        return self._places.manifest

    @property
    def destinations(self) -> Sequence[Destination]:
        """Where it is written to."""
        return self._places.destinations

    @property
    def head(self) -> int:
        """What the archive has reached; 0 before its first base."""
        return 0 if self.manifest is None else self.manifest.head_position

    @property
    def before(self) -> Manifest:
        """What the next commit goes on from: the manifest, or the one that it begins with."""
        if self.manifest is None:
            return self._beginning
        if self.manifest.prefix is None:
            # A former version has written it; from the next commit on it says so.
            return replace(self.manifest, prefix=self.table.documents)
        return self.manifest

    @property
    def last(self) -> Committed | None:
        """What was committed last, by whomever; None if nothing was, as far as is known."""
        manifest = self.manifest
        if manifest is None or not manifest.artifacts:
            return None
        return Committed(manifest.artifacts[-1], manifest, self._places.manifest_uri, None)

    async def has_moved(self) -> bool:
        """Whether somebody else has committed since the archive was read.

        Raises:
            DestinationError: That cannot be told now.
        """
        return await self._places.has_moved()

    async def open(self) -> None:
        """Read what is there, and go on bringing all places up; again after a `MovedError`.

        Raises:
            OtherTableError: It is the archive of something else.
            DivergedError: A place holds another archive than the first one.
            ManifestError: The manifest is damaged.
            NewerManifestError: A later version has written it.
            MovedError: Somebody else commits all the time.
            DestinationError: The first place cannot be read now; or another one, where the first
                has no archive.
        """
        async with self._lock:
            for attempts_left in reversed(range(_OPEN_MAX)):
                try:
                    await self._open()
                    break
                except MovedError:
                    if not attempts_left:
                        raise

    async def _open(self) -> None:
        manifest = await self._places.reload()
        if manifest is not None:
            self.table.check(manifest)
        else:
            self._beginning = await self._begin()
        await self._places.roll_forward()

    async def _begin(self) -> Manifest:
        await self._places.check_new()
        highest = await self._places.highest_epoch()
        if highest:
            _logger.warning(
                "%s: objects up to epoch %d are there without a manifest; they are left alone",
                self.table.name,
                highest,
            )
        return self.table.new_manifest(self._now_ms(), first_epoch=highest + 1)

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
        work = WindowWork(
            window,
            archive=self._archive,
            formats=self._formats,
            key_fields=self.table.key_fields,
            columns=self.table.columns,
            parts=self.table.parts,
        )
        gap_upto = window.gap_upto
        return await self.commit_work(work, is_base_wanted=is_base_wanted, gap_upto=gap_upto)

    async def commit_work(
        self, work: Work, *, is_base_wanted: bool = False, gap_upto: int = 0
    ) -> Committed | None:
        """Commit what is written elsewhere; as `commit`."""
        async with self._lock:
            await self._places.roll_forward()
            before = self.before
            _check_range(work, before, is_base_wanted)
            if self.manifest is None:
                await self._places.replace(before)
            try:
                after, trigger = await self._write(before, work, is_base_wanted)
            except MissingObjectError as error:
                # Whoever has committed meanwhile may have dropped the epoch that was read.
                if await self._places.has_moved():
                    raise MovedError from error
                raise
            if after is before:
                return None
            after = replace(after, gap_upto=max(after.gap_upto, gap_upto))
            await self._places.replace(after.dropping_epochs(self._keep_epochs))
            return Committed(after.artifacts[-1], after, self._places.manifest_uri, trigger)

    async def _write(
        self, before: Manifest, work: Work, is_base_wanted: bool
    ) -> tuple[Manifest, str | None]:
        """Store the artifact of a window; the manifest that would name it, and why it is a base."""
        spot = Spot(self.table.prefix, before.epoch, work.since, work.to, self.table.parts)
        measured = await work.measure(spot)
        is_anew = work.is_whole or is_base_wanted
        if measured.changes and work.to == before.head_position and not is_anew:
            raise UsageError(f"a window to {work.to} does not move the head")
        if is_base_wanted or before.newest_base is None:
            return await self._with_base(before, work, measured), None
        decision = self._decide(before, measured)
        if decision.trigger == "max_chain_part_bytes" and not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "%s: the chain is long, and a part of a base would be above"
                " snapshot.max_chain_part_bytes: there are diffs for ever",
                self.table.name,
            )
        if decision.is_base:
            return await self._with_base(before, work, measured), decision.trigger
        if not measured.changes:
            return before, None
        return await self._with_diff(before, work, measured, spot), None

    def _decide(self, before: Manifest, measured: Measured) -> Decision:
        base, diffs = before.newest_base, before.diffs
        assert base is not None
        return decide(
            self._policy,
            Measures(
                age_ms=self._now_ms() - base.created_ms,
                diff_bytes=measured.diff_bytes,
                base_bytes=base.size_bytes(self._formats.base[0].id),
                churn=before.churn + measured.churn,
                rows=before.rows + measured.net_rows,
                has_moved=bool(measured.changes) or before.head_position > base.to_position,
                # What finds nothing new changes nothing.
                chain_diffs=len(diffs) + 1 if measured.changes else 0,
                chain_bytes=sum(each.stored_bytes for each in diffs) + measured.diff_bytes,
                stored_bytes=base.stored_bytes,
                base_rows=base.count,
                parts=before.parts,
            ),
        )

    async def _with_base(self, before: Manifest, work: Work, measured: Measured) -> Manifest:
        spot = Spot(self.table.prefix, before.epoch + 1, None, work.to, self.table.parts)
        way = None if work.is_whole else plan(before)
        written = await work.write_base(spot, before, way)
        return before.with_base(
            to=work.to,
            count=sum(part.row_count for part in written),
            formats=_by_format(written),
            now_ms=self._now_ms(),
            churn=measured.churn,
        )

    async def _with_diff(
        self, before: Manifest, work: Work, measured: Measured, spot: Spot
    ) -> Manifest:
        written = await work.write_diff(spot)
        return before.with_diff(
            to=work.to,
            count=sum(part.row_count for part in written),
            formats=_by_format(written),
            now_ms=self._now_ms(),
            churn=measured.churn,
            table_rows=max(before.rows + measured.net_rows, 0),
        )


def _check_range(work: Work, manifest: Manifest, is_base_wanted: bool) -> None:
    head = manifest.head_position
    if work.since != head and not (is_base_wanted and work.is_whole):
        raise UsageError(f"a window from {work.since} on does not go on from the head at {head}")
    if work.to < head:
        raise UsageError(f"a window to {work.to} does not move the head from {head}")


def _by_format(written: Sequence[Written]) -> dict[str, tuple[Part, ...]]:
    return {name: tuple(part.formats[name] for part in written) for name in written[0].formats}
