"""Documents that several people edit offline, that converge, and that nobody can forge.

- `WalDocument` is a signed log, folded and edited; `Identity` is who edits it.
- `WalCrdt` is a document's content alone, `Writer` one replica's hand on it, `pack_ops` and
  `unpack_ops` lead from recorded edits to small JSON arrays and back.
- Every exception is a `WalStoreError`; its branches say whose fault it is.
- What is not named here is imported from the package that it belongs to.
"""

from walstore.crdt import (
    LamportClock,
    Op,
    Run,
    WalCrdt,
    Writer,
    compare_clocks,
    derive_replica_id,
    pack_ops,
    to_ops,
    to_runs,
    unpack_ops,
)
from walstore.document import ALLOW_ANY, Marks, View, WalDocument
from walstore.errors import (
    PeerError,
    StorageError,
    TransportError,
    UsageError,
    WalStoreError,
)
from walstore.net import MemorySnapshots, MemoryTransport
from walstore.signed import Identity

__all__ = [
    "ALLOW_ANY",
    "Identity",
    "LamportClock",
    "Marks",
    "MemorySnapshots",
    "MemoryTransport",
    "Op",
    "PeerError",
    "Run",
    "StorageError",
    "TransportError",
    "UsageError",
    "View",
    "WalCrdt",
    "WalDocument",
    "WalStoreError",
    "Writer",
    "compare_clocks",
    "derive_replica_id",
    "pack_ops",
    "to_ops",
    "to_runs",
    "unpack_ops",
]

__version__ = "0.1.0"
