"""The relay: an untrusted server that orders, keeps and forgets logs safely.

- `Relay.serve` runs one on a log: a `MemoryLog`, a `SqliteLog`, or a `PostgresLog` from its module.
- `session`, `room`, `roles` and `retention` decide; `server` and its parts carry it out.
"""

from walstore.relay.log import RelayLog
from walstore.relay.memory import MemoryLog
from walstore.relay.server import Relay
from walstore.relay.sqlite import SqliteLog

__all__ = ["MemoryLog", "Relay", "RelayLog", "SqliteLog"]
