"""Edits on their way into the log, as one local file keeps them.

    record ──► recorded ──► seal ──► bodies ──► acknowledged ──► confirmed: gone
                             (one transaction)

- An edit is in one place at any moment: recorded, in a body, or in the log.
- A body stays until it was read in the log, and that is kept; an acknowledgement alone removes
  nothing.
- Where a session stands is kept as long as anything of it is on its way, so that a later process
  can seal what it has left recorded, and count on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from walstore.crdt import COUNTER_MAX
from walstore.local.database import Database, Transaction
from walstore.local.faults import NotStorableError
from walstore.local.rows import (
    Cell,
    LastSealed,
    OutboxBody,
    Pending,
    Recorded,
    acknowledged_of,
    acknowledged_row,
    body_of,
    body_row,
    recorded_of,
    recorded_row,
    session_of,
    session_row,
    to_bytes,
)
from walstore.wire.limits import ELEMENT_BYTES_MAX, SESSION_SIZE_MAX, TS_MAX

# One edit, packed: a value set to the whole text of a book, sealed. It is cut to elements later.
RECORDED_BYTES_MAX = 64 * 2**20


class Queue:
    """What is unsent in one open file."""

    __slots__ = ("_database", "_number", "_places", "_sessions")

    def __init__(self, database: Database) -> None:
        """Find out what an earlier process has left.

        Raises:
            LocalFileDamagedError: Something of it is damaged; the file was set aside.
        """
        self._database = database
        with database.call():
            recorded, bodies = self._read_recorded(), self._read_bodies()
            rows = database.execute("SELECT * FROM sessions")
            sessions = [session_of(row) for row in rows]
        self._number = max((edit.number for edit in recorded), default=0)
        # Where the body with a link is, so that finding one takes no search.
        self._places: dict[str, int] = {body.link: place for place, body in bodies}
        self._sessions = {session: (place, last) for place, session, last in sessions}
        in_use = {edit.session for edit in recorded} | {body.session for _, body in bodies}
        self._forget_sessions(self._sessions.keys() - in_use)

    def record(self, session: str, packed: bytes) -> int:
        """Append an edit and return its number, greater than all before it."""
        if len(packed) > RECORDED_BYTES_MAX or len(session) > SESSION_SIZE_MAX:
            raise NotStorableError("an edit", "it, or the name of its session, is too large")
        # First of all: whatever interrupts what follows, nobody uses a number twice.
        number = self._number = self._number + 1
        row = recorded_row(number, session, packed)
        self._database.execute("INSERT INTO recorded VALUES (?, ?, ?, ?)", row)
        return number

    def seal(self, session: str, upto: int, bodies: Sequence[OutboxBody]) -> None:
        """Replace what a session has recorded up to a number by the bodies made of it."""
        if not bodies:
            raise NotStorableError("no bodies", "the edits that they stand for would be lost")
        bodies = _checked_bodies(bodies)
        start = max(self._places.values(), default=0) + 1
        new = [body for body in bodies if body.link not in self._places]
        places = dict(enumerate(new, start))
        sessions = self._sessions_after(bodies)
        with self._database.transaction() as transaction:
            transaction.execute(
                "DELETE FROM recorded WHERE session = ? AND number <= ?",
                (to_bytes(session), min(upto, self._number)),
            )
            transaction.each(_INSERT_BODY, (body_row(*item) for item in places.items()))
            transaction.each(_PUT_SESSION, _session_rows(sessions))
        self._places.update((body.link, place) for place, body in places.items())
        self._sessions |= sessions

    def renew(self, bodies: Sequence[OutboxBody]) -> None:
        """Put bodies in the place of those with the same session and seq that wait."""
        bodies = _checked_bodies(bodies)
        with self._database.call():
            waiting = {
                _number_of(body): (place, body.link)
                for place, body in self._read_bodies()
                if body.acknowledged is None
            }
        missing = [body for body in bodies if _number_of(body) not in waiting]
        if missing:
            raise NotStorableError("a renewed body", f"none with seq {missing[0].seq} waits")
        replaced = [(*waiting[_number_of(body)], body) for body in bodies]
        sessions = self._sessions_after(bodies)
        with self._database.transaction() as transaction:
            transaction.each(_PUT_BODY, (body_row(place, body) for place, _, body in replaced))
            transaction.each(_PUT_SESSION, _session_rows(sessions))
        for place, link, body in replaced:
            self._places.pop(link, None)
            self._places[body.link] = place
        self._sessions |= sessions

    def replace(
        self,
        gone: Iterable[str],
        bodies: Sequence[OutboxBody],
        slots: Sequence[tuple[Cell, ...]] = (),
    ) -> None:
        """Put bodies in the place of others, and rows into slots, at once."""
        bodies = _checked_bodies(bodies)
        left = {link: (self._places[link],) for link in gone if link in self._places}
        start = max(self._places.values(), default=0) + 1
        places = dict(enumerate(bodies, start))
        sessions = self._sessions_after(bodies)
        with self._database.transaction() as transaction:
            transaction.each("DELETE FROM bodies WHERE place = ?", left.values())
            transaction.each("DELETE FROM acknowledged WHERE place = ?", left.values())
            transaction.each(_INSERT_BODY, (body_row(*item) for item in places.items()))
            transaction.each(_PUT_SESSION, _session_rows(sessions))
            transaction.each("INSERT OR REPLACE INTO slots VALUES (?, ?, ?)", slots)
        for link in left:
            del self._places[link]
        self._places.update((body.link, place) for place, body in places.items())
        self._sessions |= sessions

    def acknowledged(self, link: str, ts: int | None) -> None:
        """Note the `ts` that a relay gave a body, or with None that the body waits again."""
        place = self._places.get(link)
        if place is None:
            return
        if ts is None:
            self._database.execute("DELETE FROM acknowledged WHERE place = ?", (place,))
        elif not 0 <= ts <= TS_MAX:
            raise NotStorableError("an acknowledgement", "its `ts` is out of range")
        else:
            row = acknowledged_row(place, ts)
            self._database.execute("INSERT OR REPLACE INTO acknowledged VALUES (?, ?, ?)", row)

    def confirmed(self, links: Iterable[str]) -> None:
        """Remove bodies that were read in the log."""
        found = {link: (self._places[link],) for link in links if link in self._places}
        if not found:
            return
        with self._database.transaction() as transaction:
            transaction.each("DELETE FROM bodies WHERE place = ?", found.values())
            transaction.each("DELETE FROM acknowledged WHERE place = ?", found.values())
        for link in found:
            del self._places[link]

    def before_all(self, bodies: Sequence[OutboxBody]) -> list[OutboxBody]:
        """Bodies that go back among what is on its way, and after them all that is."""
        with self._database.call():
            waiting = [body for _, body in self._read_bodies()]
        known = {body.link for body in waiting}
        return [*(body for body in _checked_bodies(bodies) if body.link not in known), *waiting]

    def rewrite(self, transaction: Transaction, bodies: Sequence[OutboxBody]) -> None:
        """Keep these bodies and no others, all of them waiting; `look` comes after it."""
        transaction.execute("DELETE FROM bodies")
        transaction.execute("DELETE FROM acknowledged")
        transaction.each(_INSERT_BODY, (body_row(*item) for item in enumerate(bodies, start=1)))

    def look(self) -> None:
        """Find out anew where the bodies are."""
        with self._database.call():
            self._places = {body.link: place for place, body in self._read_bodies()}

    def pending(self) -> Pending:
        """Everything that is on its way, in order."""
        with self._database.call():
            return Pending(self._read_recorded(), [body for _, body in self._read_bodies()])

    def last_sealed(self, session: str) -> LastSealed | None:
        """Where a session stands, None if it has sealed nothing, or nothing of it is left."""
        found = self._sessions.get(session)
        return None if found is None else found[1]

    def _read_recorded(self) -> list[Recorded]:
        rows = self._database.execute("SELECT * FROM recorded ORDER BY number")
        return [recorded_of(row) for row in rows]

    def _read_bodies(self) -> list[tuple[int, OutboxBody]]:
        rows = self._database.execute("SELECT * FROM acknowledged")
        times = dict(acknowledged_of(row) for row in rows)
        bodies = map(body_of, self._database.execute("SELECT * FROM bodies ORDER BY place"))
        return [(place, body._replace(acknowledged=times.get(place))) for place, body in bodies]

    def _sessions_after(self, bodies: Sequence[OutboxBody]) -> dict[str, tuple[int, LastSealed]]:
        """Where the sessions of bodies stand once these are in."""
        after: dict[str, tuple[int, LastSealed]] = {}
        place_new = max((place for place, _ in self._sessions.values()), default=0) + 1
        for body in bodies:
            place, last = after.get(body.session) or self._sessions.get(
                body.session, (place_new + len(after), LastSealed(0, ""))
            )
            if body.seq >= last.seq:
                after[body.session] = place, LastSealed(body.seq, body.link)
        return after

    def _forget_sessions(self, sessions: Iterable[str]) -> None:
        places = [(self._sessions.pop(session)[0],) for session in list(sessions)]
        if places:
            with self._database.transaction() as transaction:
                transaction.each("DELETE FROM sessions WHERE place = ?", places)


_INSERT_BODY = "INSERT INTO bodies VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_BODY = "INSERT OR REPLACE INTO bodies VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_SESSION = "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?)"


def _number_of(body: OutboxBody) -> tuple[str, str, int]:
    """What tells a body from all others, however it is sealed."""
    return body.author, body.session, body.seq


def _checked_bodies(bodies: Sequence[OutboxBody]) -> Sequence[OutboxBody]:
    for body in bodies:
        if len(body.canonical) > ELEMENT_BYTES_MAX or len(body.session) > SESSION_SIZE_MAX:
            raise NotStorableError("a body", "it, or the name of its session, is too large")
        if not 0 <= body.seq <= COUNTER_MAX:
            raise NotStorableError("a body", "its seq is out of range")
    return bodies


def _session_rows(sessions: dict[str, tuple[int, LastSealed]]) -> list[tuple[Cell, ...]]:
    return [session_row(place, name, last) for name, (place, last) in sessions.items()]
