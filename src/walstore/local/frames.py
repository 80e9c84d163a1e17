"""What the write-ahead log beside a local file claims to hold, before SQLite is asked.

    ┌────────┬─────────────┬──────┬─────────────┬──────┬───
    │ header │ frame: salt │ page │ frame: salt │ page │ …
    └────────┴─────────────┴──────┴─────────────┴──────┴───

- SQLite takes the frames up to the first bad one, and silently leaves those behind it.
- Our log is only ever appended to and cut to nothing. So a whole frame that
  ends a transaction was written after everything before it: if SQLite does not get as far, a
  frame was damaged. A killed process leaves at most a part of a frame.
- If cutting it fails, SQLite begins it anew over the old one, whose frames are left behind the new
  ones: their first salt is one lower, and the second is another.
- Some systems leave zeros where a power cut has kept a file from growing: the log ends there.
"""

from __future__ import annotations

import struct
from pathlib import Path

from walstore.local.faults import DamageFoundError, fault_of_system
from walstore.local.schema import PAGE_BYTES

_HEADER = struct.Struct(">8L")
_FRAME = struct.Struct(">6L")
_FRAME_BYTES = _FRAME.size + PAGE_BYTES

# The last bit says in which byte order the checksums are made.
_MAGIC = 0x377F0682
_VERSION = 3007000


def committed_frames(log: Path) -> int:
    """How many frames, up to the last one that ends a transaction, a log claims to hold.

    Raises:
        DamageFoundError: It does not begin as a log does.
        LocalFileError: It cannot be read.
    """
    try:
        with log.open("rb") as file:
            raw = file.read(_HEADER.size)
            if len(raw) < _HEADER.size:
                return 0
            salt = _salt_of(raw)
            committed = count = 0
            while len(frame := file.read(_FRAME.size)) == _FRAME.size:
                page = file.read(PAGE_BYTES)
                if len(page) < PAGE_BYTES:
                    break
                count += 1
                number, size_after, *frame_salt, _, _ = _FRAME.unpack(frame)
                if not number:
                    break
                if frame_salt[0] == (salt[0] - 1) % 2**32 and frame_salt[1] != salt[1]:
                    break
                if frame_salt != salt:
                    raise DamageFoundError("the write-ahead log is damaged", hides_loss=True)
                if size_after:
                    committed = count
            return committed
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise fault_of_system(log, error) from error


def _salt_of(raw: bytes) -> list[int]:
    magic, version, page_bytes, _, *salt, first, second = _HEADER.unpack(raw)
    if magic | 1 != _MAGIC | 1 or version != _VERSION or page_bytes != PAGE_BYTES:
        raise DamageFoundError("the write-ahead log is damaged", hides_loss=True)
    order = ">" if magic & 1 else "<"
    words = struct.unpack(f"{order}6L", raw[:24])
    left = right = 0
    for even, odd in zip(words[::2], words[1::2], strict=True):
        left = (left + even + right) & 0xFFFFFFFF
        right = (right + odd + left) & 0xFFFFFFFF
    if (left, right) != (first, second):
        raise DamageFoundError("the write-ahead log is damaged", hides_loss=True)
    return salt
