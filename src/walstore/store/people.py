"""Who is at a document, as far as their messages prove it: no network, no clock of its own.

- Of a session the newest message counts. An older one is passed over, whoever passes it on; the
  same one again shows that somebody is still there, and makes them stay no longer.
- Nobody stays longer than `PRESENCE_MS_MAX` after their last message, by the receiver's clock.
  Whoever is alive renews it before that.
- Whoever the transport no longer names has left.
- What was said last by those who left is remembered for as long as it could be said again.
- What is not taken is counted by its reason, and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from walstore.sealed.encryptor import Encryptor
from walstore.store.presence_message import AGE_MS_MAX, Body, Drop, Header, read_body, read_header

# How long somebody is shown who says nothing.
PRESENCE_MS_MAX = 30_000

# Sessions of one author, and of all, that are remembered. Of an author who has more, the oldest
# is forgotten; nobody is forgotten for another's sake.
AUTHOR_SESSIONS_MAX = 32
SESSIONS_MAX = 4096


class SessionKey(NamedTuple):
    """One session of one author."""

    author: str
    session: str


@dataclass(slots=True)
class _Known:
    """The last message of a session, verified."""

    mark: tuple[int, int]
    body: Body
    heard_ms: int


class People:
    """The others at one document."""

    def __init__(
        self,
        document_key: str,
        *,
        me: SessionKey,
        encryptor: Encryptor,
        is_member: Callable[[str], bool],
    ) -> None:
        """Begin with nobody.

        Args:
            document_key: The document.
            me: The session here, which is none of the others.
            encryptor: Opens what the others say.
            is_member: Whether an author may be here.
        """
        self.dropped: Counter[Drop] = Counter()
        self._document_key = document_key
        self._me = me
        self._encryptor = encryptor
        self._is_member = is_member
        self._known: dict[SessionKey, _Known] = {}
        self._here: set[SessionKey] = set()
        # What each connection said last and whose it is, so that nothing is verified twice.
        self._judged: dict[str, tuple[object, SessionKey | None]] = {}

    def take(self, payloads: Mapping[str, object], *, now_ms: int, wall_ms: int) -> None:
        """Take what everybody who is connected says by now.

        Args:
            payloads: What they say, by the name of their connection.
            now_ms: The time of a clock that never goes back.
            wall_ms: The time in milliseconds since 1970.
        """
        self._forget(wall_ms)
        here: set[SessionKey] = set()
        judged: dict[str, tuple[object, SessionKey | None]] = {}
        for connection, payload in payloads.items():
            before = self._judged.get(connection)
            if before is not None and before[0] is payload:
                found: SessionKey | Drop | None = before[1]
            else:
                found = self._judge(payload, now_ms, wall_ms)
            if isinstance(found, Drop):
                self.dropped[found] += 1
                if found in (Drop.UNREADABLE, Drop.STRANGER):
                    # A key may come, or they be invited: then it is to be looked at again.
                    continue
                found = None
            judged[connection] = payload, found
            if found is not None:
                here.add(found)
        self._here, self._judged = here, judged

    def here(self, now_ms: int) -> dict[SessionKey, Body]:
        """What each of the others said last, those who have been here longest first."""
        return {
            key: known.body
            for key, known in self._known.items()
            if key in self._here
            and now_ms - known.heard_ms < PRESENCE_MS_MAX
            # They may have been revoked since.
            and self._is_member(key.author)
        }

    def expiry_ms(self, now_ms: int) -> int | None:
        """When the next one of them will have said nothing for too long; None for nobody."""
        times = [known.heard_ms for key, known in self._known.items() if key in self._here]
        ends = [heard_ms + PRESENCE_MS_MAX for heard_ms in times]
        return min([end for end in ends if end > now_ms], default=None)

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _judge(self, payload: object, now_ms: int, wall_ms: int) -> SessionKey | Drop | None:
        """Whose message it is, or why it is not taken; None for one's own."""
        header = read_header(payload)
        if isinstance(header, Drop):
            return header
        key = SessionKey(header.author, header.session)
        if key == self._me:
            return None
        if not self._is_member(header.author):
            return Drop.STRANGER
        if abs(wall_ms - header.at_ms) > AGE_MS_MAX:
            return Drop.STALE
        known = self._known.get(key)
        if known is not None and header.mark < known.mark:
            return Drop.OLD
        body = read_body(header, self._document_key, self._encryptor)
        if isinstance(body, Drop):
            return body
        if known is not None and header.mark == known.mark:
            return key
        return self._learn(key, header, body, now_ms)

    def _learn(self, key: SessionKey, header: Header, body: Body, now_ms: int) -> SessionKey | Drop:
        known = self._known.get(key)
        if known is not None:
            known.mark, known.body, known.heard_ms = header.mark, body, now_ms
            return key
        theirs = [each for each in self._known if each.author == key.author]
        if len(theirs) >= AUTHOR_SESSIONS_MAX:
            del self._known[min(theirs, key=lambda each: self._known[each].mark)]
        if len(self._known) >= SESSIONS_MAX:
            return Drop.CROWDED
        self._known[key] = _Known(header.mark, body, now_ms)
        return key

    def _forget(self, wall_ms: int) -> None:
        """Forget those who left, once nothing that they have said could be taken for new."""
        gone = [
            key
            for key, known in self._known.items()
            if key not in self._here and wall_ms - known.mark[0] > AGE_MS_MAX
        ]
        for key in gone:
            del self._known[key]
