"""The commonest element of all, read at a glance and written so: one run that was typed, or one
removed element.

    {"author":…,"body":{"ops":[[""],ROW]},"prev":…,"seq":…,"session":…,"v":2}
    ROW: [0,list,0,counter,0,anchor,text] or [1,list,0,counter,0,target]

- A keystroke is a plain `packed` element with one row that touches nobody's text but the author's
  own, and with nothing newly seen.
- Its canonical text has one shape, so that one pattern reads many of them at a time. What matches
  is canonical, within the limits, and means exactly what parsing it would give.
- Everything else, sound or not, is no keystroke: it is left to the readers of any element.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, cast

from walstore.canon import canonical_text, parse
from walstore.crdt.packed_ops import is_scalar_text
from walstore.crdt.runs import Insert, Remove, Run
from walstore.errors import MalformedError
from walstore.wire.envelope import Header
from walstore.wire.limits import SESSION_SIZE_MAX

# What a session is called, but for what has to be escaped.
_SESSION = rf"[ !#-\[\]-~]{{1,{SESSION_SIZE_MAX}}}+"

# Fifteen digits are below 2^53 whatever they are, even with the size of an element added to them.
_COUNT = r"[1-9][0-9]{0,14}+"


def _shape(character: str, text: str) -> str:
    """The pattern of a keystroke: of the characters in its strings, and of the text in it."""
    return (
        rf'\{{"author":"({character}*+)","body":\{{"ops":\[\[""\],\[(?:'
        rf'0,"({character}*+)",0,({_COUNT}),0,(0|{_COUNT}),"({text})"'
        rf'|1,"({character}*+)",0,({_COUNT}),0,({_COUNT})'
        rf')\]\]\}},(?:"prev":"({character}{{64}})",)?'
        rf'"seq":({_COUNT}),"session":"({_SESSION})","v":2\}}'
    )


# A line is matched whole, as a keystroke or as anything else, so that matches and lines go in step.
# Of texts with a quotation mark only the one that is nothing else is matched.
_LINE = re.compile("^(?:" + _shape('[^"]', r'[^"]++|\\"') + "|.*)$", re.MULTILINE)

# A single one, without any escape.
_PLAIN = r'[^"\\\x00-\x1f]'
_SINGLE = re.compile(_shape(_PLAIN, f"{_PLAIN}++"))

# What the pattern finds, empty where there is nothing: the author; list, counter, anchor and text
# of an insert; list, counter and target of a remove; `prev`, `seq` and the session.
_Row: TypeAlias = tuple[str, str, str, str, str, str, str, str, str, str, str]
_NOTHING: _Row = ("",) * 11

# What stands in no canonical text: line feeds and the like are escaped.
_CONTROLS = bytes(range(0x20))


class Typing:
    """Keystrokes in a row: of one session, with seqs and counters that count up without a break.

    Attributes:
        place: Where the first one stands among the texts that were read.
        author: Whose they say they are.
        session: The session nonce.
        seq: The seq of the first one.
        start: The counter of the first one.
        prevs: Of each, the link to the author's previous element, or None.
        strokes: Of each, the list, the counter, the counter of the anchor (0 for the head) or of
            the removed element, and the text; that is empty if an element was removed.
    """

    __slots__ = ("author", "place", "prevs", "seq", "session", "start", "strokes")

    def __init__(self, place: int, author: str, session: str, *, seq: int, start: int) -> None:
        self.place = place
        self.author = author
        self.session = session
        self.seq = seq
        self.start = start
        self.prevs: list[str | None] = []
        self.strokes: list[tuple[str, int, int, str]] = []

    def __len__(self) -> int:
        return len(self.strokes)

    @property
    def end(self) -> int:
        """The counter after the last one."""
        _, counter, _, text = self.strokes[-1]
        return counter + (len(text) or 1)

    def runs(self) -> list[Run]:
        """What was typed and removed; text that was typed on is one run."""
        own = f"{self.author}:{self.session}"
        runs: list[Run] = []
        inserts: list[tuple[Insert, list[str]]] = []
        # The list and the pieces of the run that the next text may go on.
        open_list, pieces = "", list[str]()
        for name, counter, other, text in self.strokes:
            if not text:
                runs.append(Remove(name, own, counter, own, other))
                pieces = []
            elif pieces and other == counter - 1 and name == open_list:
                pieces.append(text)
            else:
                insert = Insert(name, own, counter, own if other else "", other, "")
                open_list, pieces = name, [text]
                inserts.append((insert, pieces))
                runs.append(insert)
        for insert, pieces in inserts:
            insert.values = "".join(pieces)
        return runs


class Keystroke(NamedTuple):
    """A single keystroke.

    Attributes:
        author: Whose it says it is.
        session: The session nonce.
        seq: Its seq.
        prev: The link to the author's previous element, or None.
        run: What was typed or removed.
        end: The counter after its last one.
    """

    author: str
    session: str
    seq: int
    prev: str | None
    run: Insert | Remove
    end: int


def read_keystroke(text: bytes) -> Keystroke | None:
    """What a single keystroke says; None if the data of an element is none, or has an escape."""
    try:
        found = _SINGLE.fullmatch(text.decode())
    except UnicodeDecodeError:
        return None
    if found is None:
        return None
    author, name, at, anchor, typed, remove_name, remove_at, target, prev, seq, session = (
        found.groups("")
    )
    own = f"{author}:{session}"
    run: Insert | Remove
    if target:
        counter, end = int(remove_at), int(remove_at) + 1
        run = Remove(remove_name, own, counter, own, int(target))
    else:
        counter, after = int(at), int(anchor)
        end = counter + len(typed)
        run = Insert(name, own, counter, own if after else "", after, typed)
    return Keystroke(author, session, int(seq), prev or None, run, end)


def write_keystroke(run: Run, author: str, header: Header) -> bytes | None:
    """The canonical data of a keystroke; None if it is none, or if something has to be escaped."""
    own = f"{author}:{header.session}"
    text = ""
    if type(run) is Insert:
        if type(run.values) is not str or (run.after_counter and run.after_replica != own):
            return None
        text = run.values
        row = f'0,"{run.list}",0,{run.counter},0,{run.after_counter},"{text}"'
    elif type(run) is Remove:
        if run.target_replica != own or run.size != 1 or run.step != 1:
            return None
        row = f'1,"{run.list}",0,{run.counter},0,{run.target_counter}'
    else:
        return None
    spelled = f"{run.list}{header.session}{text}"
    if (
        run.replica != own
        or header.seen
        or not spelled.isprintable()
        or '"' in spelled
        or "\\" in spelled
    ):
        return None
    prev = "" if header.prev is None else f'"prev":"{header.prev}",'
    return (
        f'{{"author":"{author}","body":{{"ops":[[""],[{row}]]}},{prev}'
        f'"seq":{header.seq},"session":"{header.session}","v":2}}'
    ).encode()


def read_keystrokes(texts: Sequence[bytes]) -> list[Typing]:
    """The keystrokes among the data of elements; what is not in the result is none."""
    typings: list[Typing] = []
    # What the next keystroke has to be like to go on.
    author_next = session_next = ""
    end = seq_next = 0
    for place, row in enumerate(_rows(texts)):
        author, name, counter, other, text, remove_name, at, target, prev, seq, session = row
        if target:
            name, counter, other = remove_name, at, target
        elif not text:
            end = 0
            continue
        start, count = int(counter), int(seq)
        if start != end or count != seq_next or session != session_next or author != author_next:
            typing = Typing(place, author, session, seq=count, start=start)
            typings.append(typing)
            author_next, session_next = author, session
            prevs, strokes = typing.prevs, typing.strokes
        prevs.append(prev or None)
        strokes.append((name, start, int(other), text))
        end = start + (len(text) or 1)
        seq_next = count + 1
    return typings


def _rows(texts: Sequence[bytes]) -> list[_Row]:
    """What the pattern finds in each text."""
    joined = b"\n".join(texts)
    try:
        lines = joined.decode()
    except UnicodeDecodeError:
        return []
    rows: list[_Row] = _LINE.findall(lines)
    # With a control character in one of them, a line might not be an element.
    breaks = len(joined) - len(joined.translate(None, _CONTROLS))
    if breaks != len(texts) - 1 or len(rows) != len(texts):
        return []
    return list(map(_unescaped, rows)) if "\\" in lines else rows


def _unescaped(row: _Row) -> _Row:
    """The same with the escapes of the text resolved; nothing if there are others."""
    text = row[4]
    if any("\\" in each for each in (*row[:4], *row[5:])):
        return _NOTHING
    if "\\" not in text:
        return row
    quoted = f'"{text}"'
    try:
        text = cast("str", parse(quoted))
    except MalformedError:
        return _NOTHING
    if canonical_text(text) != quoted or not is_scalar_text(text):
        return _NOTHING
    return (*row[:4], text, *row[5:])
