"""An honest TypeScript peer, as it is published: its habits, on the plainest fold there is.

- Its session is called "0" unless it is told otherwise, in every tab.
- A tab counts its elements on from the highest seq of its author that it read when it was opened;
  what other tabs write meanwhile does not move that.
- After a lost answer the same ops are sent once more, and what was edited since with them, under
  the same seq.
- A snapshot that is adopted moves no clock: what is edited next may be stamped as before.
- A snapshot is folded from the whole log, and says nothing of sessions.
- Behind what it cannot read, which is all that is packed, it reads everything again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, cast

from tests.oracle import Oracle
from tests.rigged import KEY, RiggedSnapshots, signed_snapshot, write_starfish
from walstore.canon import canonical_bytes, parse
from walstore.document.ports import Body, RawElement, Transport
from walstore.signed import Identity


class StarfishPeer:
    """One tab of one person.

    Attributes:
        who: The person.
        fold: What the tab shows.
    """

    def __init__(
        self, who: Identity, log: Transport, snapshots: RiggedSnapshots, *, nonce: str = "0"
    ) -> None:
        """Describe a tab; nothing is read before `open`."""
        self.who = who
        self.fold = Oracle()
        self._replica = f"{who.public_key}:{nonce}"
        self._log = log
        self._snapshots = snapshots
        self._pending: list[Any] = []
        self._seq = 0
        self._seqs: dict[str, int] = {}
        self._checkpoint = 0

    async def open(self, *, is_trusting: bool) -> StarfishPeer:
        """Read the log from the snapshot, or from its start."""
        stored = await self._snapshots.read(KEY)
        if is_trusting and stored is not None:
            document: Any = stored.document
            self.fold.import_state(document["state"])
            self._seqs, self._checkpoint = dict(document["writerSeq"]), document["uptoTs"]
        await self.pull()
        self._seq = self._seqs.get(self.who.public_key, 0)
        return self

    async def pull(self) -> None:
        """Read on from the last element before which all could be read."""
        can_go_on = True
        for ts, data in await self._read(self._checkpoint):
            if data["v"] == 1:
                _count(self._seqs, data)
                self.fold.fold(data["ops"])
            else:
                can_go_on = False
            if can_go_on:
                self._checkpoint = ts

    def edit(self, chance: Random) -> None:
        """Make any edit."""
        name = chance.choice(["body", "todo"])
        ids = self.fold.list_ids(name)
        clock = {"c": self.fold.counter + 1, "r": self._replica}
        rest: list[Callable[[], dict[str, Any]]] = [
            lambda: {"t": "set", "reg": chance.choice("xyz"), "value": chance.randint(0, 99)},
            lambda: {"t": "del", "reg": chance.choice("xyz")},
            lambda: self._insert(name, chance.choice(["", *ids]), chance.choice("abc")),
            lambda: self._insert(name, ids[-1] if ids else "", chance.choice("def")),
            lambda: {"t": "rmv", "list": name, "id": chance.choice(ids)},
        ]
        op = {**chance.choice(rest if ids else rest[:-1])(), "clock": clock}
        self.fold.apply(op)
        self._pending.append(op)

    def _insert(self, name: str, after: str, value: str) -> dict[str, Any]:
        id = f"{self.fold.counter + 1}@{self._replica}"
        return {"t": "ins", "list": name, "id": id, "after": after, "value": value}

    async def commit(self) -> None:
        """Send what was edited, as one element."""
        if not self._pending:
            return
        element = write_starfish(self.who, self._pending, seq=self._seq + 1)
        data = canonical_bytes(element["data"])
        await self._log.append(KEY, Body(data, self.who.public_key, element["authorSignature"]))
        self._pending = []
        self._seq += 1

    async def snapshot(self) -> None:
        """Sign a fold of the whole log, and put it in the place of whatever is stored."""
        fold, seqs, elements = Oracle(), dict[str, int](), await self._read(0)
        for _, data in elements:
            fold.fold(data["ops"])
            _count(seqs, data)
        content = {
            "state": fold.export_state(),
            "uptoTs": elements[-1][0] if elements else 0,
            "writerSeq": seqs,
            "producedBy": self.who.public_key,
        }
        self._snapshots.document = parse(canonical_bytes(signed_snapshot(content, self.who)))

    async def _read(self, checkpoint: int) -> list[tuple[int, dict[str, Any]]]:
        """All that the log holds above a `ts`."""
        found: list[tuple[int, dict[str, Any]]] = []
        while page := await self._log.pull(KEY, found[-1][0] if found else checkpoint):
            for each in page:
                assert isinstance(each, RawElement)
                found.append((each.ts, cast("dict[str, Any]", parse(each.data))))
        return found


def _count(seqs: dict[str, int], data: dict[str, Any]) -> None:
    seqs[data["author"]] = max(seqs.get(data["author"], 0), data["seq"])
