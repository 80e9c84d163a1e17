"""Who may write to which documents, as a folded archive enforces it.

- *any*: whoever the relay has let in. *keys*: listed keys, by the longest prefix that fits.
  *roster*: whom the owner of each document has named; see docs/sharing.md.
- The owner of a document is one of those that are configured for its prefix. Where none are, it is
  the one that its first roster names, and stays that one: a relay that lies from the first day
  on is believed then.
- A roster or a keyring that is refused leaves in force what was known before, and is told.
- What is known is kept with the state of the document, under the archive's own signature.
- An archive is a reader like others: the owner invites its identity, and the keyring gives it keys.
- Everything here can be pickled and sent to where documents are folded.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from walstore.canon import Json, canonical_bytes, parse
from walstore.document.document import ALLOW_ANY
from walstore.document.fold_rules import FoldRules
from walstore.document.revoked import Revoked, nobody_revoked
from walstore.errors import MalformedError, PeerError
from walstore.sealed.delegated import DelegatedEncryptor
from walstore.sealed.encryptor import Encryptor, PlainEncryptor, SealContext
from walstore.sealed.keys import ContentKeys, is_epoch
from walstore.sealed.outcomes import KeyringRefusedError, SealRejectedError, UnreadableError
from walstore.signed.grant import Role
from walstore.signed.identity import Identity
from walstore.signed.roster import (
    Roster,
    RosterRefusedError,
    check_succession,
    counts_json,
    read_roster,
)
from walstore.store.membership import Membership
from walstore.store.shared_keyring import SharedKeyring
from walstore.store.sharing_state import MemorySlots, SharingState, SharingStateError, load_state

ROSTER = "roster"
KEYRING = "keyring"

ByPrefix = Mapping[str, Collection[str]]


class Records(NamedTuple):
    """What a relay keeps beside the log of a document; None where it keeps nothing."""

    roster: str | None = None
    keyring: str | None = None


class Ruled(NamedTuple):
    """The rules for one document, and what was wrong with what they were to be made of."""

    rules: FoldRules
    problems: list[str]


@dataclass(frozen=True)
class Authority:
    """Who is believed.

    Attributes:
        writers: Anybody, those whom rosters name, or listed keys by prefix.
        producers: The keys whose snapshots count, by prefix; None for anybody. Where a roster says
            who may write, it also says whose snapshots count.
        owners: The keys that may own documents, by prefix; where none is listed, anybody may.
    """

    writers: Literal["any", "roster"] | ByPrefix = "any"
    producers: ByPrefix | None = None
    owners: ByPrefix = field(default_factory=dict)

    def has_owner(self, document: str) -> bool:
        """Whether the records of a document have a say: a roster, or a keyring."""
        return self.writers == "roster" or _longest(self.owners, document) is not None

    def rules(
        self, document: str, *, identity: Identity, records: Records, kept: Json = None
    ) -> Ruled:
        """The rules for one document.

        Args:
            document: Its key.
            identity: Who reads: the archive.
            records: What the relay keeps of it now; asked for only if it `has_owner`.
            kept: What was kept with the state of the document.
        """
        shared = _Shared(document, identity, _longest(self.owners, document), records, kept)
        if self.has_owner(document):
            shared.follow()
        encryptor, keys_id = shared.encryptor()
        rules = shared.by_roster() if self.writers == "roster" else self._by_keys(document)
        name = canonical_bytes([rules.writers_id, type(encryptor) is not PlainEncryptor])
        ruled = replace(
            rules,
            encryptor=encryptor,
            writers_id=sha256(name).hexdigest()[:32],
            keys_id=keys_id,
            sharing=shared.to_json(),
        )
        return Ruled(ruled, shared.problems)

    def _by_keys(self, document: str) -> FoldRules:
        writers = None if isinstance(self.writers, str) else self.writers
        may_write, may_sign = _listed(writers, document), _listed(self.producers, document)
        name = canonical_bytes([_sorted(may_write), _sorted(may_sign)]).decode()
        return FoldRules(
            document,
            is_writer=ALLOW_ANY if may_write is None else may_write.__contains__,
            is_producer=ALLOW_ANY if may_sign is None else may_sign.__contains__,
            writers_id=name,
        )


class LockedEncryptor:
    """A sealed document that this reader has no key of: everything waits for one."""

    __slots__ = ()

    def seal(self, plain: dict[str, Any] | bytes, context: SealContext) -> dict[str, Json]:
        """An archive seals nothing."""
        raise UnreadableError(0)

    def open(self, sealed: object, context: SealContext) -> dict[str, Json]:
        """Nothing can be opened, and what is not sealed is refused.

        Raises:
            UnreadableError: It is sealed.
            SealRejectedError: It is not.
        """
        if not isinstance(sealed, dict) or not ({"_sealed", "_encrypted"} & sealed.keys()):
            raise SealRejectedError
        epoch = sealed.get("_epoch")
        raise UnreadableError(epoch if is_epoch(epoch) else 0)


class _Shared:
    """What is known of the owner, the roster and the keys of one document."""

    def __init__(
        self,
        document: str,
        identity: Identity,
        owners: Collection[str] | None,
        records: Records,
        kept: Json,
    ) -> None:
        self.problems: list[str] = []
        self._document = document
        self._identity = identity
        self._owners = owners
        self._records = records
        self._state = self._read_kept(kept)
        self._roster = self._kept_roster()
        self._keys: ContentKeys | None = None

    def to_json(self) -> Json:
        """What is to be kept."""
        return None if self._state is None else self._state.to_json()

    def follow(self) -> None:
        """Take over what the relay keeps, as far as it is good."""
        if self._state is None:
            owner = self._owner()
            self._state = None if owner is None else SharingState(owner)
        for step in (self._follow_roster, self._follow_keyring):
            try:
                step()
            except PeerError as error:
                self.problems.append(str(error))

    def by_roster(self) -> FoldRules:
        """The rules that the roster says; without one the owner alone may write."""
        owner = "" if self._state is None else self._state.owner
        membership = Membership(owner, self._roster)
        revoked: Revoked = nobody_revoked
        if self._roster is not None and self._roster.revoked:
            revoked = membership.revoked
        return FoldRules(
            self._document,
            is_writer=membership.is_writer,
            is_producer=membership.is_producer,
            revoked=revoked,
            writers_id=canonical_bytes(_said(owner, self._roster)).decode(),
        )

    def encryptor(self) -> tuple[Encryptor, str]:
        """What opens the document, and the name of its keys."""
        if self._keys is not None:
            names = sorted(self._keys.key_ids.items())
            return (
                DelegatedEncryptor(self._keys, randomness=os.urandom),
                sha256(canonical_bytes([list(each) for each in names])).hexdigest()[:32],
            )
        is_sealed = self._state is not None and self._records.keyring is not None
        return (LockedEncryptor() if is_sealed else PlainEncryptor()), ""

    def _owner(self) -> str | None:
        """The owner: the only one there may be, or the one whom the first roster names."""
        if self._owners is not None and len(self._owners) == 1:
            return next(iter(self._owners))
        try:
            roster = parse(self._records.roster or "null")
        except MalformedError:
            return None
        owner = roster.get("owner") if isinstance(roster, dict) else None
        if not isinstance(owner, str) or not (self._owners is None or owner in self._owners):
            return None
        return owner

    def _follow_roster(self) -> None:
        text = self._records.roster
        if self._state is None:
            if text is not None:
                raise RosterRefusedError("its owner is nobody who may own the document")
            return
        if text is None and self._roster is not None:
            raise RosterRefusedError("it is gone")
        if text is None or (self._roster is not None and text == self._roster.text):
            return
        roster = read_roster(text, document=self._document, owner=self._state.owner)
        check_succession(self._roster, roster)
        self._roster = roster
        self._state = replace(self._state, roster=text)

    def _follow_keyring(self) -> None:
        state = self._state
        if state is None or (self._records.keyring is None and state.keyring is None):
            return
        keyring = SharedKeyring(
            self._document, identity=self._identity, owner=state.owner, randomness=os.urandom
        )
        try:
            opened = keyring.read(self._records.keyring, state)
        except KeyringRefusedError:
            if state.keyring is not None:
                self._keys = keyring.opened(state.keyring, state).keys
            raise
        self._keys, self._state = opened.keys, opened.kept_in(state)

    def _read_kept(self, kept: Json) -> SharingState | None:
        if kept is None:
            return None
        slots = MemorySlots()
        slots.put("sharing", kept)
        try:
            state = load_state(slots)
        except SharingStateError:
            return None
        # Whoever is configured has the last word.
        is_owner = state is not None and (self._owners is None or state.owner in self._owners)
        return state if is_owner else None

    def _kept_roster(self) -> Roster | None:
        state = self._state
        if state is None or state.roster is None:
            return None
        try:
            return read_roster(state.roster, document=self._document, owner=state.owner)
        except RosterRefusedError:
            return None


def _said(owner: str, roster: Roster | None) -> Json:
    """What a roster says of who may write; what it says of readers changes nothing here."""
    if roster is None:
        return [owner]
    members = roster.members.items()
    return [
        owner,
        sorted(key for key, member in members if Role.WRITE in member.roles),
        sorted(key for key, member in members if Role.SNAPSHOT in member.roles),
        {key: counts_json(counted) for key, counted in roster.revoked.items()},
    ]


def _listed(by_prefix: ByPrefix | None, document: str) -> frozenset[str] | None:
    """The keys for a document; None if nothing is listed at all, and anybody may."""
    return None if by_prefix is None else frozenset(_longest(by_prefix, document) or ())


def _longest(by_prefix: ByPrefix, document: str) -> Collection[str] | None:
    fitting = [prefix for prefix in by_prefix if document.startswith(prefix)]
    return by_prefix[max(fitting, key=len)] if fitting else None


def _sorted(keys: frozenset[str] | None) -> Json:
    return None if keys is None else list[Json](sorted(keys))
