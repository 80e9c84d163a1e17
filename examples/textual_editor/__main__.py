"""Starts the editor: `python -m examples.textual_editor [--relay URL] [--document KEY] …`."""

from __future__ import annotations

import argparse
import asyncio
import gc
import getpass
import sys
from dataclasses import replace
from pathlib import Path

from examples.textual_editor.app import EditorApp
from examples.textual_editor.script import play
from examples.textual_editor.sessions import Session, load_identity
from walstore import WalStoreError
from walstore.relay import MemoryLog, Relay

# Where the scripted session leaves its pictures.
PICTURES = Path("build/demo")


def main() -> int:
    """Run the editor, or the scripted session; the exit status."""
    options = parse()
    is_seen = sys.stdin.isatty() and sys.stdout.isatty()
    if options.script is not None or (options.demo and not is_seen):
        return asyncio.run(play(options.script or PICTURES))
    session = Session(
        document=options.document,
        name=options.name,
        identity=load_identity(options.file),
        relay=options.relay,
        file=options.file,
        invitation=options.join,
        is_owned=options.owned,
    )
    try:
        start = demonstrate if options.demo else edit
        asyncio.run(start(session, is_light=options.light))
    except WalStoreError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def demonstrate(session: Session, *, is_light: bool) -> None:
    """Edit at a relay of one's own, which others can join."""
    async with Relay.serve(MemoryLog()) as relay:
        joinable = replace(session, relay=relay.url)
        print(f"To join, type in another terminal, in the same directory:\n\n{joinable.command}\n")
        await asyncio.to_thread(input, "Enter begins; F3 shows this again. ")
        await edit(joinable, is_light=is_light)


async def edit(session: Session | None, *, is_light: bool) -> None:
    """Edit one document after the other, until there is no next one."""
    while session is not None:
        async with session.store() as store:
            # The document stays as long as the app does: there is nothing in it to collect, and
            # looking for it again and again is what would make keys lag.
            gc.collect()
            gc.freeze()
            session = await EditorApp(session, store, is_light=is_light).run_async()


def parse() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.textual_editor", description="Write a note together."
    )
    parser.add_argument("--relay", metavar="URL", help="a relay; without one you write alone")
    parser.add_argument("--document", metavar="KEY", default="notes/demo", help="the document")
    parser.add_argument("--name", default=getpass.getuser(), help="what the others call you")
    parser.add_argument("--file", type=Path, metavar="PATH", help="keep what you write in a file")
    parser.add_argument("--owned", action="store_true", help="only whom you invite may write")
    parser.add_argument("--join", metavar="INVITATION", help="open what you were invited to")
    parser.add_argument("--light", action="store_true", help="begin with the light theme")
    parser.add_argument(
        "--demo",
        action="store_true",
        help="begin with a relay that others can join; without a terminal, play the script",
    )
    parser.add_argument(
        "--script",
        type=Path,
        nargs="?",
        const=PICTURES,
        metavar="DIRECTORY",
        help="play a session of two people, and write pictures of it to a directory",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
