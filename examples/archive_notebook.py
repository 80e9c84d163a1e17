"""An afternoon of two people, archived and read back: no relay, no keys, no Spark.

    python -m examples.archive_notebook [DIRECTORY]

- An editor that knows cells, or jupytext, opens it as a notebook: each `# %%` begins a cell.
- The afternoon is made up. Everything below it works the same on any archive.
- It needs the extras `relay` and `archive`.
"""

# %% An afternoon, on a relay

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

from walstore import Identity, WalStore
from walstore.archive.destinations import open_destination
from walstore.archive.follow import Follower, Replaced
from walstore.archive.reader import Archive
from walstore.archive.rows import Row
from walstore.archive.verification import verify_rows
from walstore.cli.main import main as walstore
from walstore.relay import Relay, SqliteLog

PEOPLE = {name: Identity.generate() for name in ("Ada", "Bo")}
NAMES = {identity.public_key: name for name, identity in PEOPLE.items()}
LINES = (
    ("Ada", "notes/picnic", "We meet at the lake on Sunday. "),
    ("Bo", "notes/picnic", "I bring bread. "),
    ("Ada", "notes/route", "The early train, from platform 2. "),
    ("Bo", "notes/picnic", "And cheese. "),
)


async def work(database: Path) -> None:
    """Let the afternoon pass."""
    async with SqliteLog.open(database) as log, Relay.serve(log) as relay:
        for name, document, line in LINES:
            async with WalStore.open(
                document, identity=PEOPLE[name], relay=relay.url, writers=list(NAMES)
            ) as store:
                store.edit_text("body", len(store.text("body")), 0, line)
                await store.flush()


directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="walstore-"))
asyncio.run(work(directory / "relay.db"))

# %% Archived: every element, with the bytes that were signed

settings = directory / "archive.toml"
settings.write_text(
    """\
source.database = "relay.db"
source.prefix = "notes/"
archive.table = "notes"
archive.mode = "sealed"
destinations = [{ url = "archive" }]
http.port = 0
"""
)
assert walstore(["archive", "run", "--config", str(settings), "--once"]) == 0

# %% Its rows, at the head and as of a position


async def rows_of(archive: Archive, at: int | None = None) -> list[Row]:
    """The rows of an archive."""
    return [row async for row in archive.rows(at=at)]


archive = Archive(open_destination(directory / "archive"), "notes/")
rows = asyncio.run(rows_of(archive))
for row in rows:
    print(f"{row['seq']:>3} {NAMES[str(row['author'])]:<4} {row['document']}")

# %% Checked by whoever reads it, without a relay and without keys

verification = verify_rows(rows)
print(f"{len(rows)} elements, every signature good: {verification.is_sound}")
assert verification.is_sound

# %% Who wrote how much, as a picture that any terminal shows

for author, count in Counter(str(row["author"]) for row in rows).most_common():
    print(f"{NAMES[author]:<4} {'█' * count * 6} {count}")

# %% Followed from here on: what is given first replaces whatever one had


async def first_step() -> int:
    """How many rows a reader who begins now is given."""
    step = await Follower(archive).next()
    assert isinstance(step, Replaced)
    return len(step.rows)


print(f"a reader who begins now gets {asyncio.run(first_step())} rows")
