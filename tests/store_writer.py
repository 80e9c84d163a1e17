"""Processes that edit and commit a stored document until they are killed.

- Importing is what takes long to start, so one process imports and forks; each line on its input,
  a session's name and the relay's address, forks a writer that edits the same local file.
- `pid` comes before anything is opened, `sent` after a commit was acknowledged.
- `ended` comes after a writer was killed, `failed` after it has ended by itself. Why it did, or
  where it hangs if it lives for long, is on the standard error.
- `will` lines come before an edit's call: it may be found in the document. `did` lines come after
  it has returned: it must be found, once.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import random
import sys
import traceback
from pathlib import Path

from walstore.document.document import ALLOW_ANY
from walstore.signed import Identity
from walstore.store.store import WalStore

DOCUMENT_KEY = "kills/notes"
WRITER = Identity.from_seed(bytes([7]) * 32)

# Before those who wait for its words give up.
HANGS_AFTER_S = 20.0


def tell(*words: object) -> None:
    """Write a line at once."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def write(path: str, session: str, relay: str) -> None:
    """Edit for ever, and commit now and then."""
    chance = random.Random(session)
    tell("pid", os.getpid())
    async with WalStore.open(
        DOCUMENT_KEY,
        identity=WRITER,
        path=path,
        relay=relay,
        writers=ALLOW_ANY,
        snapshot_role=ALLOW_ANY,
        autocommit_ms=2,
    ) as store:
        for burst in range(10**9):
            for count in range(chance.randint(1, 8)):
                edit(store, f"{session}.{burst}.{count}", chance)
            match chance.randrange(6):
                case 0:
                    await store.commit()
                    tell("sent")
                case 1:
                    await store.pull()
                case 2:
                    await asyncio.sleep(0.003)
                case _:
                    await asyncio.sleep(0)


def edit(store: WalStore, name: str, chance: random.Random) -> None:
    """Make one edit that can be found again: an item, a word, or a key of a map."""
    kind = chance.choice(("item", "word", "key"))
    tell("will", kind, name)
    match kind:
        case "item":
            items = store.list("items")
            items.insert(chance.randrange(len(items) + 1), name)
        case "word":
            store.edit_text("words", 0, 0, f"{name};")
        case _:
            store.put("keys", name, name)
    tell("did", kind, name)


def main() -> None:
    """Fork a writer for each line on the input, and tell when it has ended."""
    for line in sys.stdin:
        path, session, relay = line.split()
        number = os.fork()
        if not number:
            faulthandler.dump_traceback_later(HANGS_AFTER_S)
            try:
                asyncio.run(write(str(Path(path)), session, relay))
            except BaseException:  # noqa: BLE001 - a child must not go on as its parent does
                traceback.print_exc()
            finally:
                os._exit(1)
        _, status = os.waitpid(number, 0)
        tell("ended" if os.WIFSIGNALED(status) else "failed")


if __name__ == "__main__":
    main()
