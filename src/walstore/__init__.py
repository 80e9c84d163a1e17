"""Documents that several people edit offline, that converge, and that nobody can forge.

- `WalStore` is what an app holds: its state, edited at once, durable here and live elsewhere;
  `Change` is what its subscribers are told.
- `WalDocument` is the signed log underneath, folded and edited; `Identity` is who edits it.
- `WalCrdt` is a document's content alone, `Writer` one replica's hand on it, `pack_ops` and
  `unpack_ops` lead from recorded edits to small JSON arrays and back.
- Every exception is a `WalStoreError`; its branches say whose fault it is.
- `compiled` says whether the inner modules run as C or as plain Python; both do the same.
- A name is loaded when it is first used. What is not named here is imported from the package that
  it belongs to.
"""

from importlib import import_module as _import_module
from importlib.machinery import EXTENSION_SUFFIXES as _EXTENSION_SUFFIXES
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
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
    from walstore.errors import PeerError, StorageError, TransportError, UsageError, WalStoreError
    from walstore.net import MemorySnapshots, MemoryTransport
    from walstore.signed import Identity
    from walstore.store.change import Change
    from walstore.store.store import WalStore

    compiled: bool

__all__ = [
    "ALLOW_ANY",
    "Change",
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
    "WalStore",
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

_HOMES = {
    "LamportClock": "walstore.crdt",
    "Op": "walstore.crdt",
    "Run": "walstore.crdt",
    "WalCrdt": "walstore.crdt",
    "Writer": "walstore.crdt",
    "compare_clocks": "walstore.crdt",
    "derive_replica_id": "walstore.crdt",
    "pack_ops": "walstore.crdt",
    "to_ops": "walstore.crdt",
    "to_runs": "walstore.crdt",
    "unpack_ops": "walstore.crdt",
    "ALLOW_ANY": "walstore.document",
    "Marks": "walstore.document",
    "View": "walstore.document",
    "WalDocument": "walstore.document",
    "PeerError": "walstore.errors",
    "StorageError": "walstore.errors",
    "TransportError": "walstore.errors",
    "UsageError": "walstore.errors",
    "WalStoreError": "walstore.errors",
    "MemorySnapshots": "walstore.net",
    "MemoryTransport": "walstore.net",
    "Identity": "walstore.signed",
    "Change": "walstore.store.change",
    "WalStore": "walstore.store.store",
}


def __getattr__(name: str) -> object:
    if name == "compiled":
        inner = str(_import_module("walstore.crdt.sequence").__file__)
        return inner.endswith(tuple(_EXTENSION_SUFFIXES))
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_import_module(home), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__", "compiled"]
