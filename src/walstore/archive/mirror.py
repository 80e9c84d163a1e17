"""Several places hold one archive: those that have fallen behind are brought up to the first.

- The first place is the archive: what its manifest names is committed. Another one may lack the
  last step, because a writer was killed or a network failed in between.
- A place that is behind gets the objects that its manifest does not name, then the manifest, byte
  for byte. What is under their keys already is put there anew: it may be what somebody else has
  left who was killed, and about to be collected as an orphan.
- One that is far behind is brought up in steps, each with a manifest that names what has come so
  far: whoever fails or is killed goes on from there, and nothing waits to be named until it is an
  orphan. After each step the place holds what the first place was once. Whoever has no more time
  goes on later: each time it comes further by an artifact at least.
- A place that holds something else is left alone, and named: two writers, or two archives.
"""

from __future__ import annotations

import anyio

from walstore.archive.artifacts import key_of_part, read_object
from walstore.archive.destination import Destination
from walstore.archive.keys import manifest_key
from walstore.archive.manifest import Artifact, Manifest, ManifestError
from walstore.archive.manifest_json import read_manifest, write_manifest
from walstore.archive.orphans import names
from walstore.errors import StorageError

# After how many objects those that have come are named. Fewer would write a long manifest too
# often, more would put too much anew after a failure. An artifact is named when all of it is there.
_STEP_OBJECTS = 16


class DivergedError(StorageError):
    """A place holds an archive that the first place has never been.

    Attributes:
        destination: Its name.
    """

    def __init__(
        self, destination: str, reason: str, *, way_out: str = "move it away, or write elsewhere"
    ) -> None:
        super().__init__(f"{destination} holds another archive: {reason}; {way_out}")
        self.destination = destination


async def mirror(
    first: Destination,
    other: Destination,
    *,
    prefix: str,
    manifest: Manifest,
    body: bytes,
    ends_at: float,
    before: tuple[bytes, Manifest] | None = None,
) -> bool:
    """Bring a place up to the first one; whether it is.

    Args:
        first: Where everything is.
        other: What to bring up to it.
        prefix: The archive's.
        manifest: The first place's.
        body: Its bytes.
        ends_at: When to leave the rest for later, by the clock of the event loop.
        before: What was there before that, as bytes and as they were read: the other one most
            likely holds it, and to parse a long one for each commit takes long.

    Raises:
        DivergedError: The other one holds something else.
        ConflictError: Somebody else is writing it.
        MissingObjectError: The first place has lost an object.
        DamagedObjectError: It has other bytes than its manifest says.
        DestinationError: One of them cannot be read or written now; what has come so far is named.
    """
    key = manifest_key(prefix)
    found = await other.get(key)
    named: set[str] = set()
    if found is not None:
        if found.body == body:
            return True
        if before is not None and found.body == before[0]:
            theirs = before[1]
        else:
            theirs = read_theirs(other.name, found.body)
            _check_ancestor(other.name, theirs, manifest)
        named = names(theirs, prefix)
    revision, unnamed = None if found is None else found.revision, 0
    for count, artifact in enumerate(manifest.artifacts):
        is_over = unnamed > 0 and anyio.current_time() >= ends_at
        if unnamed >= _STEP_OBJECTS or is_over:
            step = write_manifest(manifest.as_of(count))
            revision, unnamed = await other.put_if(key, step, revision), 0
        if is_over:
            return False
        for part in artifact.objects:
            if (own := key_of_part(prefix, part)) not in named:
                await other.put(own, await read_object(first, prefix, part))
                unnamed += 1
    await other.put_if(key, body, revision)
    return True


def read_theirs(name: str, body: bytes) -> Manifest:
    """The manifest of another place.

    Raises:
        DivergedError: It is damaged; whoever reads of it has to know where.
        NewerManifestError: A later version has written it.
    """
    try:
        return read_manifest(body)
    except ManifestError as error:
        raise DivergedError(name, f"its manifest is damaged ({error})") from error


def _check_ancestor(name: str, theirs: Manifest, ours: Manifest) -> None:
    """Check that the first place was once what another one is."""
    if theirs.table != ours.table:
        raise DivergedError(name, f"that of {theirs.table!r}")
    if (theirs.epoch, theirs.head_position) > (ours.epoch, ours.head_position):
        raise DivergedError(
            name,
            f"it is at {theirs.head_position} in epoch {theirs.epoch},"
            f" the first place at {ours.head_position} in epoch {ours.epoch}",
        )
    kept = {_name(each) for each in ours.artifacts}
    oldest = min((each.epoch for each in ours.artifacts), default=0)
    for artifact in theirs.artifacts:
        if artifact.epoch < ours.first_epoch:
            raise DivergedError(
                name,
                f"it has artifacts of epoch {artifact.epoch},"
                f" the first place began with epoch {ours.first_epoch}",
            )
        if artifact.epoch >= oldest and _name(artifact) not in kept:
            raise DivergedError(
                name, f"its {artifact.kind.value} to {artifact.to_position} is not in the first"
            )


def _name(artifact: Artifact) -> tuple[object, ...]:
    """What makes an artifact the same one everywhere."""
    objects = sorted(
        (format_id, number, part.size_bytes, part.sha256 or "")
        for format_id, parts in artifact.formats.items()
        for number, part in enumerate(parts)
    )
    return artifact.kind, artifact.epoch, artifact.from_position, artifact.to_position, *objects
