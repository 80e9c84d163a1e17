"""Documents: signed, sealed and reconciled."""

from walstore.document.content import KindError
from walstore.document.document import ALLOW_ANY, WalDocument
from walstore.document.events import Displaced, Event, Fork, Gap, Rejection, Rollback
from walstore.document.faults import (
    NoSnapshotStoreError,
    NotOpenError,
    ReadOnlyError,
    RejectedElementsError,
    RollbackDetectedError,
    SequenceGapError,
    SessionNameError,
    SessionUsedError,
    SnapshotMismatchError,
    SnapshotRefusedError,
)
from walstore.document.history import Blame, Version
from walstore.document.opening import Marks, PrunedLogError, SnapshotVerdict
from walstore.document.ports import (
    Body,
    CheckpointTooOldError,
    LogBehindError,
    LogReplacedError,
    OtherLogError,
    SnapshotConflictError,
    SnapshotStore,
    StoredSnapshot,
    Transport,
)
from walstore.document.sealing import ValueTooLargeError
from walstore.document.view import View

__all__ = [
    "ALLOW_ANY",
    "Blame",
    "Body",
    "CheckpointTooOldError",
    "Displaced",
    "Event",
    "Fork",
    "Gap",
    "KindError",
    "LogBehindError",
    "LogReplacedError",
    "Marks",
    "NoSnapshotStoreError",
    "NotOpenError",
    "OtherLogError",
    "PrunedLogError",
    "ReadOnlyError",
    "RejectedElementsError",
    "Rejection",
    "Rollback",
    "RollbackDetectedError",
    "SequenceGapError",
    "SessionNameError",
    "SessionUsedError",
    "SnapshotConflictError",
    "SnapshotMismatchError",
    "SnapshotRefusedError",
    "SnapshotStore",
    "SnapshotVerdict",
    "StoredSnapshot",
    "Transport",
    "ValueTooLargeError",
    "Version",
    "View",
    "WalDocument",
]
