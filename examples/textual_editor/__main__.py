"""Starts the editor: `python -m examples.textual_editor [--relay URL] [--document KEY] …`."""

from __future__ import annotations

import argparse
import asyncio
import gc
import getpass
import select
import signal
import socket
import sys
from contextlib import nullcontext, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from examples.textual_editor.app import EditorApp
from examples.textual_editor.pictures import take_pictures
from examples.textual_editor.relays import running_relay
from examples.textual_editor.script import play
from examples.textual_editor.sessions import Desk, Session, guest_name, load_identity
from walstore import WalStoreError
from walstore.textual import run_until_told

# Where the scripted session leaves its pictures, and where those of the documentation are.
SCRIPTED = Path("build/demo")
DOCUMENTED = Path("docs")

# How long whoever leaves waits for what they wrote to be sent.
LEAVING_S = 2.0


def main() -> int:
    """Do what was asked for; the exit status."""
    options = parse()
    # Whatever is running beside us goes with us.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        return run(options)
    except (WalStoreError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except (KeyboardInterrupt, EOFError):
        # Whoever does not begin leaves.
        print()
        return 0


def run(options: argparse.Namespace) -> int:
    """Run the editor, show it in a browser, or play something; the exit status."""
    is_seen = sys.stdin.isatty() and sys.stdout.isatty()
    if options.script is not None or (options.demo and not is_seen):
        return asyncio.run(play(options.script or SCRIPTED))
    if options.screenshot is not None:
        return asyncio.run(take_pictures(options.screenshot))
    if options.serve:
        return serve(options)
    session = session_of(options)
    if not options.demo:
        return asyncio.run(edit(session, is_light=options.light))
    with running_relay() as url:
        joinable = replace(session, relay=url)
        print(f"To join, type in another terminal, in the same directory:\n\n{joinable.command}\n")
        wait_for_enter("Enter begins; F3 shows this again. ")
        return asyncio.run(edit(joinable, is_light=options.light))


def wait_for_enter(prompt: str) -> None:
    """Wait for a line, or for a signal: `input` misses one that comes before it reads.

    Raises:
        EOFError: There is no line any more.
    """
    woken, waker = socket.socketpair()
    with woken, waker:
        waker.setblocking(False)
        before = signal.set_wakeup_fd(waker.fileno())
        try:
            print(prompt, end="", flush=True)
            select.select([sys.stdin, woken], [], [])
            if not sys.stdin.readline():
                raise EOFError
        finally:
            signal.set_wakeup_fd(before)


def serve(options: argparse.Namespace) -> int:
    """Show the editor in browsers until told to stop; the exit status."""
    try:
        serving = import_module("examples.textual_editor.serving")
    except ModuleNotFoundError as error:
        print(f"{error.name} is missing; get it with: pip install textual-serve", file=sys.stderr)
        return 1
    relay = nullcontext(options.relay) if options.relay else running_relay()
    with relay as url:
        try:
            serving.serve(url, document=options.document, port=options.port)
        except OSError as error:
            print(f"cannot listen on port {options.port}: {error.strerror}", file=sys.stderr)
            return 1
    return 0


async def edit(session: Session, *, is_light: bool) -> int:
    """Edit a document, and whatever others are opened from there; the exit status."""
    async with Desk() as desk:
        store = await desk.open(session)
        # The document stays as long as the app does: there is nothing in it to collect, and
        # looking for it again and again is what would make keys lag.
        gc.collect()
        gc.freeze()
        app = EditorApp(session, store, desk=desk, is_light=is_light)
        exit_status = await run_until_told(app)
        await tell_unsent(app)
    return exit_status


async def tell_unsent(app: EditorApp) -> None:
    """Send what can be sent, and say where the rest is."""
    with suppress(WalStoreError, TimeoutError):
        async with asyncio.timeout(LEAVING_S):
            await app.store.flush()
    status, kept = app.store.status, app.session.file
    if status.unsent and status.state != "local" and kept is not None:
        print(f"Some of what you wrote is not sent yet; it is kept in {kept}.")


def session_of(options: argparse.Namespace) -> Session:
    """What to open."""
    identity = load_identity(options.file)
    return Session(
        document=options.document,
        name=guest_name(identity) if options.guest else options.name or user_name(),
        identity=identity,
        relay=options.relay,
        file=options.file,
        invitation=options.join,
        is_owned=options.owned,
    )


def user_name() -> str:
    """What this computer calls us."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "Somebody"


def port(text: str) -> int:
    """A port, as it may be given.

    Raises:
        ValueError: It is none.
    """
    number = int(text)
    if not 0 < number < 2**16:
        raise ValueError
    return number


def parse() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.textual_editor", description="Write a note together."
    )
    parser.add_argument("--relay", metavar="URL", help="a relay; without one you write alone")
    parser.add_argument("--document", metavar="KEY", default="notes/demo", help="the document")
    parser.add_argument("--name", help="what the others call you")
    parser.add_argument("--guest", action="store_true", help="be called something made up")
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
        "--serve",
        action="store_true",
        help="show the editor in browsers on this computer, each of them somebody else",
    )
    parser.add_argument("--port", type=port, default=8000, help="where browsers find it (8000)")
    parser.add_argument(
        "--script",
        type=Path,
        nargs="?",
        const=SCRIPTED,
        metavar="DIRECTORY",
        help="play a session of two people, and write pictures of it to a directory",
    )
    parser.add_argument(
        "--screenshot",
        type=Path,
        nargs="?",
        const=DOCUMENTED,
        metavar="DIRECTORY",
        help="write the pictures that the documentation shows to a directory",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
