"""The info document: what a relay says about itself to whoever asks, in the relay draft's shape."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from walstore.relay.config import Settings
from walstore.wire.frames import PROTOCOL_VERSION

SOFTWARE = "walstore"


class Retained(NamedTuple):
    """How far back somebody can go.

    Attributes:
        min_seq: The lowest seq that can still be replayed; 0 if nothing was ever accepted.
        head_seq: The newest seq; 0 likewise.
        mode: How snapshots are retained.
        recent_count: How many of a document, history included.
        min_created_ms: When the oldest snapshot that is still there was accepted; None without any.
    """

    min_seq: int
    head_seq: int
    mode: str
    recent_count: int
    min_created_ms: int | None


@cache
def software_version() -> str:
    """The version of walstore."""
    try:
        return version("walstore")
    except PackageNotFoundError:
        return "unknown"


def info_document(settings: Settings, retained: Retained) -> dict[str, Any]:
    """What `GET /` answers to programs."""
    created_ms = retained.min_created_ms
    return {
        "name": settings.name,
        "description": settings.description,
        "software": SOFTWARE,
        "version": software_version(),
        "supported_nips": [11, "CF"],
        "protocol": [PROTOCOL_VERSION],
        "limits": settings.limits.advertised(),
        "changes_feed": {"min_seq": retained.min_seq},
        "snapshot_sync": {
            "changes_feed": True,
            "author_scoped": False,
            "space_scoped": True,
            "retention": {
                "snapshot_retention": {
                    "mode": retained.mode,
                    "recent_count": retained.recent_count,
                    "min_created_at": None if created_ms is None else created_ms // 1000,
                }
            },
        },
    }
