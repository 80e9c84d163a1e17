"""Somebody who types into the document, in a process of their own, until their input ends.

- They type a line and part of another, then take it all back, so that the text stays the size it
  is while they are at work. Each key moves their caret.
- They begin in a line of their own and stay there, wherever others move it to.

Run as `python -m benchmarks.editor.peer URL DOCUMENT LINE NAME`; says `ready` when it types.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import cycle

from examples.textual_editor.sessions import Session
from walstore import Identity, WalStore
from walstore.document.anchors import anchor_at, resolve
from walstore.store.presence import Cursor

NAME = "body"

# Somebody who types fast.
_KEYS_PER_SECOND = 8
_TYPED = "one more word\nand on"


async def type_on(store: WalStore, line: int, name: str) -> None:
    """Type, until cancelled."""
    text = store.text(NAME)
    before = "".join([each + "\n" for each in text.split("\n")[:line]])
    crdt = store.document.crdt
    anchor = anchor_at(crdt, NAME, len(before) + 4)
    store.presence.set(name=name)
    for key in cycle([*_TYPED, *[""] * len(_TYPED)]):
        place = resolve(crdt, NAME, anchor)
        assert place is not None
        if key:
            store.edit_text(NAME, place, 0, key)
            place += 1
        else:
            store.edit_text(NAME, place - 1, 1, "")
            place -= 1
        anchor = anchor_at(crdt, NAME, place)
        store.presence.move(Cursor(NAME, place))
        await asyncio.sleep(1 / _KEYS_PER_SECOND)


async def main(url: str, document: str, line: int, name: str) -> None:
    """Join, type, and leave when the input ends."""
    session = Session(document, name, Identity.generate(), relay=url)
    async with session.store() as store:
        await store.pull()
        typing = asyncio.create_task(type_on(store, line, name))
        print("ready", flush=True)
        ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        await asyncio.wait([typing, ended], return_when=asyncio.FIRST_COMPLETED)
        if typing.done():
            typing.result()
        typing.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
