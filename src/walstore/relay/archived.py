"""How far the archives of a relay have come, as far as they have said.

- An archive holds the documents whose keys begin with its prefix, up to a seq. Under its name it
  says so again whenever it has come further.
- A document is archived as far as every archive is that should hold it. One that none holds is not
  archived at all.
- The changes feed may lose what every archive has taken: they follow it.
- One that is given up has to be forgotten by the operator: until then it holds everything back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from walstore.errors import UsageError

NAME_SIZE_MAX = 200
PREFIX_SIZE_MAX = 1024
SEQ_MAX = 2**53 - 1

# Archives of one relay: far more than anybody has, few enough to be read at each compaction.
ARCHIVES_MAX = 1000

# The log keeps each of them in a setting of its own, so that no two are ever changed together.
_SETTING = "archived/"


class ArchiveError(UsageError):
    """What an archive says of itself cannot be so."""


class ArchivePosition(NamedTuple):
    """What one archive holds.

    Attributes:
        name: What it is called.
        prefix: What the keys of its documents begin with.
        seq: The newest event that it has taken.
    """

    name: str
    prefix: str
    seq: int

    @property
    def setting(self) -> tuple[str, dict[str, Any]]:
        """What the log keeps of it, and under which name."""
        return setting_of(self.name), {"prefix": self.prefix, "seq": self.seq}

    def as_json(self) -> dict[str, Any]:
        """It, for a program."""
        return {"archive": self.name, "prefix": self.prefix, "position": str(self.seq)}


class ArchivedSeq:
    """The newest seqs that are archived."""

    def __init__(self, archives: Iterable[ArchivePosition]) -> None:
        """Know some archives."""
        self.archives = tuple(archives)

    def of(self, document: str) -> int | None:
        """Up to which seq a document is archived; None if no archive holds it."""
        held = [each.seq for each in self.archives if document.startswith(each.prefix)]
        return min(held, default=None)

    @property
    def lowest(self) -> int | None:
        """What every archive has taken; None if there is none."""
        return min([each.seq for each in self.archives], default=None)


def setting_of(name: str) -> str:
    """The name of the setting that the log keeps an archive in."""
    return _SETTING + name


def read_archived(settings: Mapping[str, Any]) -> ArchivedSeq:
    """The archives that the settings of a log name; forgotten ones are null there."""
    return ArchivedSeq(
        _kept(name.removeprefix(_SETTING), kept)
        for name, kept in sorted(settings.items())
        if name.startswith(_SETTING) and kept is not None
    )


def _kept(name: str, kept: object) -> ArchivePosition:
    match kept:
        case {"prefix": str() as prefix, "seq": int() as seq}:
            return ArchivePosition(name, prefix, seq)
    # Another version has written it. Whatever it means, nothing goes before that is known.
    return ArchivePosition(name, "", 0)


def read_position(found: object, *, relay_id: str, head_seq: int) -> ArchivePosition:
    """What an archive says of itself.

    Args:
        found: The parsed text.
        relay_id: The database that positions are of here.
        head_seq: The newest seq.

    Raises:
        ArchiveError: It is malformed, of another database, or ahead of this one.
    """
    members = {"archive", "prefix", "position", "relay_id"}
    if not isinstance(found, dict) or found.keys() != members:
        raise ArchiveError(f"the members are {', '.join(sorted(members))}")
    name = checked_name(found["archive"])
    prefix, position = found["prefix"], found["position"]
    if not isinstance(prefix, str) or len(prefix) > PREFIX_SIZE_MAX:
        raise ArchiveError(f"`prefix` is not text of at most {PREFIX_SIZE_MAX} characters")
    if found["relay_id"] != relay_id:
        raise ArchiveError("the positions are those of another relay")
    seq = _seq(position)
    if seq > head_seq:
        raise ArchiveError(f"the position {seq} was never reached here: the newest is {head_seq}")
    return ArchivePosition(name, prefix, seq)


def checked_name(name: object) -> str:
    """The name of an archive.

    Raises:
        ArchiveError: It is none.
    """
    if not isinstance(name, str) or not 0 < len(name) <= NAME_SIZE_MAX or not name.isprintable():
        raise ArchiveError(f"`archive` is not a line of at most {NAME_SIZE_MAX} characters")
    return name


def _seq(position: object) -> int:
    is_decimal = isinstance(position, str) and position.isascii() and position.isdigit()
    # Only few digits are made a number of.
    if not is_decimal or len(str(position)) > len(str(SEQ_MAX)):
        raise ArchiveError("`position` is not a decimal number, as text")
    return int(str(position))
