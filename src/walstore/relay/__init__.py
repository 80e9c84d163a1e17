"""The relay: an untrusted server that orders, keeps and forgets logs safely.

- `Relay.serve` runs one on a log: a `MemoryLog`, a `SqliteLog`, or a `PostgresLog` from its module.
- `session`, `room`, `roles` and `retention` decide; `server` and its parts carry it out.
- `reading` reads a relay's database without running a relay, and without what one needs.
- A name is loaded when it is first used.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from walstore.relay.log import RelayLog
    from walstore.relay.memory import MemoryLog
    from walstore.relay.server import Relay
    from walstore.relay.sqlite import SqliteLog

__all__ = ["MemoryLog", "Relay", "RelayLog", "SqliteLog"]

_HOMES = {
    "MemoryLog": "walstore.relay.memory",
    "Relay": "walstore.relay.server",
    "RelayLog": "walstore.relay.log",
    "SqliteLog": "walstore.relay.sqlite",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_import_module(home), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
