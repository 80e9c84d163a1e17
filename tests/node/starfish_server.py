"""What a stock Starfish server is started with, and what its callers may do."""

from __future__ import annotations

import time
from typing import Any

from walstore.signed import Identity
from walstore.signed.capability import Capability, Scope, issue_capability

Collection = dict[str, Any]


def collection(name: str, path: str, **more: Any) -> Collection:
    """A collection of documents, for those whose capability names it."""
    return {
        "name": name,
        "storagePath": path,
        "readRoles": [f"cap:read:{name}"],
        "writeRoles": [f"cap:write:{name}"],
        "encryption": "none",
        "maxBodyBytes": 65536,
        "allowedMimeTypes": ["application/json"],
        **more,
    }


def log_collection(path: str, **more: Any) -> Collection:
    """A collection of logs."""
    return collection("log", path, appendOnly={"type": "by_timestamp", **more})


def capability_of(identity: Identity, **changes: Any) -> Capability:
    """What its own issuer may do for an hour."""
    now_s = int(time.time())
    options: dict[str, Any] = {
        "scope": Scope(["read", "write"], ["log", "snap"]),
        "not_before_s": now_s - 60,
        "expires_s": now_s + 3600,
        "nonce": bytes([9]) * 16,
        **changes,
    }
    return issue_capability(identity, **options)
