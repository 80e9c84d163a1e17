"""A week of three people's work, read off a relay's database on Spark: tables, and a picture.

    python examples/history_notebook.py [DIRECTORY]

- An editor that knows cells, or jupytext, opens it as a notebook: each `# %%` begins a cell.
- The week is made up, in a second. Everything else works the same on any relay's database.
- It needs the extras `relay`, `spark` and `notebook`.
"""

# %% A week of work, on a relay whose clock is ours

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from walstore import Identity, WalStore
from walstore.archive.authority import Authority
from walstore.relay import Relay, SqliteLog
from walstore.spark.analytics import activity, blame, conflicts, growth, soundness
from walstore.spark.notebook import plot_history, readable
from walstore.spark.session import spark_session
from walstore.spark.transforms import explode_ops, verify

HOUR_MS = 3_600_000
MONDAY_MS = 1_772_409_600_000
SENTENCE = "we meet at the lake on sunday and bring bread cheese tea a map and good shoes"
WORDS = SENTENCE.split()

PEOPLE = {name: Identity.generate() for name in ("Ada", "Bo", "Cleo")}
NAMES = {identity.public_key: name for name, identity in PEOPLE.items()}
DOCUMENTS = ("notes/picnic", "notes/packing list", "notes/route")

# When somebody works: day, hour, who, on what, how many edits.
WEEK = [
    (day, hour, name, document, edits)
    for day, hours, name, document, edits in (
        (0, range(8, 12), "Ada", DOCUMENTS[0], 9),
        (0, range(13, 17), "Bo", DOCUMENTS[0], 5),
        (1, range(9, 15), "Bo", DOCUMENTS[1], 7),
        (1, range(10, 13), "Cleo", DOCUMENTS[1], 6),
        (2, range(8, 18), "Ada", DOCUMENTS[2], 4),
        (2, range(14, 18), "Cleo", DOCUMENTS[0], 6),
        (3, range(9, 12), "Ada", DOCUMENTS[0], 8),
        (3, range(9, 16), "Cleo", DOCUMENTS[2], 7),
        (4, range(10, 14), "Bo", DOCUMENTS[2], 9),
        (4, range(11, 13), "Ada", DOCUMENTS[1], 5),
    )
    for hour in hours
]


async def work(database: Path, seed: int = 3) -> None:
    """Let the week pass."""
    rng = random.Random(seed)
    time_ms = MONDAY_MS
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(SqliteLog.open(database))
        relay = await stack.enter_async_context(Relay.serve(log, now_ms=lambda: time_ms))
        stores = {
            (name, document): await stack.enter_async_context(
                WalStore.open(
                    document,
                    identity=identity,
                    relay=relay.url,
                    writers=list(NAMES),
                    autocommit_ms=None,
                )
            )
            for name, identity in PEOPLE.items()
            for document in DOCUMENTS
        }
        for day, hour, name, document, edits in sorted(WEEK):
            store = stores[name, document]
            for edit in range(edits):
                time_ms = MONDAY_MS + (day * 24 + hour) * HOUR_MS + edit * HOUR_MS // edits
                write(store, rng)
                # Now and then somebody is on a train.
                if rng.random() < 0.9:
                    await store.flush()
                    await store.pull()


def write(store: WalStore, rng: random.Random) -> None:
    """Write a few words somewhere, or take a few out."""
    text = store.text("note")
    place = text.rfind(" ", 0, rng.randint(0, len(text)) + 1) + 1
    if len(text) > 80 and rng.random() < 0.25:
        store.set_text("note", text[:place] + text[place + rng.randint(10, 40) :])
    else:
        words = " ".join(rng.choices(WORDS, k=rng.randint(2, 9)))
        store.set_text("note", f"{text[:place]}{words} {text[place:]}")


directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="walstore-"))
database = directory / "week.db"
asyncio.run(work(database))

# %% Its events, verified

spark = spark_session("local[2]", is_quick=True)
events = spark.read.format("walstore").option("database", str(database)).load()
readable(soundness(verify(events)), NAMES).show()

# %% Who wrote when, and how documents grew

team = Authority(writers={"notes/": list(NAMES)})
ops = explode_ops(events, authority=team).cache()
readable(activity(ops, unit="day"), NAMES).orderBy("time", "author").show()
growth(ops, unit="day").orderBy("document", "time").show()

# %% Whose words they are, and where two wrote at once

readable(blame(events, authority=team), NAMES).select("document", "text", "author").show(8)
readable(conflicts(events, authority=team), NAMES).select(
    "document", "author", "other_author", "other_elements", "names"
).show(8)

# %% The picture

picture = directory / "history.png"
plot_history(ops, picture, names=NAMES, title="A week on three notes")
print(f"drawn: {picture}")
