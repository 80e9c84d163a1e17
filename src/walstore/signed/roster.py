"""Rosters: what the owner of a document says about who may read and write it.

    {"v": 1, "document": key, "owner": key, "version": n, "at": ms,
     "members": {key: {"roles": ["read", "write"], "kem": key}},
     "revoked": {key: {session: [seq, link, counter]}}, "signature"}

- It is signed by the owner: `walstore-roster-v1\\n` and the canonical text of the other members.
- A reader has pinned the owner, and believes no other key, no other document and no lower version
  than it has seen; of two rosters with one version it keeps the one that it has.
- Each change counts the version up by one, and `at` rises with it, whatever the clock says.
- The owner is no member: it may do everything, for ever.
- Of somebody who may write no longer, what the owner had read by then still counts: the elements up
  to a seq in each session, and nothing of other sessions. An empty session stands for the elements
  of peers that count by author. No clock is asked, so all readers agree.
- A seq can be used again, a link cannot: an element counts only if a link that is named is its own,
  or leads back to it. Links are named of those sessions that no other goes on from. Of peers
  without sessions, and in older rosters, nothing but the seq is named.
- Where an author's elements are no unbroken chain, all its ends are named, and the links that lead
  to what the owner has not read: that does not count, and nobody waits for it. Such a session is
  written `[seq, link, counter, [[seq, link], …], [link, …]]`.
- Where there is no room for all that counts, whoever of the revoked takes most of it gives way: who
  has opened many sessions fills a roster, and that must not cost others what they wrote.
- Whoever is made a writer again is trusted again, with everything that was written meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from walstore.canon import INTEGER_MAX, Json, canonical_text, parse
from walstore.errors import MalformedError, PeerError, UsageError
from walstore.signed.card import Card, is_kem_key
from walstore.signed.encoding import decode_hex, decode_public_key
from walstore.signed.grant import Role
from walstore.signed.identity import Identity
from walstore.signed.statement import is_signed_by, sign_statement

Part = TypeVar("Part")

# The text of a roster, in bytes: what a relay keeps as a record.
ROSTER_BYTES_MAX = 256 * 2**10

# Session nonces are 32 hex digits; others' are free text, but not without end.
_SESSION_SIZE_MAX = 128

_DOMAIN = b"walstore-roster-v1\n"
_VERSION = 1
_MEMBERS = {"v", "document", "owner", "version", "at", "members", "revoked", "signature"}
_ROLES = frozenset({Role.READ, Role.WRITE, Role.SNAPSHOT})


class RosterRefusedError(PeerError):
    """A roster is malformed, or is not the owner's word about this document.

    Attributes:
        reason: Why.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the roster is refused: {reason}")
        self.reason = reason


class RosterRollbackError(RosterRefusedError):
    """A roster is older than one that was seen before, or is gone.

    Attributes:
        version: Its version; 0 if there is none.
        version_min: The lowest one that is acceptable.
    """

    def __init__(self, *, version: int, version_min: int) -> None:
        super().__init__(f"its version is {version}, but {version_min} was seen before")
        self.version = version
        self.version_min = version_min


class RosterTooLargeError(UsageError):
    """There is no room in the roster for another member."""

    def __init__(self) -> None:
        super().__init__(f"the roster would exceed {ROSTER_BYTES_MAX} bytes")


class MemberRefusedError(UsageError):
    """Somebody cannot be made a member like this.

    Attributes:
        reason: Why.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"not a member: {reason}")
        self.reason = reason


class Torn(NamedTuple):
    """What else there is to know of a session of an author whose elements are no unbroken chain.

    Attributes:
        ends: Further elements that nothing goes on from, each with its seq and its link.
        lost: The links that its elements go on from and that the owner has not read: they do not
            count, and may have been made up.
    """

    ends: tuple[tuple[int, str], ...] = ()
    lost: tuple[str, ...] = ()


class Counted(NamedTuple):
    """What counts of one session of somebody who may write no longer.

    Attributes:
        seq: The highest seq.
        link: The link of the element with it; None where another session goes on from there, whose
            link leads back to it, and of a count by author.
        counter: The highest counter of the list elements that the session has inserted.
        torn: What else tells, where the author's elements are no unbroken chain; then seqs may be
            left out.
    """

    seq: int
    link: str | None
    counter: int
    torn: Torn | None = None

    def named(self) -> Iterator[tuple[int, str]]:
        """The seqs and links of all elements that are named."""
        if self.link is not None:
            yield self.seq, self.link
        if self.torn is not None:
            yield from self.torn.ends


# What counts, by session; older rosters name nothing but the seq.
Counts: TypeAlias = Mapping[str, int | Counted]


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody whom the owner has invited.

    Attributes:
        roles: What they may do; reading always.
        kem_public_key: The X25519 key that content keys are wrapped for.
    """

    roles: frozenset[Role]
    kem_public_key: str


@dataclass(frozen=True, slots=True)
class Roster:
    """A roster whose signature was checked.

    Attributes:
        document: The document key.
        owner: Who has signed it.
        version: Counts its changes.
        at_ms: When it was signed, by the owner's clock; higher than of the version before.
        members: Those who were invited, by public key.
        revoked: Those who may no longer write, by public key: what counts of them, by session.
        text: Its canonical text.
    """

    document: str
    owner: str
    version: int
    at_ms: int
    members: Mapping[str, Member]
    revoked: Mapping[str, Counts]
    text: str

    def may_read(self, key: str) -> bool:
        """Whether a key may read."""
        return self._holds(Role.READ, key)

    def may_write(self, key: str) -> bool:
        """Whether a key may write from now on."""
        return self._holds(Role.WRITE, key)

    def is_producer(self, key: str) -> bool:
        """Whether a key may sign snapshots."""
        return self._holds(Role.SNAPSHOT, key)

    def counted_of(self, key: str) -> Counts | None:
        """What still counts of a key that may no longer write; None if nothing is cut off."""
        return self.revoked.get(key)

    def _holds(self, role: Role, key: str) -> bool:
        member = self.members.get(key)
        return key == self.owner or (member is not None and role in member.roles)

    def with_member(
        self,
        identity: Identity,
        card: Card,
        roles: Iterable[str],
        *,
        counted: Counts,
        now_ms: int,
    ) -> Roster:
        """The roster with somebody in it, or with other roles for them; itself if that is so.

        Args:
            identity: The owner.
            card: Who it is.
            roles: What they may do; reading is always among it.
            counted: What counts of what they wrote, if they may write no longer.
            now_ms: The time.

        Raises:
            MemberRefusedError: They are the owner, a key is unusable, or a role is none that can be
                given here.
            RosterTooLargeError: There is no room, though nothing of the revoked counted.
        """
        member = Member(read_roles(roles), card.kem_public_key)
        if card.public_key == self.owner:
            raise MemberRefusedError("the owner may do everything already")
        if decode_public_key(card.public_key) is None or not is_kem_key(card.kem_public_key):
            raise MemberRefusedError("a key on the card is not one that can be used")
        revoked = dict(self.revoked)
        if Role.WRITE in member.roles:
            revoked.pop(card.public_key, None)
        elif self.may_write(card.public_key):
            revoked[card.public_key] = counted
        members = {**self.members, card.public_key: member}
        return self._succeeded(identity, members, revoked, now_ms)

    def without(self, identity: Identity, key: str, *, counted: Counts, now_ms: int) -> Roster:
        """The roster without a key; itself if it was revoked before.

        Args:
            identity: The owner.
            key: Whose roles end.
            counted: What counts of them, by session.
            now_ms: The time.

        Raises:
            MemberRefusedError: The key is no member's.
            RosterTooLargeError: There is no room, though nothing of the revoked counted.
        """
        if key not in self.members and key not in self.revoked:
            raise MemberRefusedError("only a member can be revoked, and the owner is none")
        members = {each: member for each, member in self.members.items() if each != key}
        revoked = {**self.revoked, key: self.revoked.get(key, counted)}
        return self._succeeded(identity, members, revoked, now_ms)

    def merged(self, identity: Identity, other: Roster, *, now_ms: int) -> Roster:
        """The roster that follows on two of one version, from two devices of the owner's.

        Nobody is given more than by each of the two that names them.

        Args:
            identity: The owner.
            other: The other one.
            now_ms: The time.

        Raises:
            RosterTooLargeError: There is no room, though nothing of the revoked counted.
        """
        both = (self, other)
        members: dict[str, Member] = {}
        for key, member in {**other.members, **self.members}.items():
            if any(key in each.revoked and key not in each.members for each in both):
                continue
            given = [each.members[key].roles for each in both if key in each.members]
            members[key] = replace(member, roles=frozenset.intersection(*given))
        revoked = {
            key: counts
            for key, counts in {**other.revoked, **self.revoked}.items()
            if key not in members or Role.WRITE not in members[key].roles
        }
        now_ms = max(now_ms, other.at_ms + 1)
        return self._succeeded(identity, members, revoked, now_ms, is_anew=True)

    def _succeeded(
        self,
        identity: Identity,
        members: Mapping[str, Member],
        revoked: Mapping[str, Counts],
        now_ms: int,
        *,
        is_anew: bool = False,
    ) -> Roster:
        if members == self.members and revoked == self.revoked and not is_anew:
            return self
        kept = dict(revoked)
        while True:
            try:
                return _signed(
                    identity,
                    document=self.document,
                    version=self.version + 1,
                    at_ms=max(now_ms, self.at_ms + 1),
                    members=members,
                    revoked=kept,
                )
            except RosterTooLargeError:
                most = max(kept, key=lambda key: (_size_of(kept[key]), key), default=None)
                if most is None or not kept[most]:
                    raise
                kept[most] = _fewer(kept[most])


def new_roster(identity: Identity, document: str, *, now_ms: int) -> Roster:
    """The first roster of a document: nobody but its owner."""
    return _signed(
        identity, document=document, version=1, at_ms=max(now_ms, 0), members={}, revoked={}
    )


def read_roles(roles: Iterable[str]) -> frozenset[Role]:
    """The roles that a member can hold; reading is always among them.

    Raises:
        MemberRefusedError: One is not a role, or only an operator can give it.
    """
    named = {str(role) for role in roles}
    if unknown := named - _ROLES:
        raise MemberRefusedError(f"{min(unknown)!r} is not read, write or snapshot")
    return frozenset(Role(name) for name in named | {Role.READ})


def read_roster(text: str, *, document: str, owner: str) -> Roster:
    """The roster that a received text is.

    Args:
        text: What a relay keeps.
        document: The document that it must be about.
        owner: The key that must have signed it.

    Raises:
        RosterRefusedError: It is malformed, about another document, or somebody else's.
    """
    members = _read_members(text)
    if members["document"] != document:
        raise RosterRefusedError("it is that of another document")
    if members["owner"] != owner:
        raise RosterRefusedError("it names another owner")
    if not is_signed_by(owner, _DOMAIN, members):
        raise RosterRefusedError("the signature is not the owner's")
    # Even the owner's word has to have a shape: a reader must not trip over it.
    return Roster(
        document=document,
        owner=owner,
        version=_integer(members["version"], "`version`", 1),
        at_ms=_integer(members["at"], "`at`", 0),
        members=_read_each(members["members"], "`members`", owner, _read_member),
        revoked=_read_each(members["revoked"], "`revoked`", owner, _read_counts),
        text=text,
    )


def check_succession(known: Roster | None, new: Roster) -> None:
    """Check that a roster does not fall behind one that was seen before.

    Raises:
        RosterRollbackError: It is older.
        RosterRefusedError: It is another one of the same version.
    """
    if known is None:
        return
    if new.version < known.version:
        raise RosterRollbackError(version=new.version, version_min=known.version)
    if new.version == known.version and new.text != known.text:
        raise RosterRefusedError(f"the owner signed two rosters of version {new.version}")


def _signed(
    identity: Identity,
    *,
    document: str,
    version: int,
    at_ms: int,
    members: Mapping[str, Member],
    revoked: Mapping[str, Counts],
) -> Roster:
    statement = {
        "v": _VERSION,
        "document": document,
        "owner": identity.public_key,
        "version": version,
        "at": at_ms,
        "members": {
            key: {
                "roles": sorted(role.value for role in member.roles),
                "kem": member.kem_public_key,
            }
            for key, member in members.items()
        },
        "revoked": {key: counts_json(counted) for key, counted in revoked.items()},
    }
    text = canonical_text(sign_statement(_DOMAIN, statement, identity))
    if len(text.encode()) > ROSTER_BYTES_MAX:
        raise RosterTooLargeError
    return read_roster(text, document=document, owner=identity.public_key)


def _read_members(text: str) -> dict[str, Any]:
    if len(text) > ROSTER_BYTES_MAX:
        raise RosterRefusedError("it is too large")
    try:
        members = parse(text)
    except MalformedError as error:
        raise RosterRefusedError("it is not JSON") from error
    if type(members) is not dict or members.keys() != _MEMBERS:
        raise RosterRefusedError("it is not a roster")
    if type(members["v"]) is not int or members["v"] != _VERSION:
        raise RosterRefusedError(f"it is not a roster of version {_VERSION}")
    # One spelling, so that two rosters of one version can be told apart by their text.
    if canonical_text(members) != text:
        raise RosterRefusedError("it is not canonical")
    return members


def _read_each(
    value: object, what: str, owner: str, read: Callable[[object], Part]
) -> Mapping[str, Part]:
    if type(value) is not dict:
        raise RosterRefusedError(f"{what} is not an object")
    for key in value:
        if decode_public_key(key) is None or key == owner:
            raise RosterRefusedError(f"{what} names something that is no member's key")
    return MappingProxyType({key: read(each) for key, each in value.items()})


def _read_member(value: object) -> Member:
    if type(value) is not dict or value.keys() != {"roles", "kem"}:
        raise RosterRefusedError("a member is malformed")
    roles, kem = value["roles"], value["kem"]
    if not _is_list_of_roles(roles) or decode_hex(kem) is None:
        raise RosterRefusedError("a member is malformed")
    return Member(frozenset(Role(name) for name in roles), kem)


def _is_list_of_roles(value: object) -> bool:
    if type(value) is not list or not all(type(name) is str for name in value):
        return False
    return value == sorted(set(value)) and Role.READ in value and _ROLES.issuperset(value)


def _read_counts(value: object) -> Counts:
    if type(value) is not dict or not all(len(session) <= _SESSION_SIZE_MAX for session in value):
        raise RosterRefusedError("what counts of somebody is malformed")
    return MappingProxyType({session: _read_counted(each) for session, each in value.items()})


def _read_counted(value: object) -> int | Counted:
    if type(value) is not list:
        return _integer(value, "a seq", 0)
    if len(value) not in (3, 5) or not (value[1] is None or _is_link(value[1])):
        raise RosterRefusedError("what counts of a session is malformed")
    seq, link, counter, *rest = value
    torn = _read_torn(*rest) if rest else None
    return Counted(_integer(seq, "a seq", 0), link, _integer(counter, "a counter", 0), torn)


def _read_torn(ends: object, lost: object) -> Torn:
    if type(ends) is not list or type(lost) is not list or not all(map(_is_link, lost)):
        raise RosterRefusedError("what counts of a session is malformed")
    return Torn(tuple(map(_read_end, ends)), tuple(lost))


def _read_end(value: object) -> tuple[int, str]:
    if type(value) is not list or len(value) != 2 or not _is_link(value[1]):
        raise RosterRefusedError("what counts of a session is malformed")
    return _integer(value[0], "a seq", 1), value[1]


def _is_link(value: object) -> bool:
    return decode_hex(value) is not None


def _integer(value: object, what: str, smallest: int) -> int:
    if type(value) is not int or not smallest <= value <= INTEGER_MAX:
        raise RosterRefusedError(f"{what} is not an integer from {smallest} on")
    return value


def _size_of(counts: Counts) -> int:
    return len(canonical_text(counts_json(counts)))


def _fewer(counts: Counts) -> Counts:
    """What counts of somebody, but for an eighth of the sessions: those with the fewest elements.

    Those whose links lead to the others stay longest.
    """
    fullest = sorted(counts, key=lambda session: (*_worth(counts[session]), session))
    return {session: counts[session] for session in fullest[: len(counts) * 7 // 8]}


def _worth(counted: int | Counted) -> tuple[bool, int]:
    is_linked = isinstance(counted, Counted) and counted.link is not None
    return not is_linked, -seq_of(counted)


def seq_of(counted: int | Counted) -> int:
    """The highest seq that counts of a session."""
    return counted if isinstance(counted, int) else counted.seq


def counts_json(counts: Counts) -> dict[str, Any]:
    """What counts of somebody, as it is written."""
    return {session: _counted_json(counted) for session, counted in counts.items()}


def _counted_json(counted: int | Counted) -> Json:
    if isinstance(counted, int):
        return counted
    *told, torn = counted
    return told if torn is None else [*told, [list(end) for end in torn.ends], list(torn.lost)]


def counted_in(seqs: Mapping[str, int], key: str) -> dict[str, int]:
    """What a reader has read of a key, by session, from its seqs by replica.

    Args:
        seqs: The highest seq by replica, `author:session`, or by author for peers without sessions.
        key: The author.
    """
    counted: dict[str, int] = {}
    for replica, seq in seqs.items():
        author, _, session = replica.partition(":")
        if author == key:
            counted[session] = max(seq, counted.get(session, 0))
    return counted
