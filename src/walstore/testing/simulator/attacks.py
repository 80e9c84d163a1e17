"""What a hostile relay and a hostile writer do in a run, each attack with what has to come of it.

- Attacks on what is shown (roll-back, hiding, forks, snapshots) go on until the relay relents; who
  was misled by then must have been told, or must not have been misled.
- What is forged is put into the log, for everybody: it must change nothing, and be reported.
- A hostile writer may write. It signs what no honest peer writes; everybody has to agree on what
  becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from walstore.canon import canonical_bytes, parse
from walstore.crdt import pack_ops
from walstore.crdt.runs import Insert, Run, Set
from walstore.document.ports import RawElement, StoredSnapshot
from walstore.document.snapshot import SNAPSHOT_SUFFIX
from walstore.relay.log import NewElement
from walstore.signed import Domain, Identity, link, sign_append, sign_document
from walstore.signed.author import signing_input_of
from walstore.signed.encoding import encode_signature
from walstore.testing.simulator.hub import Hub, View
from walstore.testing.simulator.trace import Trace


class Attacker:
    """Whoever does harm in a run: the relay, or a writer with a key of their own."""

    def __init__(self, hub: Hub, trace: Trace, *, stranger: Identity, writer: Identity) -> None:
        self._hub, self._trace = hub, trace
        self._stranger, self._writer = stranger, writer
        self._seq = 0
        self._made = 0

    def begin_at(self, number: int) -> None:
        """Go on counting where somebody else has stopped."""
        self._seq = self._made = 10 * number

    async def attack(self, kind: str, chance: Random, readers: Sequence[tuple[str, str]]) -> None:
        """Do harm.

        Args:
            kind: Which.
            chance: What it depends on.
            readers: The names and keys of who is there.
        """
        name, key = chance.choice(readers)
        self._trace("attacker", f"attack {kind}", name)
        match kind:
            case "rollback":
                self._roll_back(chance, name)
            case "hide":
                self._hide(chance, name, key)
            case "fork":
                self._fork(chance, readers)
            case "snapshot":
                self._swap_snapshot(chance, readers)
            case "lie":
                self._hub.lies += chance.randint(1, 3)
            case "echo":
                await self._echo(chance)
            case "forge":
                await self._forge(chance)
            case _:
                await self._write(chance, key)

    # ── what is shown ──────────────────────────────────────────────────────────────────

    def _roll_back(self, chance: Random, name: str) -> None:
        if not self._hub.accepted:
            return
        place = chance.randrange(len(self._hub.accepted))
        ends_at = self._hub.accepted[place].ts
        older = [stored for upto, stored in self._hub.snapshots if upto <= ends_at]
        self._hub.views[name] = View(
            ends_at=ends_at, snapshot=older[-1] if older else None, hides_snapshot=True
        )

    def _hide(self, chance: Random, name: str, key: str) -> None:
        others = [each for each in self._hub.accepted[-6:] if each.author != key]
        if others:
            hidden = chance.choice(others).signature
            before = self._hub.view(name).hides
            self._hub.view(name).hides = _either(before, lambda each: each.signature == hidden)

    def _fork(self, chance: Random, readers: Sequence[tuple[str, str]]) -> None:
        """Show each half of the fleet nothing of what the other half writes from now on."""
        halves: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
        for reader in readers:
            halves[chance.randrange(2)].append(reader)
        since = self._hub.accepted[-1].ts if self._hub.accepted else 0
        for half, other in (halves, halves[::-1]):
            keys = frozenset(key for _, key in other)
            for name, _ in half:
                view = self._hub.view(name)
                view.hides = _either(view.hides, _written_since(since, keys))

    def _swap_snapshot(self, chance: Random, readers: Sequence[tuple[str, str]]) -> None:
        if not self._hub.snapshots:
            return
        _, stored = chance.choice(self._hub.snapshots)
        shown: StoredSnapshot | None = stored
        assert isinstance(stored.document, dict)
        match chance.randrange(4):
            case 0:
                shown = _resigned(stored, self._stranger, self._hub.document_key)
            case 1:
                altered = {**stored.document, "uptoTs": stored.document["uptoTs"] + 1}
                shown = StoredSnapshot(altered, stored.revision)
            case 2:
                shown = None
        for name, _ in readers:
            if chance.random() < 0.7:
                self._hub.views[name] = View(snapshot=shown, hides_snapshot=True)

    # ── what is put into the log ───────────────────────────────────────────────────────

    async def _echo(self, chance: Random) -> None:
        for each in chance.choices(self._hub.accepted, k=3) if self._hub.accepted else ():
            await self._put(each.data, each.author, each.signature, is_forged=False)

    async def _forge(self, chance: Random) -> None:
        if not self._hub.accepted:
            return
        victim = chance.choice(self._hub.accepted)
        match chance.randrange(4):
            case 0:
                signature = encode_signature(chance.randbytes(64))
                await self._put(victim.data, victim.author, signature)
            case 1:
                data = {**_data_of(victim), "session": "forged", "seq": 1}
                await self._put(canonical_bytes(data), victim.author, victim.signature)
            case 2:
                element = self._packed(self._stranger, [_set_run(self._stranger, "x", 5, "no")])
                await self._put(*element)
            case _:
                await self._put(b'{"v":2}', victim.author, victim.signature)

    async def _write(self, chance: Random, victim: str) -> None:
        own = self._writer
        self._seq += 1
        session, counter = "evil", 10 * self._seq
        match chance.randrange(6):
            case 0:
                # The clock of somebody else.
                run = Set("r0", f"{victim}:stolen", counter, "stolen")
                await self._append(*self._packed(own, [run], seq=self._seq), is_forged=True)
            case 1:
                # So far ahead that nobody could come after it.
                run = _set_run(own, session, 2**50, "far")
                await self._append(*self._packed(own, [run], seq=self._seq))
            case 2:
                # One clock, two contents.
                for value in ("one", "two"):
                    run = _set_run(own, session, counter, value)
                    await self._append(*self._packed(own, [run], seq=self._seq))
            case 3:
                # An element that nobody will ever see.
                self._seq += 3
                run = _set_run(own, session, counter, "after a gap")
                await self._append(*self._packed(own, [run], seq=self._seq))
            case 4:
                # After an element that does not exist.
                replica = f"{own.public_key}:{session}"
                orphan = Insert("l0", replica, counter, f"{victim}:nobody", 7, ["orphan"])
                await self._append(*self._packed(own, [orphan], seq=self._seq))
            case _:
                data = {"v": 1, "author": own.public_key, "seq": self._seq, "ops": [None]}
                await self._append(*self._signed(data, own), is_forged=True)

    def _packed(
        self, author: Identity, runs: Sequence[Run], *, session: str = "evil", seq: int = 1
    ) -> tuple[bytes, str, str]:
        data = {
            "v": 2,
            "author": author.public_key,
            "session": session,
            "seq": seq,
            "body": {"ops": pack_ops(list(runs))},
        }
        return self._signed(data, author)

    def _signed(self, data: dict[str, Any], author: Identity) -> tuple[bytes, str, str]:
        proof = sign_append(self._hub.document_key, data, author)
        return canonical_bytes(data), proof.author_pubkey, proof.author_signature

    async def _append(
        self, data: bytes, author: str, signature: str, *, is_forged: bool = False
    ) -> None:
        """What anybody may do who has a key."""
        signed = signing_input_of(Domain.APPEND, self._hub.document_key, data)
        name = link(signed, author_pubkey=author, author_signature=signature)
        element = NewElement(self._hub.document_key, name, author, signature, data)
        ts = await self._hub.store(element)
        if is_forged:
            self._hub.forged.add(ts)

    async def _put(
        self, data: bytes, author: str, signature: str, *, is_forged: bool = True
    ) -> None:
        self._made += 1
        # A relay that means harm stores what it likes, under any name.
        name = f"{self._made:064x}"
        element = NewElement(self._hub.document_key, name, author, signature, data)
        ts = await self._hub.store(element)
        if is_forged:
            self._hub.forged.add(ts)


def _set_run(author: Identity, session: str, counter: int, value: str) -> Set:
    return Set("r0", f"{author.public_key}:{session}", counter, value)


def _data_of(element: RawElement) -> dict[str, Any]:
    data = parse(element.data)
    assert isinstance(data, dict)
    return data


def _either(
    one: Callable[[RawElement], bool], other: Callable[[RawElement], bool]
) -> Callable[[RawElement], bool]:
    return lambda element: one(element) or other(element)


def _written_since(since: int, keys: frozenset[str]) -> Callable[[RawElement], bool]:
    return lambda element: element.ts > since and element.author in keys


def _resigned(stored: StoredSnapshot, author: Identity, document_key: str) -> StoredSnapshot:
    """A snapshot under another key than its producer's."""
    assert isinstance(stored.document, dict)
    content = {name: stored.document[name] for name in ("state", "uptoTs", "writerSeq")}
    content["producedBy"] = author.public_key
    proof = sign_document(document_key + SNAPSHOT_SUFFIX, content, author)
    signed = {
        **content,
        "authorPubkey": proof.author_pubkey,
        "authorSignature": proof.author_signature,
    }
    return StoredSnapshot(signed, stored.revision)
