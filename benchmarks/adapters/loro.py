"""loro: `commit` ends a transaction; updates come from the local-update subscription."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from benchmarks.adapters.base import Adapter, Edit

loro = import_module("loro")


class Library(Adapter):
    """loro, positions in code points."""

    def edit_each(self, edits: Iterable[Edit]) -> Any:
        document = loro.LoroDoc()
        self.edit_on(document, edits)
        return document

    def edit_on(self, document: Any, edits: Iterable[Edit]) -> None:
        text = document.get_text("text")
        for position, deleted, inserted in edits:
            if deleted:
                text.delete(position, deleted)
            if inserted:
                text.insert(position, inserted)
            document.commit()

    def edit_bursts(self, bursts: list[list[Edit]]) -> Any:
        document = loro.LoroDoc()
        text = document.get_text("text")
        for burst in bursts:
            for position, deleted, inserted in burst:
                if deleted:
                    text.delete(position, deleted)
                if inserted:
                    text.insert(position, inserted)
            document.commit()
        return document

    def edit_and_emit(self, edits: list[Edit]) -> tuple[Any, list[bytes]]:
        document = loro.LoroDoc()
        messages: list[bytes] = []

        def keep(message: bytes) -> bool:
            messages.append(message)
            return True

        subscription = document.subscribe_local_update(keep)
        self.edit_on(document, edits)
        subscription.unsubscribe()
        return document, messages

    def receive(self, messages: list[bytes]) -> Any:
        document = loro.LoroDoc()
        for message in messages:
            document.import_(message)
        return document

    def text(self, document: Any) -> str:
        return str(document.get_text("text").to_string())

    def history(self, document: Any) -> bytes:
        return bytes(document.export(loro.ExportMode.Updates(loro.VersionVector())))

    def from_history(self, history: bytes) -> Any:
        return self.receive([history])

    def snapshot(self, document: Any) -> bytes:
        return bytes(document.export(loro.ExportMode.Snapshot()))

    def shallow_snapshot(self, document: Any) -> bytes:
        frontiers = document.oplog_frontiers
        return bytes(document.export(loro.ExportMode.ShallowSnapshot(frontiers)))

    def replica(self, number: int) -> Any:
        document = loro.LoroDoc()
        document.peer_id = number + 1
        return document

    def change(self, document: Any, edits: list[Edit]) -> bytes:
        before = document.oplog_vv
        self.edit_on(document, edits)
        return bytes(document.export(loro.ExportMode.Updates(before)))

    def take_in(self, document: Any, message: bytes) -> None:
        document.import_(message)

    def from_text(self, text: str) -> Any:
        return self.edit_each([(0, 0, text)])

    def set_text(self, document: Any, text: str) -> None:
        document.get_text("text").update(text)
        document.commit()
