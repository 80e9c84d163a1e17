"""Ways to a log: in memory, or on a relay.

- `WebSocketTransport` needs the package `websockets`, and is imported only when it is asked for.
- Starfish servers are reached through `walstore.net.starfish`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walstore.errors import UsageError
from walstore.net.feed import FeedEvent
from walstore.net.memory import MemoryRecords, MemorySnapshots, MemoryTransport

if TYPE_CHECKING:
    from walstore.net.websocket import WebSocketTransport

__all__ = [
    "FeedEvent",
    "MemoryRecords",
    "MemorySnapshots",
    "MemoryTransport",
    "WebSocketTransport",
    "WebsocketsMissingError",
]


class WebsocketsMissingError(UsageError, ImportError):
    """The package `websockets` is not installed."""

    def __init__(self) -> None:
        super().__init__("talking to a relay needs websockets: pip install 'walstore[net]'")


def __getattr__(name: str) -> object:
    if name != "WebSocketTransport":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from walstore.net.websocket import WebSocketTransport
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "websockets":
            raise
        raise WebsocketsMissingError from error
    return WebSocketTransport
