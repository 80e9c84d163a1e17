"""`walstore edit`: a text in the editor of one's choice; what came meanwhile is merged.

- While the editor is open, the document is not: others, here and elsewhere, go on writing.
- What was typed is never thrown away: if it cannot be written, it stays in a file that is named.
- The keys that interrupt are the editor's while it runs: it has uses of its own for them.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from walstore.cli.arguments import SYNC, document_parser, parsed
from walstore.cli.documents import KnownDocument, find_document
from walstore.cli.identities import SEED_VARIABLE
from walstore.cli.output import note, put_json
from walstore.cli.reading import reading
from walstore.cli.writing import ReaderOnlyError, writing
from walstore.errors import StorageError, UsageError, WalStoreError
from walstore.store.disk import FILE_BYTES_MAX
from walstore.store.merging import merge_text
from walstore.store.store import WalStore

_EDITOR = "vi"

# What is left out of the name of a draft, and how long it may be: in UTF-8 four times as much.
_UNFIT = re.compile(r"[^\w.-]")
_NAME_SIZE_MAX = 48


class NotATextError(UsageError):
    """What is to be edited is no text."""

    def __init__(
        self, document: str, name: str, *, kind: str, option: str = " --type json"
    ) -> None:
        super().__init__(
            f"{name} in {document} is a {kind}, not a text; change it with"
            f" `walstore set {document} {name} …{option}`"
        )


class NoTerminalError(UsageError):
    """There is nobody at a terminal, and no editor was named that can do without."""

    def __init__(self, document: str, name: str) -> None:
        super().__init__(
            "there is no terminal for an editor, and neither VISUAL nor EDITOR names one that can"
            f" do without; `walstore set {document} {name} - --type text` reads standard input"
        )


class EditorError(StorageError):
    """The editor did not do its work; the document was not changed."""

    def __init__(self, command: str, reason: str) -> None:
        super().__init__(
            f"the editor {command!r} {reason}; the document was not changed. EDITOR or VISUAL names"
            " another one"
        )


class NotWrittenError(StorageError):
    """What was typed is not in the document."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{reason}. What you typed is in {path}")


def parser() -> ArgumentParser:
    """What `walstore edit` takes."""
    made = document_parser(
        "edit",
        "Edit a text in $VISUAL or $EDITOR. What others write meanwhile is merged with it.",
    )
    made.add_argument("place", metavar="name", help="the text; a new one if there is none")
    made.add_argument("-m", "--message", help="what to say of it in the log")
    made.add_argument("--sync", action="store_true", help=SYNC)
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore edit …`; the exit code."""
    return asyncio.run(_edit(parsed(parser(), arguments)))


async def _edit(flags: Namespace) -> int:
    document = find_document(flags.document, beside=flags.place)
    async with reading(document, is_synced=flags.sync) as read:
        if not read.store.status.may_write:
            raise ReaderOnlyError(document)
        base = _text(read.store, document.name, flags.place)
        if flags.place not in read.store:
            note(f"{document.name} has nothing called {flags.place} yet; this begins it")
    if _editor() is None:
        raise NoTerminalError(document.name, flags.place)
    directory = Path(tempfile.mkdtemp(prefix="walstore-", dir=_memory()))
    path = directory / f"{_UNFIT.sub('-', flags.place)[:_NAME_SIZE_MAX]}.txt"
    try:
        path.write_bytes(base.encode())
        is_changed = await _merge(document, flags, base, _typed(path))
    except BaseException as error:
        if _says(path, base):
            shutil.rmtree(directory)
            raise
        if isinstance(error, WalStoreError | OSError):
            raise NotWrittenError(path, str(error)) from error
        note(f"what you typed is in {path}")
        raise
    shutil.rmtree(directory)
    if flags.json:
        put_json({"name": flags.place, "changed": is_changed})
    return read.code


async def _merge(document: KnownDocument, flags: Namespace, base: str, edited: str) -> bool:
    """Write what was typed; whether that was anything."""
    if edited == base:
        note("nothing was changed")
        return False
    done = f"wrote {flags.place} in {document.name}"
    async with writing(document, done=done, is_synced=flags.sync) as store:
        now = _text(store, document.name, flags.place)
        with store.batch(flags.message):
            store.set_text(flags.place, merge_text(base, left=edited, right=now))
        if now != base:
            note("merged with what was written meanwhile")
    return True


def _text(store: WalStore, document: str, name: str) -> str:
    kind = store.document.kind(name)
    is_new = kind is None or (kind == "list" and not store.document.length(name))
    if kind == "register" and isinstance(value := store[name], str):
        raise NotATextError(document, name, kind=f"plain value ({value[:24]!r})", option="")
    if kind != "text" and not is_new:
        raise NotATextError(document, name, kind=kind or "")
    return store.text(name)


def _editor() -> str | None:
    """The editor that was named, or the one that every terminal has; None without a terminal."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return named or (_EDITOR if is_terminal else None)


def _open() -> dict[str, str]:
    """The environment, without what is nobody else's business."""
    return {name: text for name, text in os.environ.items() if name != SEED_VARIABLE}


def _memory() -> str | None:
    """Where files are gone with the session, if there is such a place: a text may be a secret."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    return given if given and os.access(given, os.W_OK | os.X_OK) else None


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Leave the keys that interrupt to whoever else has the terminal."""
    keys = [getattr(signal, name) for name in ("SIGINT", "SIGQUIT") if hasattr(signal, name)]
    # What is ignored, whoever is started ignores as well; what is handled, they do not.
    before = {key: signal.signal(key, lambda *_: None) for key in keys}
    try:
        yield
    finally:
        for key, handler in before.items():
            signal.signal(key, handler)


def _says(path: Path, text: str) -> bool:
    """Whether nothing was typed that could be lost."""
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return not path.exists()


def _typed(path: Path) -> str:
    """What a person makes of a file."""
    command = _editor() or _EDITOR
    try:
        with _uninterrupted():
            ended = subprocess.run([*shlex.split(command), str(path)], env=_open(), check=False)
    except (OSError, ValueError) as error:
        raise EditorError(command, f"does not run ({error})") from error
    if ended.returncode:
        raise EditorError(command, f"ended with {ended.returncode}")
    try:
        # As bytes, because reading text would make other line ends of some.
        text = path.read_bytes().decode()
    except (OSError, ValueError) as error:
        raise EditorError(command, f"left a file that cannot be read ({error})") from error
    if len(text) > FILE_BYTES_MAX:
        raise EditorError(command, f"left more than {FILE_BYTES_MAX:,} characters")
    return text
