"""Where the command line keeps things: the directories of the XDG specification.

    $XDG_DATA_HOME/walstore/identities/NAME.json         private keys, for their owner alone
    $XDG_DATA_HOME/walstore/documents/NAME/              a document: its settings, its local file
    $XDG_DATA_HOME/walstore/people.json                  what others are called here
    $XDG_CONFIG_HOME/walstore/config.toml                what to assume where nothing is said

- A variable that holds no absolute path counts as not set, as the specification has it.
- A file is replaced whole or not at all, and nobody else may read it.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from walstore.errors import StorageError, UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class BadNameError(UsageError):
    """A name that cannot be that of a document, an identity or a person here."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} cannot be a name here: begin with a letter or a digit, go on with"
            " letters, digits, '.', '_' and '-', 64 at most"
        )


def checked_name(name: str) -> str:
    """A name that can be that of a file.

    Raises:
        BadNameError: It is none.
    """
    if not _NAME.fullmatch(name):
        raise BadNameError(name)
    return name


def data_directory() -> Path:
    """Where keys and documents are."""
    return _home("XDG_DATA_HOME", ".local/share") / "walstore"


def config_file() -> Path:
    """Where somebody may say what to assume."""
    return _home("XDG_CONFIG_HOME", ".config") / "walstore" / "config.toml"


def make_private(directory: Path) -> None:
    """Make a directory that is its owner's alone, if there is none.

    Raises:
        StorageError: It cannot be made.
    """
    try:
        # Only the last directory that is made has the mode, so it is one after the other.
        for each in (data_directory(), directory):
            if directory.is_relative_to(each):
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{directory}: {error.strerror}; check who owns it") from error


def replace_file(path: Path, content: bytes) -> None:
    """Let a file say something else, durably.

    Raises:
        StorageError: It says what it said.
    """
    make_private(path.parent)
    try:
        handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}; nothing was changed") from error


def _home(variable: str, otherwise: str) -> Path:
    given = Path(os.environ.get(variable, ""))
    return given if given.is_absolute() else Path.home() / otherwise
