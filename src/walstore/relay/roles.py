"""Who may do what with which documents: from the operator's file, and from signed grants.

- A role is held for one document key, or for every key that begins with a prefix. Both are
  compared as text, exactly as given: `notes/` does not cover `notes`, but `note` covers both.
- Entries add up: what any of them allows is allowed, and nothing else is.
- A grant holds for a document if its issuer holds `grant` for that document: in the file, or by
  the grant of somebody who does so in the file. It goes no deeper, so that every chain of trust
  ends at the operator after two steps. An issuer who loses the role takes his grants with him.
- Of the grants by one key for one prefix and one key the newest counts. Revoked and expired ones
  are kept, for an older one may be sent again by anybody.
- It is asked for every append, so the answers are remembered: until when a key holds a role.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any, Generic, TypeVar

from walstore.errors import UsageError
from walstore.signed.encoding import decode_public_key
from walstore.signed.grant import PREFIX_SIZE_MAX, Grant, Role
from walstore.wire.limits import TS_AHEAD_MS_MAX

__all__ = ["Role", "Roles", "RolesError"]

# A key that may give roles could otherwise fill the memory with those that it gives.
GRANTS_PER_ISSUER_MAX = 10_000

# Answers that are remembered; a peer that asks for ever new documents only makes us forget.
_ANSWERS_MAX = 2**16

_FOREVER = 2**63

# Holders that are not keys, and cannot be mistaken for one.
_ANY_KEY = "any key"
_NO_KEY = "no key"

_MEMBERS = ("key", "prefix", *(role.value for role in Role))

T = TypeVar("T")


class RolesError(UsageError):
    """The roles are not written as they should be.

    Attributes:
        source: The file.
        entry: Which `[[grant]]` it is, from 1; 0 if it is none of them.
        member: What in it.
        reason: What is wrong with that.
    """

    def __init__(self, source: str, entry: int, member: str, reason: str) -> None:
        place = f"[[grant]] {entry}: `{member}`" if entry else f"`{member}`"
        super().__init__(f"{source}: {place} {reason}")
        self.source = source
        self.entry = entry
        self.member = member
        self.reason = reason


class PrefixTable(Generic[T]):
    """Values by prefix; finds those whose prefix a text begins with."""

    __slots__ = ("_lengths", "_values")

    def __init__(self) -> None:
        self._values: dict[str, T] = {}
        self._lengths: list[int] = []

    def at(self, prefix: str, default: T) -> T:
        """The value of exactly this prefix, which becomes the default if it has none."""
        value = self._values.setdefault(prefix, default)
        if len(prefix) not in self._lengths:
            self._lengths = sorted([*self._lengths, len(prefix)])
        return value

    def get(self, prefix: str, default: T) -> T:
        """The value of exactly this prefix, or else the default."""
        return self._values.get(prefix, default)

    def covering(self, text: str) -> Iterator[T]:
        """The values of all prefixes of a text, shortest first."""
        for length in self._lengths:
            if length > len(text):
                return
            value = self._values.get(text[:length])
            if value is not None:
                yield value


_Holders = dict[Role, set[str]]


class Roles:
    """The roles of one relay."""

    def __init__(self) -> None:
        """Nobody may do anything."""
        self._exact: dict[str, _Holders] = {}
        self._prefixes: PrefixTable[_Holders] = PrefixTable()
        # By who gets it, by prefix, by who gives it.
        self._granted: dict[str, PrefixTable[dict[str, Grant]]] = {}
        self._issued: dict[str, int] = {}
        self._answers: dict[tuple[Role, str, str], int] = {}
        self._is_open = False

    @classmethod
    def open_to_all(cls) -> Roles:
        """Any proved key may do everything but give roles."""
        roles = cls()
        everyone: _Holders = {role: {_ANY_KEY} for role in Role if role is not Role.GRANT}
        roles._prefixes.at("", everyone)
        roles._is_open = True
        return roles

    @classmethod
    def from_table(cls, table: Mapping[str, Any], *, source: str) -> Roles:
        """The roles of a parsed TOML file.

        Args:
            table: What the file holds; `grant` is all that it may have.
            source: The name of the file, for messages.

        Raises:
            RolesError: Something in it is not as it should be.
        """
        for name in table:
            if name != "grant":
                raise RolesError(source, 0, name, "is unknown; roles are [[grant]] entries")
        entries = table.get("grant", [])
        if not _is_list_of(entries, dict):
            raise RolesError(source, 0, "grant", "is not written as [[grant]]")
        roles = cls()
        for number, entry in enumerate(entries, start=1):
            _Entry(source, number, entry).put_into(roles._exact, roles._prefixes)
        return roles

    def allows(self, role: Role, document: str, keys: Set[str], now_ms: int) -> bool:
        """Whether somebody who has proved these keys may do this with a document."""
        for key in keys:
            until_ms = self._answers.get((role, key, document))
            if until_ms is None:
                until_ms = self._remember(role, key, document)
            if now_ms < until_ms:
                return True
        return not keys and self._is_held(role, _NO_KEY, document)

    def allows_prefix(self, role: Role, prefix: str, keys: Set[str], now_ms: int) -> bool:
        """Whether they may do it with every document whose key begins with a prefix."""
        if any(now_ms < self._until(role, key, prefix, is_prefix=True) for key in keys):
            return True
        return not keys and self._is_held(role, _NO_KEY, prefix, is_prefix=True)

    def may_keep(self, document: str, keys: Set[str], now_ms: int) -> bool:
        """Whether they may replace the records of a document: who reads and writes it."""
        # Where nobody gives roles, readers alone decide whose records they believe.
        role = Role.WRITE if self._is_open else Role.GRANT
        return self.allows(role, document, keys, now_ms)

    def may_grant(self, grant: Grant, now_ms: int) -> bool:
        """Whether a grant is its issuer's to give, and may be kept.

        It is not if he holds no `grant` there, if he holds it by a grant and passes it on, if he
        has given too many, or if it is from so far in the future that it could not be revoked.
        """
        if grant.at_ms > now_ms + TS_AHEAD_MS_MAX:
            return False
        if self._current(grant) is not None:
            # What he has given he may always take back.
            if not grant.roles:
                return True
        elif self._issued.get(grant.by, 0) >= GRANTS_PER_ISSUER_MAX:
            return False
        given = Role.GRANT if Role.GRANT in grant.roles else Role.READ
        return now_ms < self._issuer_until(given, grant.by, grant.prefix, is_prefix=False)

    def add(self, grant: Grant) -> bool:
        """Let a grant count from now on; False if one that is as new or newer does."""
        current = self._current(grant)
        if current is None:
            self._issued[grant.by] = self._issued.get(grant.by, 0) + 1
        elif current.at_ms >= grant.at_ms:
            return False
        by_prefix = self._granted.setdefault(grant.to, PrefixTable())
        by_prefix.at(grant.prefix, {})[grant.by] = grant
        self._answers.clear()
        return True

    def _current(self, grant: Grant) -> Grant | None:
        by_prefix = self._granted.get(grant.to)
        return None if by_prefix is None else by_prefix.get(grant.prefix, {}).get(grant.by)

    def _remember(self, role: Role, key: str, document: str) -> int:
        if len(self._answers) >= _ANSWERS_MAX:
            self._answers.clear()
        until_ms = self._until(role, key, document, is_prefix=False)
        self._answers[role, key, document] = until_ms
        return until_ms

    def _until(self, role: Role, key: str, text: str, *, is_prefix: bool) -> int:
        """Until when a key holds a role, for a document or for all with a prefix."""
        if self._is_held(role, key, text, is_prefix=is_prefix):
            return _FOREVER
        by_prefix = self._granted.get(key)
        if by_prefix is None:
            return 0
        return max(
            (
                min(
                    _FOREVER if grant.expires_ms is None else grant.expires_ms,
                    self._issuer_until(role, grant.by, text, is_prefix=is_prefix),
                )
                for by_issuer in by_prefix.covering(text)
                for grant in by_issuer.values()
                if role in grant.roles and grant.covers(text, is_prefix=is_prefix)
            ),
            default=0,
        )

    def _issuer_until(self, given: Role, issuer: str, text: str, *, is_prefix: bool) -> int:
        if given is not Role.GRANT:
            return self._until(Role.GRANT, issuer, text, is_prefix=is_prefix)
        # Only who is in the file can make others givers: one level, and no chains.
        return _FOREVER if self._is_held(given, issuer, text, is_prefix=is_prefix) else 0

    def _is_held(self, role: Role, key: str, text: str, *, is_prefix: bool = False) -> bool:
        if not is_prefix and (exact := self._exact.get(text)) and _holds(exact, role, key):
            return True
        return any(_holds(holders, role, key) for holders in self._prefixes.covering(text))


def _holds(holders: _Holders, role: Role, key: str) -> bool:
    named = holders.get(role, ())
    return key in named or (key != _NO_KEY and _ANY_KEY in named)


class _Entry:
    """One `[[grant]]` of a file."""

    def __init__(self, source: str, number: int, entry: Mapping[str, Any]) -> None:
        self._source = source
        self._number = number
        self._entry = entry

    def put_into(self, exact: dict[str, _Holders], prefixes: PrefixTable[_Holders]) -> None:
        for name in self._entry:
            if name not in _MEMBERS:
                raise self._error(name, f"is unknown; known are {', '.join(_MEMBERS)}")
        holders = self._scope(exact, prefixes)
        for role in Role:
            if role.value in self._entry:
                holders.setdefault(role, set()).update(self._holders(role))

    def _scope(self, exact: dict[str, _Holders], prefixes: PrefixTable[_Holders]) -> _Holders:
        if "key" in self._entry and "prefix" in self._entry:
            raise self._error("prefix", "stands beside `key`; an entry has one of the two")
        if "key" in self._entry:
            return exact.setdefault(self._text("key", size_min=1), {})
        if "prefix" in self._entry:
            return prefixes.at(self._text("prefix", size_min=0), {})
        raise self._error("prefix", "is missing; an entry has a `key` or a `prefix`")

    def _text(self, name: str, *, size_min: int) -> str:
        text = self._entry[name]
        if type(text) is not str or not size_min <= len(text) <= PREFIX_SIZE_MAX:
            raise self._error(name, f"is not text of {size_min} to {PREFIX_SIZE_MAX} characters")
        if not text.isprintable():
            raise self._error(name, "has characters that no document key has")
        return text

    def _holders(self, role: Role) -> set[str]:
        named = self._entry[role.value]
        if named == "any" and role is Role.READ:
            return {_ANY_KEY, _NO_KEY}
        if named == "any" and role is Role.WRITE:
            return {_ANY_KEY}
        if not _is_list_of(named, str):
            wanted = ' nor "any"' if role in (Role.READ, Role.WRITE) else ""
            raise self._error(role.value, f"is not a list of public keys{wanted}")
        for key in named:
            if decode_public_key(key) is None:
                raise self._error(role.value, f"holds {key[:80]!r}, which is not a public key")
        return set(named)

    def _error(self, member: str, reason: str) -> RolesError:
        return RolesError(self._source, self._number, member, reason)


def _is_list_of(value: object, kind: type) -> bool:
    return type(value) is list and all(type(item) is kind for item in value)
