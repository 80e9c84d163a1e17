"""starfish-wal for Python: the fold of version-1 operations, without a document layer."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any, ClassVar

from benchmarks.adapters.base import Adapter

starfish = import_module("starfish_wal")


class Library(Adapter):
    """starfish-wal's fold; its history is the version-1 operations, its snapshot their state."""

    folds_only: ClassVar[bool] = True

    def from_ops(self, ops: list[dict[str, Any]]) -> Any:
        document = starfish.WalCrdt()
        document.fold(ops)
        return document

    def materialize(self, document: Any) -> dict[str, Any]:
        content: dict[str, Any] = document.materialize()
        return content

    def text(self, document: Any) -> str:
        return str(document.text("text"))

    def from_history(self, history: bytes) -> Any:
        return self.from_ops(json.loads(history))

    def snapshot(self, document: Any) -> bytes:
        state = document.export_state()
        return json.dumps(state, separators=(",", ":"), ensure_ascii=False).encode()

    def from_snapshot(self, snapshot: bytes) -> Any:
        document = starfish.WalCrdt()
        document.import_state(json.loads(snapshot))
        return document
