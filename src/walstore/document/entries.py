"""The folded elements of a log, kept so that a log of keystrokes costs little more than its text.

- An element is an `Entry`, or has its place in a `Stretch`: keystrokes in a row are kept as
  columns of texts, signatures and numbers. What they say is read again when somebody asks.
- Asking for entries gives one for each element, whichever way it is kept.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TypeAlias, overload

from walstore.crdt import Run
from walstore.wire.element import Element
from walstore.wire.envelope import Header
from walstore.wire.keystrokes import read_keystrokes


class Entry:
    """One folded element."""

    __slots__ = ("author", "author_seq", "element", "header", "link", "message", "runs")

    def __init__(
        self,
        element: Element,
        link: str,
        header: Header | None,
        author_seq: int | None,
        runs: list[Run],
        message: str | None = None,
    ) -> None:
        self.element = element
        self.message = message
        self.author = element.author
        self.link = link
        self.header = header
        self.author_seq = author_seq
        self.runs = runs

    def __len__(self) -> int:
        return 1

    @property
    def ts(self) -> int:
        """Its place in the log; 0 if it has none yet."""
        return self.element.ts

    @property
    def ts_last(self) -> int:
        """The same."""
        return self.element.ts

    @property
    def text_bytes(self) -> int:
        """The size of its text."""
        return len(self.element.canonical)

    @property
    def links(self) -> Sequence[str]:
        """Its link."""
        return (self.link,)

    @property
    def replica(self) -> str | None:
        """The session that wrote it, None where a peer has none."""
        return None if self.header is None else f"{self.author}:{self.header.session}"

    @property
    def session(self) -> str | None:
        """The session nonce, None where a peer has none."""
        return None if self.header is None else self.header.session

    @property
    def prevs(self) -> Sequence[str | None]:
        """The link to its author's element before."""
        return (None if self.header is None else self.header.prev,)

    @property
    def seqs(self) -> Sequence[int]:
        """Its seq, in the session or, where a peer has none, of the author."""
        return ((self.author_seq or 0) if self.header is None else self.header.seq,)

    @property
    def seq_last(self) -> int:
        """Its seq in the session, 0 where a peer has none."""
        return 0 if self.header is None else self.header.seq

    @property
    def link_last(self) -> str:
        """Its link."""
        return self.link

    def newest(self, count: int) -> list[Element]:
        """The element, if any is asked for."""
        return [self.element][:count]


class Stretch:
    """Folded elements that are keystrokes in a row, with nothing in between in the log.

    Attributes:
        author: The author key.
        session: The session nonce.
        seq: The seq of the first one.
        times: The `ts` of each, ascending.
        texts: The canonical data of each.
        signatures: The author's signature of each.
        links: The link of each.
        counters: The first counter of each; the last one is just below that of the next.
        end: The counter after the last one.
    """

    __slots__ = (
        "author",
        "counters",
        "end",
        "links",
        "seq",
        "session",
        "signatures",
        "texts",
        "times",
    )

    def __init__(self, author: str, session: str, seq: int) -> None:
        self.author = author
        self.session = session
        self.seq = seq
        self.times = array("q")
        self.texts: list[bytes] = []
        self.signatures: list[str] = []
        self.links: list[str] = []
        self.counters = array("q")
        self.end = 0

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def text_bytes(self) -> int:
        """The size of their texts."""
        return sum(map(len, self.texts))

    def append(self, entry: Entry, counter: int, end: int) -> None:
        """Add the keystroke that follows in the log, and the counters of it from the first on."""
        element = entry.element
        self.times.append(element.ts)
        self.texts.append(element.canonical)
        self.signatures.append(element.signature)
        self.links.append(entry.link)
        self.counters.append(counter)
        self.end = end

    @property
    def ts(self) -> int:
        """The `ts` of the first one."""
        return self.times[0]

    @property
    def ts_last(self) -> int:
        """The `ts` of the last one."""
        return self.times[-1]

    @property
    def replica(self) -> str:
        """The session that wrote them."""
        return f"{self.author}:{self.session}"

    @property
    def prevs(self) -> Sequence[str | None]:
        """The link of each to its author's element before."""
        return [prev for typing in read_keystrokes(self.texts) for prev in typing.prevs]

    @property
    def seqs(self) -> Sequence[int]:
        """The seq of each."""
        return range(self.seq, self.seq + len(self))

    @property
    def seq_last(self) -> int:
        """The seq of the last one."""
        return self.seq + len(self) - 1

    @property
    def link_last(self) -> str:
        """The link of the last one."""
        return self.links[-1]

    def newest(self, count: int) -> list[Element]:
        """The last elements, as many as are asked for."""
        return list(map(self.element, range(max(len(self) - count, 0), len(self))))

    @property
    def runs(self) -> list[Run]:
        """What they hold."""
        return self.runs_upto(self.times[-1])

    def runs_upto(self, ts: int) -> list[Run]:
        """What those up to a `ts` hold."""
        return [
            run
            for typing in read_keystrokes(self.texts[: bisect_right(self.times, ts)])
            for run in typing.runs()
        ]

    def counter_before(self, ts: int) -> int:
        """The highest counter of those before a `ts`, 0 if there are none."""
        place = bisect_left(self.times, ts)
        if not place:
            return 0
        return (self.counters[place] if place < len(self) else self.end) - 1

    def find(self, counter: int) -> tuple[int, int]:
        """The place of the element that stamped one of the counters here, and its last counter."""
        place = bisect_right(self.counters, counter) - 1
        end = self.counters[place + 1] if place + 1 < len(self) else self.end
        return place, end - 1

    def element(self, place: int) -> Element:
        """The element at a place."""
        return Element(self.times[place], self.texts[place], self.author, self.signatures[place])

    def entry(self, place: int) -> Entry:
        """The entry of the element at a place."""
        (typing,) = read_keystrokes(self.texts[place : place + 1])
        header = Header(typing.session, typing.seq, typing.prevs[0], {})
        return Entry(self.element(place), self.links[place], header, None, typing.runs())


# What is kept together.
Part: TypeAlias = Entry | Stretch


class Entries(Sequence[Entry]):
    """Folded elements in the order in which they were folded.

    Attributes:
        parts: The same as they are kept.
    """

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[Entry]:
        for part in self.parts:
            if isinstance(part, Entry):
                yield part
            else:
                yield from map(part.entry, range(len(part)))

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        return list(self)[index]
