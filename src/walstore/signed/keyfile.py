"""Files that hold secrets: only their owner may read them, and they appear whole or not at all.

- A file is written beside its place with mode 0600, synced, and then put into place in one step.
- An existing file is replaced only on request, because a lost key cannot be made again.
- A file that others may read, write or run is refused: its secret must be taken for known.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from walstore.errors import StorageError, UsageError

# Far above any identity, far below what reading the wrong file by mistake would cost.
KEYFILE_BYTES_MAX = 4096

_OTHERS = 0o077


class KeyfileError(StorageError):
    """A file with secrets cannot be read or written.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class KeyfileMissingError(KeyfileError):
    """There is no such file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "there is no identity file here")


class KeyfileExposedError(KeyfileError):
    """Others than its owner have rights on the file.

    Attributes:
        mode: The permission bits found.
    """

    def __init__(self, path: Path, mode: int) -> None:
        super().__init__(path, f"mode {mode:04o} lets others in; only 0600 or less is accepted")
        self.mode = mode


class KeyfileCorruptError(KeyfileError):
    """The file does not hold what was saved.

    Attributes:
        reason: What is wrong with it; never any of its content.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, f"the identity file is damaged: {reason}")
        self.reason = reason


class KeyfileExistsError(UsageError):
    """The file exists and replacing it was not asked for.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} exists; say overwrite=True to give up the identity in it")
        self.path = path


def read_keyfile(path: Path) -> bytes:
    """Read a whole file with secrets.

    Raises:
        KeyfileMissingError: There is no such file.
        KeyfileExposedError: Others have rights on it (checked on POSIX systems).
        KeyfileCorruptError: It is larger than any such file.
        KeyfileError: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            if os.name == "posix" and mode & _OTHERS:
                raise KeyfileExposedError(path, mode)
            content = file.read(KEYFILE_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise KeyfileMissingError(path) from error
    except OSError as error:
        raise KeyfileError(path, f"cannot be read: {error.strerror}") from error
    if len(content) > KEYFILE_BYTES_MAX:
        raise KeyfileCorruptError(path, f"larger than {KEYFILE_BYTES_MAX} bytes")
    return content


def write_keyfile(path: Path, content: bytes, *, overwrite: bool) -> None:
    """Put a file with secrets into place, durable when this returns.

    Raises:
        KeyfileExistsError: The file exists and `overwrite` is false; it is untouched.
        KeyfileError: It cannot be written; what was there before is untouched.
    """
    try:
        draft = _write_draft(path.parent, content)
        try:
            _put_in_place(draft, path, overwrite=overwrite)
        finally:
            draft.unlink(missing_ok=True)
        _sync_directory(path.parent)
    except FileExistsError as error:
        raise KeyfileExistsError(path) from error
    except OSError as error:
        raise KeyfileError(path, f"cannot be written: {error.strerror}") from error


def _write_draft(directory: Path, content: bytes) -> Path:
    # mkstemp creates the file with mode 0600, so the secret is never readable by others.
    handle, name = tempfile.mkstemp(prefix=".identity-", dir=directory)
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return draft


def _put_in_place(draft: Path, path: Path, *, overwrite: bool) -> None:
    if overwrite:
        draft.replace(path)
    else:
        # A hard link is refused by the system if the name is taken; a rename would not be.
        path.hardlink_to(draft)


def _sync_directory(directory: Path) -> None:
    # Only a synced directory makes the new name survive a power cut; Windows has no such call.
    if os.name != "posix":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
