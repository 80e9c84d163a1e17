"""What a hostile relay and a hostile writer do in a run, each attack with what has to come of it.

- Attacks on what is shown (roll-back, hiding, forks, snapshots) go on until the relay relents; who
  was misled by then must have been told, or must not have been misled.
- What is forged is put into the log, for everybody: it must change nothing, and be reported. It
  says `FORGED`, which nobody else ever writes, wherever it has something to say.
- A hostile writer may write. It signs what no honest peer writes; everybody has to agree on what
  becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from walstore.canon import canonical_bytes, parse
from walstore.crdt.runs import Insert, Run, Set
from walstore.document.ports import RawElement, StoredSnapshot
from walstore.document.snapshot import SNAPSHOT_SUFFIX
from walstore.relay.log import NewElement
from walstore.signed import Domain, Identity, link, sign_append, sign_document
from walstore.signed.author import signing_input_of
from walstore.signed.encoding import encode_signature
from walstore.testing.simulator.hub import Hub, View
from walstore.testing.simulator.trace import Trace
from walstore.wire.envelope import Header, inner_packed, outer_packed

# Names what is forged: its session, and what it writes.
FORGED = "forged"


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
        if await self._attacked(kind, chance, readers, name, key):
            self._trace("attacker", f"attack {kind}", name)

    async def _attacked(
        self,
        kind: str,
        chance: Random,
        readers: Sequence[tuple[str, str]],
        name: str,
        key: str,
    ) -> bool:
        """Whether there was something to do harm to."""
        match kind:
            case "rollback":
                return self._roll_back(chance, name)
            case "hide":
                return self._hide(chance, name, key)
            case "fork":
                return self._fork(chance, readers)
            case "snapshot":
                return self._swap_snapshot(chance, readers)
            case "lie":
                self._hub.lies += chance.randint(1, 3)
            case "echo":
                return await self._echo(chance)
            case "forge":
                return await self._forge(chance)
            case _:
                await self._write(chance, key)
        return True

    # ── what is shown ──────────────────────────────────────────────────────────────────

    def _roll_back(self, chance: Random, name: str) -> bool:
        if not self._hub.accepted:
            return False
        place = chance.randrange(len(self._hub.accepted))
        ends_at = self._hub.accepted[place].ts
        older = [stored for upto, stored in self._hub.snapshots if upto <= ends_at]
        self._hub.views[name] = View(
            ends_at=ends_at, snapshot=older[-1] if older else None, hides_snapshot=True
        )
        return True

    def _hide(self, chance: Random, name: str, key: str) -> bool:
        others = [each for each in self._hub.accepted[-6:] if each.author != key]
        if others:
            hidden = chance.choice(others).signature
            before = self._hub.view(name).hides
            self._hub.view(name).hides = _either(before, lambda each: each.signature == hidden)
        return bool(others)

    def _fork(self, chance: Random, readers: Sequence[tuple[str, str]]) -> bool:
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
        return all(halves)

    def _swap_snapshot(self, chance: Random, readers: Sequence[tuple[str, str]]) -> bool:
        if not self._hub.snapshots:
            return False
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
        return True

    # ── what is put into the log ───────────────────────────────────────────────────────

    async def _echo(self, chance: Random) -> bool:
        for each in chance.choices(self._hub.accepted, k=3) if self._hub.accepted else ():
            await self._put(each.data, each.author, each.signature, is_forged=False)
        return bool(self._hub.accepted)

    async def _forge(self, chance: Random) -> bool:
        if not self._hub.accepted:
            return False
        victim = chance.choice(self._hub.accepted)
        match chance.randrange(4):
            case 0:
                # What somebody might type next, who has not signed it.
                signature = encode_signature(chance.randbytes(64))
                data = self._typed_by(victim.author)
                await self._put(canonical_bytes(data), victim.author, signature)
            case 1:
                # What somebody has written and signed, said to be of another session.
                data = {**_data_of(victim), "session": FORGED, "seq": 1}
                await self._put(canonical_bytes(data), victim.author, victim.signature)
            case 2:
                # What somebody has signed who may not write.
                own = self._stranger
                run = _insert(own.public_key, FORGED, 1)
                await self._put(*self._packed(own, [run], session=FORGED))
            case _:
                await self._put(b'{"v":2}', victim.author, victim.signature)
        return True

    def _typed_by(self, author: str) -> dict[str, Any]:
        """A keystroke after all that an author has written."""
        run = Insert("t0", f"{author}:{FORGED}", 1, "", 0, FORGED)
        data = _data(author, [run], session=FORGED)
        for each in self._hub.accepted:
            if each.author == author and each.ts not in self._hub.forged:
                data["prev"] = self._link(each.data, author, each.signature)
        return data

    async def _write(self, chance: Random, victim: str) -> None:
        own = self._writer
        self._seq += 1
        session, counter = "evil", 10 * self._seq
        match chance.randrange(6):
            case 0:
                # The clock of somebody else.
                stolen = _insert(victim, FORGED, counter)
                await self._append(*self._packed(own, [stolen], seq=self._seq), is_forged=True)
            case 1:
                # So far ahead that nobody could come after it.
                far = _insert(own.public_key, session, 2**50)
                await self._append(*self._packed(own, [far], seq=self._seq), is_forged=True)
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
        return self._signed(_data(author.public_key, runs, session=session, seq=seq), author)

    def _signed(self, data: dict[str, Any], author: Identity) -> tuple[bytes, str, str]:
        proof = sign_append(self._hub.document_key, data, author)
        return canonical_bytes(data), proof.author_pubkey, proof.author_signature

    async def _append(
        self, data: bytes, author: str, signature: str, *, is_forged: bool = False
    ) -> None:
        """What anybody may do who has a key."""
        name = self._link(data, author, signature)
        element = NewElement(self._hub.document_key, name, author, signature, data)
        ts = await self._hub.store(element)
        if is_forged:
            self._hub.forged.add(ts)

    def _link(self, data: bytes, author: str, signature: str) -> str:
        signed = signing_input_of(Domain.APPEND, self._hub.document_key, data)
        return link(signed, author_pubkey=author, author_signature=signature)

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


def _data(author: str, runs: Sequence[Run], *, session: str, seq: int = 1) -> dict[str, Any]:
    """What an author would sign."""
    body = inner_packed(f"{author}:{session}", runs)
    return outer_packed(body, author, Header(session, seq, None, {}))


def _insert(author: str, session: str, counter: int) -> Insert:
    """A forged item at the beginning of a list."""
    return Insert("l0", f"{author}:{session}", counter, "", 0, [FORGED])


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
