"""The documents of this computer: what each is called here, where its log is, whose it is.

- A name is a matter of this computer; the key is what relays and other people know it by.
- What is remembered of a document holds no secret: the identity is named, and kept elsewhere.
"""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from walstore.cli.places import (
    BadNameError,
    checked_name,
    data_directory,
    make_private,
    replace_file,
)
from walstore.errors import StorageError, UsageError

_VERSION = 1
_SETTINGS = "document.json"
_FILE = "log.db"
_SETTINGS_BYTES_MAX = 2**16


class UnknownDocumentError(UsageError):
    """Nothing on this computer is called so."""

    def __init__(self, name: str, beside: str | None = None) -> None:
        names = document_names()
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        if beside in names:
            said = f", but {beside} is one: the document comes first"
        else:
            said = (
                f"; {hint}`walstore show` lists all, `walstore init {name}` makes a new one,"
                " `walstore join` opens an invitation"
            )
        super().__init__(f"there is no document called {name!r} here{said}")


class DocumentExistsError(UsageError):
    """Something is called so already."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is a document called {name} already; `walstore show {name}` shows it,"
            " or choose another name"
        )


class DocumentDamagedError(StorageError):
    """What was remembered of a document cannot be read."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}; put back a copy, or move the directory away and join again"
        )


@dataclass(frozen=True, slots=True)
class KnownDocument:
    """A document of this computer.

    Attributes:
        name: What it is called here.
        key: What it is called elsewhere.
        owner: Whose word counts about who may write.
        is_sealed: Whether it is encrypted.
        relay: Where its log is; None as long as it is here alone.
        identity: The name of the identity that edits it.
    """

    name: str
    key: str
    owner: str
    is_sealed: bool
    relay: str | None
    identity: str

    @property
    def directory(self) -> Path:
        """Where it is kept."""
        return _directory(self.name)

    @property
    def file(self) -> Path:
        """Its local file."""
        return self.directory / _FILE

    def at_relay(self, relay: str) -> KnownDocument:
        """The same document with another relay, remembered."""
        moved = replace(self, relay=relay)
        remember(moved)
        return moved


def document_names() -> list[str]:
    """What the documents of this computer are called."""
    root = data_directory() / "documents"
    try:
        return sorted(each.parent.name for each in root.glob(f"*/{_SETTINGS}"))
    except OSError as error:
        raise StorageError(f"{root}: {error.strerror}; check who owns it") from error


def find_document(name: str, *, beside: str | None = None) -> KnownDocument:
    """The document that is called so here.

    Args:
        name: What it is called.
        beside: What was typed after it; if that is a document, the two were mixed up.

    Raises:
        UnknownDocumentError: There is none.
        BadNameError: There can be none.
        DocumentDamagedError: What was remembered of it cannot be read.
    """
    try:
        path = _directory(checked_name(name)) / _SETTINGS
    except BadNameError:
        if beside in document_names():
            raise UnknownDocumentError(name, beside) from None
        raise
    try:
        with path.open("rb") as file:
            text = file.read(_SETTINGS_BYTES_MAX)
    except FileNotFoundError:
        raise UnknownDocumentError(name, beside) from None
    except PermissionError as error:
        raise StorageError(f"{path}: {error.strerror}; check who owns it") from error
    except OSError as error:
        raise DocumentDamagedError(path, error.strerror or str(error)) from error
    return _read(name, path, text)


@contextmanager
def new_document(document: KnownDocument) -> Iterator[Path]:
    """Make a document in a block, which is given where its local file is to be meanwhile.

    It is there when the block ends; if that fails, nothing is.

    Raises:
        DocumentExistsError: Something is called so already.
    """
    root, place = data_directory() / "documents", document.directory
    if place.exists():
        raise DocumentExistsError(document.name)
    make_private(root)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=root, ignore_cleanup_errors=True) as made:
        draft = Path(made) / document.name
        make_private(draft)
        yield draft / _FILE
        replace_file(draft / _SETTINGS, _settings(document))
        try:
            draft.rename(place)
        except OSError as error:
            # Somebody else was faster.
            raise DocumentExistsError(document.name) from error


def remember(document: KnownDocument) -> None:
    """Keep what is known of a document."""
    replace_file(document.directory / _SETTINGS, _settings(document))


def _settings(document: KnownDocument) -> bytes:
    members = {"v": _VERSION, **asdict(document)}
    return orjson.dumps(members, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _directory(name: str) -> Path:
    return data_directory() / "documents" / name


def _read(name: str, path: Path, text: bytes) -> KnownDocument:
    try:
        members: Any = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DocumentDamagedError(path, "this is not JSON") from error
    match members:
        case {
            "v": 1,
            "key": str(key),
            "owner": str(owner),
            "is_sealed": bool(is_sealed),
            "relay": (str() | None) as relay,
            "identity": str(identity),
        }:
            return KnownDocument(name, key, owner, is_sealed, relay, checked_name(identity))
        case _:
            raise DocumentDamagedError(path, f"not the settings of a document, version {_VERSION}")
