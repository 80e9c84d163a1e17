"""Documents that several people edit offline and that converge: the names an application needs.

- `WalCrdt` is a document's content, `Writer` one replica's hand on it.
- An edit is an `Op` in the version-1 format and a `Run` inside; `to_runs` and `to_ops` lead from
  one to the other, `pack_ops` and `unpack_ops` from runs to small JSON arrays and back.
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
from walstore.errors import (
    PeerError,
    StorageError,
    TransportError,
    UsageError,
    WalStoreError,
)

__all__ = [
    "LamportClock",
    "Op",
    "PeerError",
    "Run",
    "StorageError",
    "TransportError",
    "UsageError",
    "WalCrdt",
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
