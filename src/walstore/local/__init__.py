"""What one document of one author keeps on disk: elements, state, and edits on their way.

- `LocalFile` is the file; everything else is what it takes, gives and raises.
- Nothing here knows the network, or looks into what is sealed.
"""

from __future__ import annotations

from walstore.local.faults import (
    LocalFileClosedError,
    LocalFileDamagedError,
    LocalFileError,
    LocalFileFailedError,
    LocalFileForeignError,
    LocalFileFullError,
    LocalFileInUseError,
    LocalFileNewerError,
    LocalFileNowhereError,
    LocalFileReadOnlyError,
    NotStorableError,
    OtherAuthorError,
    OtherDocumentError,
    UnsentFileError,
)
from walstore.local.file import LocalFile
from walstore.local.rows import LastSealed, OutboxBody, Pending, Recorded, Start
from walstore.local.unsent import Unsent, read_unsent, unsent_files

__all__ = [
    "LastSealed",
    "LocalFile",
    "LocalFileClosedError",
    "LocalFileDamagedError",
    "LocalFileError",
    "LocalFileFailedError",
    "LocalFileForeignError",
    "LocalFileFullError",
    "LocalFileInUseError",
    "LocalFileNewerError",
    "LocalFileNowhereError",
    "LocalFileReadOnlyError",
    "NotStorableError",
    "OtherAuthorError",
    "OtherDocumentError",
    "OutboxBody",
    "Pending",
    "Recorded",
    "Start",
    "Unsent",
    "UnsentFileError",
    "read_unsent",
    "unsent_files",
]
