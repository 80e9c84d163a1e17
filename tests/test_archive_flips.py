"""Bits of an archive that flip: each one is found, or does no harm.

- Whatever happens to the bytes of an archive, its hashes tell.
- Somebody who changes rows and hashes alike is told by the signatures in the rows.

`WALSTORE_ARCHIVE_FLIPS` says how many; the seed is printed.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace
from hashlib import sha256

import pytest

from tests.archive_made import PREFIX, Made
from walstore.archive.artifacts import key_of_part
from walstore.archive.checking import check_archive
from walstore.archive.keys import manifest_key
from walstore.archive.manifest import Artifact, Manifest
from walstore.archive.manifest_json import write_manifest
from walstore.archive.memory import MemoryDestination
from walstore.archive.reader import Archive
from walstore.archive.rows import Row
from walstore.errors import WalStoreError

FLIPS = int(os.environ.get("WALSTORE_ARCHIVE_FLIPS", "10000"))
SEED = int(os.environ.get("WALSTORE_ARCHIVE_FLIPS_SEED", "0")) or time.time_ns() % 10**6

# What whoever wrote an element has signed; the rest is what the relay says.
SIGNED = ("document", "id", "author", "signature", "data")


def flipped(body: bytes, rng: random.Random) -> bytes:
    bit = rng.randrange(len(body) * 8)
    changed = bytearray(body)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


async def is_found(archive: Archive, rows: list[Row], names: tuple[str, ...] | None) -> bool:
    """Whether a flip is found; if it is not, it must have done no harm."""
    try:
        checked = await check_archive(archive)
        if checked.is_sound:
            there = [row async for row in archive.rows()]
    except WalStoreError:
        return True
    if not checked.is_sound:
        return True
    assert _only(there, names) == _only(rows, names)
    return False


def _only(rows: list[Row], names: tuple[str, ...] | None) -> list[Row]:
    if names is None:
        return rows
    return [{name: row.get(name) for name in names} for row in rows]


@pytest.mark.parametrize(
    ("formats", "flips"),
    [(("jsonl",), FLIPS * 9 // 10), (("protobuf", "parquet"), FLIPS // 10)],
    ids=str,
)
async def test_every_flipped_bit_of_an_archive_is_found(
    formats: tuple[str, ...], flips: int
) -> None:
    print(f"WALSTORE_ARCHIVE_FLIPS_SEED={SEED}")
    rng = random.Random(SEED)
    place = MemoryDestination("here")
    await (made := Made(place, formats=formats)).grow()
    archive = made.archive
    rows = [row async for row in archive.rows()]
    bodies = {}
    async for listed in place.list(""):
        found = await place.get(listed.key)
        assert found is not None
        bodies[listed.key] = found.body
    assert len(bodies) == 1 + 3 * len(formats)
    weights = [len(body) for body in bodies.values()]
    noticed = 0
    for _ in range(flips):
        (key,) = rng.choices(list(bodies), weights)
        changed = flipped(bodies[key], rng)
        await place.put(key, changed)
        if await is_found(archive, rows, None):
            noticed += 1
        else:
            # A manifest may come without a checksum. So may one where it is no longer called so.
            assert key == manifest_key(PREFIX)
            assert b'"checksum":' not in changed
        await place.put(key, bodies[key])
    assert (await check_archive(archive)).is_sound
    print(f"{noticed} of {flips} bits flipped of an archive were found")


async def test_a_flip_that_the_hashes_were_made_to_fit_is_found_by_the_signatures() -> None:
    print(f"WALSTORE_ARCHIVE_FLIPS_SEED={SEED}")
    rng = random.Random(SEED)
    place = MemoryDestination("here")
    await (made := Made(place)).grow()
    archive = made.archive
    manifest = await archive.manifest()
    rows = [row async for row in archive.rows()]
    found = 0
    for _ in range(FLIPS // 20):
        number = rng.randrange(len(manifest.artifacts))
        key = key_of_part(PREFIX, manifest.artifacts[number].formats["jsonl"][0])
        body = await _body(place, key)
        changed = flipped(body, rng)
        await place.put(key, changed)
        forged = _with(manifest, number, changed)
        await place.put(manifest_key(PREFIX), write_manifest(forged))
        found += await is_found(archive, rows, SIGNED)
        await place.put(key, body)
    # Most of a row is signed; what is not is harmless to whoever folds it.
    assert found > FLIPS // 20 * 0.8


async def _body(place: MemoryDestination, key: str) -> bytes:
    found = await place.get(key)
    assert found is not None
    return found.body


def _with(manifest: Manifest, number: int, body: bytes) -> Manifest:
    """A manifest that says of an artifact what somebody has made of it."""
    artifact: Artifact = manifest.artifacts[number]
    (part,) = artifact.formats["jsonl"]
    part = part._replace(size_bytes=len(body), sha256=sha256(body).hexdigest())
    forged = replace(artifact, formats={"jsonl": (part,)})
    artifacts = (*manifest.artifacts[:number], forged, *manifest.artifacts[number + 1 :])
    return replace(manifest, artifacts=artifacts)
