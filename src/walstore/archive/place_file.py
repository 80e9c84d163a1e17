"""How far a reader has come, in a small file that is there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from walstore.archive.plan import Place
from walstore.canon import canonical_bytes, parse
from walstore.errors import MalformedError, StorageError


class PlaceFileError(StorageError):
    """The file cannot be read or written, or is another one."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


def read_place(path: Path) -> Place | None:
    """The place that was written; None if there is no file.

    Raises:
        PlaceFileError: It cannot be read, or is not such a file.
    """
    try:
        value = parse(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PlaceFileError(path, os.strerror(error.errno or 0)) from error
    except MalformedError as error:
        raise PlaceFileError(path, "it does not say where a reader stands") from error
    match value:
        case {"epoch": int(epoch), "position": int(position)} if (
            type(epoch) is type(position) is int
        ):
            return Place(epoch, position)
        case _:
            raise PlaceFileError(path, "it does not say where a reader stands")


def write_place(path: Path, place: Place) -> None:
    """Put a place in the file, in one durable step.

    Raises:
        PlaceFileError: It cannot be written; the file is as it was.
    """
    beside = path.with_name(f"{path.name}.new")
    try:
        with beside.open("wb") as file:
            file.write(canonical_bytes(place._asdict()))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise PlaceFileError(path, os.strerror(error.errno or 0)) from error
