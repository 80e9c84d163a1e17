"""The to-do list: kept here, the same on every computer that holds its key."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

from walstore.relay import MemoryLog, Relay

ROOT = Path(__file__).resolve().parent.parent


async def todo(home: Path, *arguments: str) -> tuple[int, list[str]]:
    """Run it as a user does; the exit status, and what it lists."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "examples.todo",
        "--home",
        str(home),
        *arguments,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode().splitlines()


async def test_tasks_are_kept_and_are_the_same_on_another_computer(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    assert await todo(here, "add", "buy", "bread") == (0, ["  1 ☐ buy bread"])
    assert await todo(here, "done", "7") == (2, [])
    async with Relay.serve(MemoryLog()) as relay:
        await todo(here, "--relay", relay.url, "done", "1")
        there.mkdir()
        shutil.copy(here / "identity.json", there)
        code, seen = await todo(there, "--relay", relay.url, "add", "take the kite")
        assert (code, seen) == (0, ["  1 ☑ buy bread", "  2 ☐ take the kite"])
        assert await todo(here, "--relay", relay.url) == (code, seen)
    # Without the relay, too.
    assert await todo(here) == (0, seen)


def test_it_is_short() -> None:
    assert len((ROOT / "examples" / "todo.py").read_text().splitlines()) <= 64
