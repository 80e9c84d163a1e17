"""A process that ends while the log of a local file is copied into it: the next one misses nothing.

SQLite copies page after page, the first one first. That one counts all pages, also those that only
the log holds until they are copied.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.local_writer import AUTHOR, DOCUMENT_KEY
from walstore.local import LocalFile, OtherAuthorError, Pending
from walstore.local.schema import PAGE_BYTES

EDITS = 300
CUTS = 40

ROOT = Path(__file__).parent.parent
OPENER = """
import resource, signal, sys
from tests.test_local_copying import Path, open_file

signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
open_file(Path(sys.argv[1]))
"""


class Copied(NamedTuple):
    """A file whose log was copied: how it was before, how it is after, and what it says."""

    path: Path
    beside: dict[str, bytes]
    before: bytes
    after: bytes
    pending: Pending

    def put(self, content: bytes) -> None:
        """Put a content in the place of the file, and its log beside it."""
        for name, kept in self.beside.items():
            self.path.with_name(name).write_bytes(kept)
        self.path.write_bytes(content)


def open_file(path: Path, author: str = AUTHOR, key: str = DOCUMENT_KEY) -> LocalFile:
    return LocalFile.open(path, document_key=key, author=author)


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    path = tmp_path / "notes.wal"
    with open_file(path) as file:
        for count in range(EDITS):
            file.record("s", b"edit %d " % count * 8)
        pending = file.pending()
        beside = {found.name: found.read_bytes() for found in tmp_path.iterdir()}
    before, after = beside.pop(path.name), path.read_bytes()
    assert len(after) > len(before), "the file has to grow"
    return Copied(path, beside, before, after, pending)


def after_a_kill(copied: Copied) -> Iterator[bytes]:
    """The file with its first pages copied, for every number of them."""
    for end in range(0, len(copied.after) + 1, PAGE_BYTES):
        yield copied.after[:end] + copied.before[end:]


def after_a_power_cut(copied: Copied) -> Iterator[bytes]:
    """The file with any of its pages copied; where others are missing it has zeros."""
    chance = random.Random(3)
    size = len(copied.after)
    padded = copied.before.ljust(size, b"\0")
    for _ in range(CUTS):
        end = chance.randrange(len(copied.before), size + 1, PAGE_BYTES)
        pages = [
            chance.choice((padded, copied.after))[start : start + PAGE_BYTES]
            for start in range(0, end, PAGE_BYTES)
        ]
        yield b"".join(pages)


@pytest.mark.parametrize("left_by", [after_a_kill, after_a_power_cut])
def test_a_log_that_was_copied_in_part_is_copied_again(
    copied: Copied, left_by: Callable[[Copied], Iterator[bytes]]
) -> None:
    for content in left_by(copied):
        copied.put(content)
        with open_file(copied.path) as file:
            assert file.pending() == copied.pending
    assert list(copied.path.parent.glob("*.damaged-*")) == []


@pytest.mark.parametrize("more", [1, 3, 5])
def test_a_process_that_is_killed_while_it_copies_leaves_everything(
    copied: Copied, more: int
) -> None:
    copied.put(copied.before)
    size_max = len(copied.before) + more * PAGE_BYTES
    # The system kills whoever writes beyond a size.
    opener = [sys.executable, "-c", OPENER, str(copied.path), str(size_max)]
    assert subprocess.run(opener, cwd=ROOT, check=False).returncode == -signal.SIGXFSZ
    assert copied.path.stat().st_size == size_max < len(copied.after)
    with open_file(copied.path) as file:
        assert file.pending() == copied.pending


def test_a_file_that_was_copied_in_part_is_left_alone_by_others(copied: Copied) -> None:
    for content in after_a_kill(copied):
        copied.put(content)
        with pytest.raises(OtherAuthorError):
            open_file(copied.path, author="b" * 64)
        assert copied.path.read_bytes() == content


def test_a_key_that_is_longer_than_a_page_is_read_again(tmp_path: Path) -> None:
    key = "notes/" + "x" * 100_000
    path = tmp_path / "notes.wal"
    open_file(path, key=key).close()
    with open_file(path, key=key) as file:
        assert file.pending().size == 0
