"""A seeded story of one log that our documents and those of the JavaScript peer write together.

- Everything is drawn from one `random.Random`, so a seed tells the whole story again; only what
  the packages draw themselves (keys, ivs) differs, and nothing depends on it.
- The log is wherever a `Place` says: with the peer, on a relay or on a Starfish server. Who writes
  what, and what happens to it, is the same everywhere.
- Everybody is honest. Answers get lost, appends are refused, elements are stored twice, keys are
  rotated, readers come late: none of it is a reason for an alarm.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from tests.node.documents import FaultyLog, NodeDocument
from tests.node.peer import NodePeer
from tests.node.person import Person
from tests.node.places import InPeer, Place, elements_of
from walstore.canon import canonical_text
from walstore.document import Body, Event, Marks, WalDocument
from walstore.errors import TransportError
from walstore.sealed import (
    ContentKeys,
    StarfishEncryptor,
    create_keyring,
    open_keyring,
    rotate_keyring,
)
from walstore.signed.author import verify_bytes

Posture = Literal["trust", "trust-retain-tail", "re-derive"]
Edit = tuple[Any, ...]

POSTURES: tuple[Posture, ...] = ("trust", "trust-retain-tail", "re-derive")
NOW_S = 1_700_000_000

# What is done while others do something; "lost" and "refused" are commits that meet this fault.
Act = Literal["commit", "lost", "refused", "pull", "snapshot"]
ACTS: tuple[Act, ...] = ("commit", "lost", "refused", "pull", "snapshot")

REGISTERS = ("title", "meta", "é/😀")
LISTS = ("todo", "tags")
TEXTS = ("body", "notes")
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -0.0,
    1.5,
    1e21,
    2**53 - 1,
    "",
    "Grüße",
    "\ud800",
    "👩‍🚀",
    {"b": 1, "a": {"é": ["\u2028"]}},
)
# The package's `update` takes every array for a list, so a register never holds one here.
ITEMS = (*VALUES, [], [1, [2, {"three": None}]])
LETTERS = ("a", "b", "c", " ", "\n", "é", "e\u0301", "漢", "😀", "👩‍🚀")

METHODS: dict[str, Callable[..., None]] = {
    "setField": WalDocument.set_field,
    "deleteField": WalDocument.delete_field,
    "insert": WalDocument.insert,
    "push": WalDocument.push,
    "removeAt": WalDocument.remove_at,
    "insertText": WalDocument.insert_text,
    "setText": WalDocument.set_text,
    "setList": WalDocument.set_list,
    "update": WalDocument.update,
}


class Keys:
    """The keyring of a scenario, made and rotated by either side."""

    def __init__(self, peer: NodePeer, people: list[Person], rng: random.Random, key: str) -> None:
        self._peer = peer
        self._rng = rng
        self._scope = key
        # One who gives out keys on our side, one on the peer's.
        self._ours, self._theirs = Person(rng), Person(rng)
        self.recipients = [person.identity.kem_public_key for person in people]
        self.keyring: dict[str, Any] = {}
        self.epoch = 0
        # A keyring can only be rotated by somebody who can open it.
        self._witness = people[0]

    def create(self, *, by_peer: bool) -> None:
        """Make the keyring."""
        if by_peer:
            self.keyring = self._peer.call(
                "createKeyring", adder=self._theirs.as_adder, recipients=self.recipients
            )
        else:
            self.keyring = create_keyring(
                self.recipients,
                scope=self._scope,
                adder=self._ours.identity,
                now_s=NOW_S,
                randomness=self._rng.randbytes,
            )
        self.epoch += 1

    def rotate(self, *, by_peer: bool) -> None:
        """Put a new content key in use, for the recipients of now."""
        if by_peer:
            self.keyring = self._peer.call(
                "rotateKeyring",
                keyring=self.keyring,
                adder=self._theirs.as_adder,
                recipients=self.recipients,
            )
        else:
            self.keyring = rotate_keyring(
                self.keyring,
                self.open_for(self._witness),
                self.recipients,
                scope=self._scope,
                adder=self._ours.identity,
                now_s=NOW_S,
                randomness=self._rng.randbytes,
            )
        self.epoch += 1

    def open_for(self, person: Person) -> ContentKeys:
        """What our side reads in the keyring for somebody."""
        return open_keyring(
            self.keyring,
            recipient=person.identity,
            trusted_adders=self._adders,
            verify=verify_bytes,
            scope=self._scope,
            epoch_min=self.epoch,
            trust_unbound=True,
        )

    def sealing_for(self, person: Person) -> dict[str, Any]:
        """What the peer needs to read the keyring for somebody."""
        return {
            "keyring": self.keyring,
            "kemPublic": person.identity.kem_public_key,
            "kemPrivate": person.kem_private_key,
            "trustedAdders": self._adders,
        }

    @property
    def _adders(self) -> list[str]:
        return [self._ours.public_key, self._theirs.public_key]


class Story(NamedTuple):
    """What a replica needs to know of its scenario."""

    peer: NodePeer
    place: Place
    document_key: str
    keys: Keys | None
    writers: list[str]
    roles: list[str]
    randomness: Callable[[int], bytes]


class OurReplica:
    """A document of ours in a scenario."""

    def __init__(self, story: Story, person: Person, *, chained: bool = True) -> None:
        self.person = person
        self.events: list[Event] = []
        self._story = story
        self._encryptor: StarfishEncryptor | None = None
        self._epoch = 0
        self._chained = chained

    async def open(
        self,
        *,
        posture: Posture = "trust-retain-tail",
        nonce: str | None = None,
        wire: Literal["packed", "starfish"] = "starfish",
        marks: Marks | None = None,
    ) -> OurReplica:
        """Open it; whatever it rejects raises."""
        story = self._story
        if story.keys is not None:
            self._encryptor = StarfishEncryptor(
                story.keys.open_for(self.person), randomness=story.randomness
            )
            self._epoch = story.keys.epoch
        log, snapshots = await story.place.ports(story.document_key, self.person)
        self._log = FaultyLog(log)
        self.document = WalDocument(
            story.document_key,
            transport=self._log,
            identity=self.person.identity,
            writers=story.writers,
            snapshot_role=story.roles,
            encryptor=self._encryptor,
            snapshot_store=snapshots,
            session_nonce=nonce,
            posture=posture,
            wire=wire,
            chained=self._chained,
            marks=marks,
            on_event=self.events.append,
        )
        await self.document.open()
        return self

    def materialize(self) -> dict[str, Any]:
        """The document as JSON."""
        return self.document.materialize()

    def edit(self, *edits: Edit) -> None:
        """Make edits, each given as the peer's name of the method and its arguments."""
        for name, *args in edits:
            METHODS[name](self.document, *args)

    async def commit(self, fault: str | None = None) -> None:
        """Commit; a fault is met by the first element that is sent."""
        self._log.fault = fault
        try:
            await self.document.commit()
        except TransportError:
            assert fault is not None
        self._log.fault = None

    async def pull(self) -> None:
        """Read to the end of the log."""
        await self.document.pull()

    async def snapshot(self) -> None:
        """Sign a snapshot with all keys at hand."""
        await self.take_keys()
        await self.document.snapshot()

    async def act(self, act: Act) -> None:
        """Do one of `ACTS`."""
        match act:
            case "commit":
                await self.commit()
            case "lost" | "refused":
                await self.commit(act)
            case "pull":
                await self.pull()
            case "snapshot":
                await self.snapshot()

    async def take_keys(self) -> None:
        """Use the newest keyring."""
        keys = self._story.keys
        if keys is not None and self._encryptor is not None and self._epoch < keys.epoch:
            self._epoch = keys.epoch
            self._encryptor.adopt(keys.open_for(self.person))
            await self.document.retry_unreadable()

    async def settle(self) -> None:
        """Send whatever waits, and read to the end."""
        await self.take_keys()
        await self.commit()
        await self.pull()

    def seen(self) -> tuple[str, str, dict[str, str]]:
        """Canonical state, materialised document and texts."""
        crdt = self.document._content.crdt
        texts = {name: as_utf16(crdt.text(name)) for name in crdt.list_names()}
        state = crdt.canonical_state(maps=False)
        return state, canonical_text(crdt.materialize()), texts

    def check_calm(self) -> None:
        """Nothing was reported, and nothing is missing or waiting."""
        assert self.events == []
        assert self.document.detected_gaps() == []
        assert self.document.rejected() == []
        assert self.document.unreadable == 0
        assert self.document.unsent == 0


class NodeReplica:
    """A document of the peer in a scenario."""

    def __init__(self, story: Story, person: Person, handle: str) -> None:
        self.person = person
        self.document = NodeDocument(story.peer, handle)
        self._story = story
        self._epoch = 0

    async def open(
        self,
        *,
        posture: Posture = "trust-retain-tail",
        nonce: str | None = None,
        on_author_error: Literal["throw", "skip"] = "throw",
    ) -> NodeReplica:
        """Open it; without a nonce the package takes its own, "0"."""
        story = self._story
        options: dict[str, Any] = {"posture": posture, "onAuthorError": on_author_error}
        options |= story.place.peer_options(self.person)
        if nonce is not None:
            options["sessionNonce"] = nonce
        if story.keys is not None:
            options["sealing"] = story.keys.sealing_for(self.person)
            self._epoch = story.keys.epoch
        self.document.open(
            key=story.document_key,
            publicKey=self.person.public_key,
            privateKey=self.person.private_key,
            writers=story.writers,
            roles=story.roles,
            **options,
        )
        return self

    def materialize(self) -> dict[str, Any]:
        """The document as JSON."""
        return self.document.materialize()

    def edit(self, *edits: Edit) -> None:
        """Make edits, each given as the name of the method and its arguments."""
        self.document.edit(*edits)

    async def commit(self, fault: str | None = None) -> None:
        """Commit; after a fault the package keeps the ops and its seq for the next time."""
        self._commit(fault)

    def _commit(self, fault: str | None) -> None:
        try:
            self.document.commit(fault)
        except TransportError:
            assert fault is not None

    async def pull(self) -> None:
        """Read to the end of the log; the package cannot set aside what it cannot open."""
        await self.take_keys()
        self.document.pull()

    async def snapshot(self) -> None:
        """Sign a snapshot."""
        await self.take_keys()
        self.document.snapshot()

    def act(self, act: Act) -> None:
        """Do one of `ACTS`, with the keys that it has."""
        match act:
            case "commit":
                self._commit(None)
            case "lost" | "refused":
                self._commit(act)
            case "pull":
                self.document.pull()
            case "snapshot":
                self.document.snapshot()

    async def take_keys(self) -> None:
        """Use the newest keyring."""
        keys = self._story.keys
        if keys is not None and self._epoch < keys.epoch:
            self._epoch = keys.epoch
            self.document.rekey(keys.sealing_for(self.person))

    async def settle(self) -> None:
        """Send whatever waits, and read to the end."""
        await self.take_keys()
        await self.commit()
        await self.pull()

    def seen(self) -> tuple[str, str, dict[str, str]]:
        """Canonical state, materialised document and texts."""
        told = self.document.describe()
        return told["canonical"], told["materialize"], dict(told["texts"])

    def check_calm(self) -> None:
        """Nothing is missing."""
        assert self.document.describe()["gaps"] == []


Replica = OurReplica | NodeReplica


def check_agreement(replicas: list[Replica]) -> None:
    """Everybody sees the same, byte for byte, and nobody has found fault."""
    expected = replicas[0].seen()
    for replica in replicas:
        replica.check_calm()
        assert replica.seen() == expected


def _call_each(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


def as_utf16(text: str) -> str:
    """JavaScript's text: two surrogates that meet are one character there."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def random_edits(rng: random.Random, shown: dict[str, Any]) -> list[Edit]:
    """One to three edits of a document that reads as `shown`."""
    return [_random_edit(rng, shown) for _ in range(rng.randint(1, 3))]


def _random_edit(rng: random.Random, shown: dict[str, Any]) -> Edit:
    method = rng.choice(list(METHODS))
    name = rng.choice(LISTS)
    items = shown.get(name, [])
    text = rng.choice(TEXTS)
    letters = shown.get(text, [])
    match method:
        case "setField":
            return method, rng.choice(REGISTERS), rng.choice(VALUES)
        case "deleteField":
            return method, rng.choice(REGISTERS)
        case "insert":
            return method, name, rng.randint(-1, len(items) + 1), rng.choice(ITEMS)
        case "push":
            return method, name, rng.choice(ITEMS)
        case "removeAt":
            name, items = rng.choice([(name, items), (text, letters)])
            return method, name, rng.randint(0, len(items))
        case "insertText":
            return method, text, rng.randint(0, len(letters)), _word(rng)
        case "setText":
            return method, text, "".join(_edited(rng, letters, list(_word(rng))))
        case "setList":
            return method, name, _edited(rng, items, [rng.choice(ITEMS)])
        case _:
            return method, _updated(rng, shown)


def _word(rng: random.Random) -> str:
    return "".join(rng.choices(LETTERS, k=rng.randint(1, 6)))


def _edited(rng: random.Random, items: list[Any], new: list[Any]) -> list[Any]:
    start = rng.randint(0, len(items))
    end = min(len(items), start + rng.randint(0, 3))
    return [*items[:start], *new, *items[end:]]


def _updated(rng: random.Random, shown: dict[str, Any]) -> dict[str, Any]:
    wanted = {name: value for name, value in shown.items() if rng.random() < 0.9}
    wanted[rng.choice(REGISTERS)] = rng.choice(VALUES)
    name, text = rng.choice(LISTS), rng.choice(TEXTS)
    wanted[name] = _edited(rng, shown.get(name, []), [rng.choice(ITEMS)])
    wanted[text] = _edited(rng, shown.get(text, []), list(_word(rng)))
    return wanted


class Scenario:
    """One log, its writers, and what happens to them."""

    def __init__(self, peer: NodePeer, seed: int, place: Place | None = None) -> None:
        self.rng = rng = random.Random(f"interop {seed}")
        self.is_sealed = bool(seed & 1)
        self._is_keyring_theirs = bool(seed & 2)
        self._rotation = rng.randint(5, 15) if seed & 5 == 5 else None
        self._is_rotation_theirs = bool(seed & 8)
        # All of our elements are chained, none, or as it falls.
        self._chained = ([True], [False], [True, False])[seed % 3]
        self.ours = [Person(rng) for _ in range(rng.randint(1, 3))]
        self.theirs = [Person(rng) for _ in range(rng.randint(1, 2))]
        people = [*self.ours, *self.theirs]
        key = f"spaces/{seed}/doc"
        self.keys = Keys(peer, people, rng, key) if self.is_sealed else None
        writers = [person.public_key for person in people]
        roles = [self.ours[0].public_key, self.theirs[0].public_key]
        place = InPeer(peer) if place is None else place
        self.story = Story(peer, place, key, self.keys, writers, roles, rng.randbytes)
        self.replicas: list[Replica] = []
        self._opened = 0

    async def play(self) -> None:
        """Let everybody write, one after the other, then read to the end."""
        await self._begin()
        for step in range(self.rng.randint(20, 36)):
            if step == self._rotation:
                self._rotate()
            await self._step()
        await self._end()

    async def play_at_once(self) -> None:
        """Let everybody write at the same time, on a server, then read to the end."""
        await self._begin()
        rounds = self.rng.randint(6, 10)
        for number in range(rounds):
            if self._rotation is not None and number == rounds // 2:
                self._rotate()
            await self._round()
        await self._end()

    async def elements(self) -> list[Body]:
        """All that is in the log."""
        log, _ = await self.story.place.ports(self.story.document_key, self.ours[0])
        return await elements_of(log, self.story.document_key)

    async def read_late(self) -> None:
        """Let a reader of each posture come late to each side."""
        for posture in POSTURES:
            ours = await self.open_ours(self.rng.choice(self.ours), posture)
            theirs = await self.open_theirs(self.rng.choice(self.theirs), posture)
            if posture == "re-derive":
                # Both sides come to the same verdict about whatever snapshot there is.
                verdict = ours.document.snapshot_verified
                assert verdict == theirs.document.describe()["snapshotVerified"]
                assert verdict is not False
            self.replicas += [ours, theirs]

    async def open_ours(self, person: Person, posture: Posture) -> OurReplica:
        """A new session of ours, on a device that may have read the log before."""
        replica = OurReplica(self.story, person, chained=self.rng.choice(self._chained))
        before = [each.document.marks for each in self.replicas if isinstance(each, OurReplica)]
        marks = self.rng.choice([None, *before])
        return await replica.open(posture=posture, nonce=self._nonce(), marks=marks)

    async def open_theirs(
        self, person: Person, posture: Posture, *, nonce: str | None = None
    ) -> NodeReplica:
        """A new session of the peer's."""
        self._opened += 1
        replica = NodeReplica(self.story, person, f"{self.story.document_key} {self._opened}")
        return await replica.open(posture=posture, nonce=nonce)

    async def _begin(self) -> None:
        if self.keys is not None:
            self.keys.create(by_peer=self._is_keyring_theirs)
        await self._gather()

    def _rotate(self) -> None:
        if self.keys is not None:
            self.keys.rotate(by_peer=self._is_rotation_theirs)

    async def _end(self) -> None:
        """Without any fault: whatever has happened, everybody reads to the end, and can write."""
        await self._settle()
        # All have counted equally far, so that these have one counter, and replicas break the tie.
        for number, replica in enumerate(self.replicas):
            replica.edit(("setField", "title", number), ("insert", "todo", 0, number))
        await self._settle()

    async def _settle(self) -> None:
        """Let everybody send what waits, and then read to the end: nothing is sent again."""
        for replica in self.replicas:
            await replica.settle()
        written = len(await self.elements())
        for replica in self.replicas:
            await replica.settle()
        assert len(await self.elements()) == written

    async def _round(self) -> None:
        """Each edits what it sees; then all is under way at once, with no order but chance."""
        ours: list[Awaitable[None]] = []
        theirs: list[Callable[[], None]] = []
        may_sign = True
        for replica in self.replicas:
            replica.edit(*random_edits(self.rng, replica.materialize()))
            signs = may_sign and replica.person.public_key in self.story.roles
            act = self.rng.choices(ACTS, (6, 1, 1, 2, 2 * signs))[0]
            may_sign &= act != "snapshot" or self.story.place.keeps_newest
            if isinstance(replica, OurReplica):
                ours.append(replica.act(act))
            else:
                await replica.take_keys()
                theirs.append(partial(replica.act, act))
        # The peer answers one call after the other.
        await asyncio.gather(*ours, asyncio.to_thread(_call_each, theirs))

    async def _gather(self) -> None:
        """Open the first session of everybody, and maybe second ones."""
        rng = self.rng
        for person in self.ours:
            self.replicas.append(await self.open_ours(person, "trust-retain-tail"))
        for person in self.theirs:
            # The nonce "0" is what deployed peers use; here it is never used again.
            nonce = rng.choice([None, self._nonce()])
            self.replicas.append(await self.open_theirs(person, "trust", nonce=nonce))
        if rng.random() < 0.5:
            await self._open_late(self.theirs, theirs=True)
        if rng.random() < 0.3:
            await self._open_late(self.ours, theirs=False)
        if rng.random() < 0.3:
            await self._open_late([*self.ours, *self.theirs], theirs=rng.random() < 0.5)

    async def _open_late(self, people: list[Person], *, theirs: bool) -> None:
        person, posture = self.rng.choice(people), self.rng.choice(POSTURES)
        if theirs:
            self.replicas.append(await self.open_theirs(person, posture, nonce=self._nonce()))
        else:
            self.replicas.append(await self.open_ours(person, posture))

    async def _step(self) -> None:
        rng, replica = self.rng, self.rng.choice(self.replicas)
        match rng.choices(
            ("edit", "pull", "commit", "fault", "keys", "snapshot", "repeat", "late"),
            (16, 20, 30, 8, 4, 8, 5, 8),
        )[0]:
            case "edit":
                replica.edit(*random_edits(rng, replica.materialize()))
            case "pull":
                await replica.pull()
            case "commit":
                replica.edit(*random_edits(rng, replica.materialize()))
                await replica.commit()
            case "fault":
                replica.edit(*random_edits(rng, replica.materialize()))
                await replica.commit(rng.choice(["lost", "refused"]))
            case "keys":
                await replica.take_keys()
            case "snapshot":
                roles = [
                    each for each in self.replicas if each.person.public_key in self.story.roles
                ]
                await rng.choice(roles).snapshot()
            case "repeat":
                await self._repeat()
            case "late":
                if len(self.replicas) < 9:
                    await self._open_late([*self.ours, *self.theirs], theirs=rng.random() < 0.5)

    async def _repeat(self) -> None:
        """Have an author store an element once more."""
        if elements := await self.elements():
            body = self.rng.choice(elements)
            people = [*self.ours, *self.theirs]
            author = next(person for person in people if person.public_key == body.author)
            log, _ = await self.story.place.ports(self.story.document_key, author)
            await log.append(self.story.document_key, body)

    def _nonce(self) -> str:
        return self.rng.randbytes(16).hex()
