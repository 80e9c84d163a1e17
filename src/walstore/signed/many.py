"""Many signatures at once, on every core.

- libsodium runs without the interpreter's lock, so plain threads are enough.
- A check takes some 70 µs; handing over each one alone would cost more than it gains, so
  threads take slices.
- Few checks run on the calling thread, without any pool.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple

from walstore.signed.author import verify_bytes

# One slice is some 20 ms of work: long against a hand-over, short against an uneven end.
SLICE_CHECKS = 256


class SignatureCheck(NamedTuple):
    """One question: did this key sign exactly these bytes?"""

    author_pubkey: str
    signed: bytes
    author_signature: str


def verify_many(checks: Sequence[SignatureCheck], pool: Executor | None = None) -> list[bool]:
    """Answer each check as `verify_bytes` does, in order; never raises.

    Args:
        checks: The questions.
        pool: Threads to use; without one, they are started for this call if it is worth it.
    """
    if len(checks) <= SLICE_CHECKS:
        return _verify_slice(checks)
    if pool is not None:
        return _verify_slices(checks, pool)
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        return _verify_slices(checks, threads)


def _verify_slices(checks: Sequence[SignatureCheck], pool: Executor) -> list[bool]:
    slices = [checks[at : at + SLICE_CHECKS] for at in range(0, len(checks), SLICE_CHECKS)]
    return list(chain.from_iterable(pool.map(_verify_slice, slices)))


def _verify_slice(checks: Sequence[SignatureCheck]) -> list[bool]:
    return [verify_bytes(*check) for check in checks]
