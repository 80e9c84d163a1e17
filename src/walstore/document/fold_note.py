"""What a kept fold remembers beside its snapshot, to go on as if it had never stopped.

- It stands in the snapshot's own extension, under `fold`, and so under the same signature.
- A snapshot counts; what it cannot say is here: which rules it was folded by, what is missing, what
  waits for a proof or a key.
- Counts are since the base: the snapshot of somebody with the role that the fold starts from, or
  the beginning of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from walstore.canon import Json
from walstore.document.gaps import Session, Unsettled
from walstore.errors import MalformedError

NOTE_NAME = "fold"


class FoldNote(NamedTuple):
    """What is remembered.

    Attributes:
        writers_id: By whose names it was decided who may write.
        keys_id: Which keys were at hand.
        base_ts: Elements up to this one are in the base.
        elements: How many elements were good.
        rejected: How many were not.
        authors: Who wrote, sorted.
        unreadable: How many wait for a key.
        unproven: The authors of those that wait for a proof, by link.
        unsettled: What is missing.
        unmet: The links that count of the revoked, by author, whose elements were not read yet.
        sharing: What is known of who shares the document; no business of the fold's.
        relay_seq: The relay seq of the last event; 0 where nobody has said it.
        is_behind: Whether something had happened up to there that could not be taken in.
    """

    writers_id: str = ""
    keys_id: str = ""
    base_ts: int = 0
    elements: int = 0
    rejected: int = 0
    authors: tuple[str, ...] = ()
    unreadable: int = 0
    unproven: Mapping[str, str] = {}
    unsettled: Unsettled = Unsettled({}, [], {})
    unmet: Mapping[str, list[str]] = {}
    sharing: Json = None
    relay_seq: int = 0
    is_behind: bool = False

    def to_json(self) -> dict[str, Any]:
        """The member of a snapshot's extension; what says nothing is left out."""
        missing = self.unsettled.missing
        members = {
            "writers": self.writers_id,
            "keys": self.keys_id,
            "base": self.base_ts,
            "elements": self.elements,
            "rejected": self.rejected,
            "authors": list(self.authors),
            "unreadable": self.unreadable,
            "unproven": [[link, author] for link, author in self.unproven.items()],
            "missing": [
                [*session, [list(span) for span in missing[session]]]
                for session in sorted(missing, key=_place)
            ],
            "excused": sorted(self.unsettled.excused),
            "vouched": [
                [author, session, self.unsettled.vouched[voucher, author, session], voucher]
                for voucher, author, session in sorted(
                    self.unsettled.vouched, key=lambda each: (each[0], *_place(each[1:]))
                )
            ],
            "unmet": dict(self.unmet),
            "sharing": self.sharing,
            "seq": self.relay_seq,
            "behind": self.is_behind,
        }
        return {name: member for name, member in members.items() if member}


def read_note(document: Mapping[str, Any]) -> FoldNote:
    """What a kept snapshot remembers.

    Raises:
        MalformedError: It is no fold's.
    """
    try:
        return _read(document["state"]["x"][NOTE_NAME])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedError("kept state", "it is not that of a fold") from error


def _read(members: Mapping[str, Any]) -> FoldNote:
    return FoldNote(
        writers_id=members.get("writers", ""),
        keys_id=members.get("keys", ""),
        base_ts=members.get("base", 0),
        elements=members.get("elements", 0),
        rejected=members.get("rejected", 0),
        authors=tuple(members.get("authors", ())),
        unreadable=members.get("unreadable", 0),
        unproven=dict(members.get("unproven", ())),
        unsettled=Unsettled(
            {
                (author, session): [(first, end) for first, end in spans]
                for author, session, spans in members.get("missing", ())
            },
            list(members.get("excused", ())),
            # Older ones did not say who says so, and then it counts no longer.
            {
                (voucher[0], author, session): seq
                for author, session, seq, *voucher in members.get("vouched", ())
                if voucher
            },
        ),
        unmet={author: list(links) for author, links in members.get("unmet", {}).items()},
        sharing=members.get("sharing"),
        relay_seq=members.get("seq", 0),
        is_behind=members.get("behind", False),
    )


def _place(session: Session) -> tuple[str, str]:
    return session[0], session[1] or ""
