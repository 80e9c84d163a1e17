"""`walstore inspect`: look at any document or relay, on a screen or, without a terminal, in words.

- The target is a document of this computer or its file, the address of a relay, a relay's database
  or an archive. The last three hold many documents: `--document` names one, else they are listed.
- Nothing is written, neither to the target nor beside it.
- Signatures are checked in any case. `--owner` holds authors against the owner's roster, too, and
  the identity opens what is sealed for it.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from walstore.cli.arguments import CommandParser
from walstore.cli.documents import UnknownDocumentError, document_names, find_document
from walstore.cli.identities import UnknownIdentityError, find_identity
from walstore.cli.main import OK
from walstore.cli.output import put_json, put_text
from walstore.cli.places import BadNameError
from walstore.cli.relays import relay_meant
from walstore.cli.waiting import told_if_slow
from walstore.errors import UsageError, WalStoreError
from walstore.inspect.local_log import opened_local
from walstore.inspect.overview import Look
from walstore.inspect.places import Place
from walstore.inspect.subject import Subject
from walstore.inspect.summary import summary_of, text_of
from walstore.inspect.trust import trust_in
from walstore.local.schema import APPLICATION_ID as LOCAL_FILE
from walstore.relay.config import without_password
from walstore.signed import Identity

_TOKEN_VARIABLE = "WALSTORE_RELAY_ADMIN_TOKEN"

_RELAYS = ("ws://", "wss://", "http://", "https://")
_DATABASES = ("postgres://", "postgresql://")

_UNIQUE = re.compile(r"-[0-9a-f]{16}$")

OpenedPlace = Callable[[str], AbstractAsyncContextManager[Place]]


class Target(NamedTuple):
    """What is looked at.

    Attributes:
        place: Opens the place of a document.
        document: The document, if there is one only or one was named.
        look: Looks at what there is; None where there is one document only.
    """

    place: OpenedPlace
    document: str | None
    look: Look | None


class NothingToInspectError(UsageError):
    """What was named is neither here nor an address."""

    def __init__(self, target: str) -> None:
        meant = relay_meant(target)
        hint = (
            f"did you mean {meant}?"
            if meant
            else "name one that `walstore show` lists, a directory with an archive, or the address"
            " of a relay"
        )
        super().__init__(f"{target}: there is no such file, and no document called so; {hint}")


class NothingUnderKeyError(WalStoreError):
    """A relay, a database or an archive holds nothing of a document."""

    def __init__(self, key: str, keys: Sequence[str]) -> None:
        # `init` puts some digits behind a name, which nobody types.
        names = {_UNIQUE.sub("", each): each for each in keys} | {each: each for each in keys}
        close = difflib.get_close_matches(key, names, n=1)
        hint = f"did you mean {names[close[0]]}?" if close else "without --document all are listed"
        super().__init__(f"there is nothing under {key!r}; {hint}")


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore inspect …`; the exit code."""
    flags = parser().parse_args(arguments)
    _look_up(flags)
    return asyncio.run(_inspect(flags))


def parser() -> ArgumentParser:
    """What `walstore inspect` takes."""
    made = CommandParser(
        "inspect",
        description="Look at a document, or at all documents of a relay; nothing is changed.",
        epilog=f"A relay lists its documents for its operator, whose token is {_TOKEN_VARIABLE};"
        " one that serves this computer alone does so for everybody.",
    )
    made.add_argument(
        "target",
        help="a document of this computer or its file, a relay (ws://127.0.0.1:3400), a relay's"
        " database, or an archive",
    )
    made.add_argument("--document", metavar="KEY", help="one document of several")
    made.add_argument("--identity", metavar="NAME", help="who looks (default, if there is one)")
    made.add_argument("--owner", type=_key, metavar="KEY", help="whose roster says who counts")
    made.add_argument(
        "--writer",
        type=_key,
        metavar="KEY",
        action="append",
        default=[],
        help="a key that counts, in place of a roster; may be given several times",
    )
    made.add_argument("--prefix", default="", help="what the keys of an archive begin with")
    made.add_argument("--json", action="store_true", help="no screen: JSON on standard output")
    made.add_argument("--text", action="store_true", help="no screen: some lines of text")
    made.add_argument("--light", action="store_true", help="begin with the light theme")
    return made


def _key(text: str) -> str:
    if len(text) != 64 or not set(text) <= set("0123456789abcdef"):
        raise ArgumentTypeError("a key is 64 hex digits")
    return text


async def _inspect(flags: Namespace) -> int:
    identity = _identity(flags.identity)
    async with _target(flags, identity) as target:
        is_screen = not (flags.json or flags.text) and sys.stdin.isatty() and sys.stdout.isatty()
        opener = _opener(target.place, flags, identity)
        if target.document is None:
            assert target.look is not None
            return await _show_overview(target.look, opener, flags, is_screen=is_screen)
        async with opener(target.document) as subject:
            if is_screen:
                return await _show(flags, subject=subject)
            if target.look is not None and not subject.elements and not subject.start:
                raise NothingUnderKeyError(subject.key, await _keys(target.look))
            if flags.json:
                put_json(summary_of(subject))
            else:
                put_text(text_of(summary_of(subject)))
    return OK


async def _show(flags: Namespace, **what: Any) -> int:
    """Show something on the screen until it is left."""
    inspector = import_module("walstore.textual.inspector.app")
    leaving = import_module("walstore.textual.leaving")
    app = inspector.InspectorApp(is_light=flags.light, **what)
    status: int = await leaving.run_until_told(app)
    return status


async def _keys(look: Look) -> list[str]:
    """The documents that there are, as far as whoever asks is told."""
    try:
        return [row.key for row in (await look()).documents]
    except WalStoreError:
        return []


async def _show_overview(
    look: Look,
    opener: Callable[[str], AbstractAsyncContextManager[Subject]],
    flags: Namespace,
    *,
    is_screen: bool,
) -> int:
    async with told_if_slow(without_password(flags.target)):
        overview = await look()
    if is_screen:
        return await _show(flags, look=look, opener=opener)
    if flags.json:
        put_json(overview.as_json())
    else:
        put_text(overview.as_text())
    return 0


def _look_up(flags: Namespace) -> None:
    """Put the file of a document in the place of its name."""
    target = flags.target
    if flags.document in document_names():
        # What it is called here is no secret to anybody, but nobody else knows it by that.
        flags.document = find_document(flags.document).key
    if "://" in target or Path(target).exists():
        return
    try:
        known = find_document(target)
    except (UnknownDocumentError, BadNameError):
        raise NothingToInspectError(target) from None
    flags.target = str(known.file)
    flags.identity = flags.identity or known.identity


def _identity(name: str | None) -> Identity:
    try:
        return find_identity(name or "default").identity
    except UnknownIdentityError:
        if name is not None:
            raise
        # Whoever has none looks as somebody whom nobody knows.
        return Identity.generate()


def _opener(
    place: OpenedPlace, flags: Namespace, identity: Identity
) -> Callable[[str], AbstractAsyncContextManager[Subject]]:
    @asynccontextmanager
    async def opened(key: str) -> AsyncIterator[Subject]:
        async with place(key) as log:
            trust = await trust_in(
                log, key, identity=identity, owner=flags.owner, writers=flags.writer
            )
            yield await Subject(key, log, trust, identity=identity).open()

    return opened


# ── targets ────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def _target(flags: Namespace, identity: Identity) -> AsyncIterator[Target]:
    """Find out what is looked at.

    Raises:
        UsageError: It cannot be told, or the document has to be named.
        WalStoreError: It cannot be opened.
    """
    address = flags.target
    if address.startswith(_RELAYS):
        yield _relay(flags, identity)
    elif address.startswith(_DATABASES) or _is_relay_database(address):
        relay = import_module("walstore.cli.inspect_relay")
        async with relay.opened_database(address) as log:
            shown = without_password(address)
            look = relay.database_overview(log, shown)
            yield Target(
                lambda key: _still(relay.DatabasePlace(log, shown, key)), flags.document, look
            )
    elif "://" in address or Path(address).is_dir():
        yield _archive(flags)
    else:
        async with opened_local(address) as local:
            if flags.document not in (None, local.document):
                raise UsageError(f"{address} is a file of {local.document!r}")
            yield Target(lambda _: _still(local), local.document, None)


def _relay(flags: Namespace, identity: Identity) -> Target:
    module = import_module("walstore.inspect.relay_log")
    address = flags.target
    socket = address.replace("http", "ws", 1) if address.startswith("http") else address

    def place(key: str) -> AbstractAsyncContextManager[Place]:
        opened: AbstractAsyncContextManager[Place] = module.opened_relay(
            socket, key, identity=identity
        )
        return opened

    token = os.environ.get(_TOKEN_VARIABLE, "")
    look = import_module("walstore.cli.inspect_relay").relay_overview(address, token)
    return Target(place, flags.document, look)


def _archive(flags: Namespace) -> Target:
    reader = import_module("walstore.archive.reader")
    module = import_module("walstore.cli.inspect_archive")
    destination = import_module("walstore.archive.destinations").open_destination(flags.target)
    archive = reader.Archive(destination, flags.prefix)
    look = module.archive_overview(archive, flags.target)
    return Target(
        lambda _: _still(module.ArchivePlace(archive, flags.target)), flags.document, look
    )


def _is_relay_database(address: str) -> bool:
    """Whether a file is a database, and not one of the local files of walstore."""
    try:
        with Path(address).open("rb") as file:
            start = file.read(72)
    except OSError:
        return False
    is_local = int.from_bytes(start[68:72]) == LOCAL_FILE
    return start.startswith(b"SQLite format 3\0") and not is_local


@asynccontextmanager
async def _still(place: Place) -> AsyncIterator[Place]:
    yield place
