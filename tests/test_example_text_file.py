"""The bound text file: vim on one side, an editor on the other, and neither loses anything."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.stores import until
from walstore import ALLOW_ANY, Identity, WalStore
from walstore.document.history import Version
from walstore.relay import MemoryLog, Relay

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 60


@asynccontextmanager
async def following(file: Path, relay: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The example, run as a user does, once it says that it follows."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "examples.text_file",
        str(file),
        "--relay",
        relay,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert await process.stdout.readline() == b"following\n"
        yield process
    finally:
        process.terminate()
        await process.wait()


def save_as_vim_does(file: Path, text: str) -> None:
    """Write beside the file, and put it in its place in one step."""
    beside = file.with_name("4913~")
    beside.write_text(text)
    os.replace(beside, file)


async def looked(condition: Callable[[], bool]) -> None:
    """Return once a file says something: nobody tells of that."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_file_and_an_editor_see_each_others_edits_and_merge(tmp_path: Path) -> None:
    file = tmp_path / "note.txt"
    file.write_text("Meet at the lake.\n")
    async with (
        Relay.serve(MemoryLog()) as relay,
        WalStore.open(
            "notes/demo",
            identity=Identity.generate(),
            relay=relay.url,
            writers=ALLOW_ANY,
            snapshot_role=ALLOW_ANY,
        ) as editor,
    ):
        async with following(file, relay.url):
            await until([editor], lambda: editor.text("body") == "Meet at the lake.\n")
            editor.edit_text("body", 0, 0, "Sunday: ")
            await looked(lambda: file.read_text() == "Sunday: Meet at the lake.\n")
            save_as_vim_does(file, "Sunday: Meet at the old lake.\n")
            await until([editor], lambda: "old lake" in editor.text("body"))
        # Both are edited while nobody follows.
        editor.edit_text("body", 0, 0, "On ")
        await editor.flush()
        file.write_text("Sunday: Meet at the old lake.\nBring bread.\n")
        async with following(file, relay.url):
            merged = "On Sunday: Meet at the old lake.\nBring bread.\n"
            await until([editor], lambda: editor.text("body") == merged)
            await looked(lambda: file.read_text() == merged)
            # No echo: what the file was given is no edit of it, and its next edit is one.
            count = len(of_the_file(editor))
            editor.edit_text("body", 0, 0, "> ")
            await looked(lambda: file.read_text() == f"> {merged}")
            save_as_vim_does(file, f"> {merged}And tea.\n")
            await until([editor], lambda: "And tea." in editor.text("body"))
            assert len(of_the_file(editor)) == count + 1


def of_the_file(editor: WalStore) -> list[Version]:
    """What came from the side of the file."""
    return [each for each in editor.history() if each.author != editor.identity.public_key]
