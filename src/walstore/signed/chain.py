"""Chained authorship: one signature vouches for everything its writer signed before it.

    session 1:  e1 ◄── e2 ◄── e3              an arrow is a link: the hash of the element before,
                        ▲                     inside the bytes that were signed
    session 2:          └──── f1 ◄── f2       leaves: e3 and f2

- An element is accepted if its own signature verifies, or if an accepted element of the same
  writer links to it. Nothing else is ever accepted.
- Only leaves are verified. If a leaf is forged, what it links to becomes a leaf in turn, so
  exactly the bad elements are found, at worst by verifying each one.
- A link is SHA-256 over the writer's key, the signature and the signed bytes. The signed bytes
  alone would leave the signature of an earlier element open: a relay could spoil it, and
  whoever met that element alone would reject what others accept. With both inside, an element
  is pinned as it is stored. The signed bytes hold the document key, so a link never reaches
  into another document.
- A link counts only if its hex text stands in the signed bytes of the element that carries it;
  what a relay puts beside them vouches for nothing. For the same reason links cannot form a ring.
- A key or signature with another spelling than the strict one is rejected whoever links to it.
- Branches are normal: two sessions of one key grow from the same element. Two elements of one
  session with one writer seq are not: an honest session counts up. They are reported as twins.
- An element rejected as forged may be offered again together with later ones: a writer who links
  to an element without a good signature has vouched for it, and all readers then agree.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import NamedTuple, overload

from walstore.errors import MalformedError
from walstore.signed.encoding import SIGNATURE_CHARS, decode_public_key, decode_signature
from walstore.signed.many import SignatureCheck, verify_many

_DOMAIN = b"walstore-link-v1\n"

# Base64 of 64 bytes each: the last digit before the padding has four bits that say nothing, and
# have to be zero.
_STRICT_SIGNATURES = re.compile("(?:[A-Za-z0-9+/]{85}[AQgw]==)*+")


class ChainElement(NamedTuple):
    """What the chain needs to know of an element.

    Attributes:
        writer: The author key.
        session: The session that wrote it.
        seq: The writer seq, which counts the session's elements.
        prev: The link to the writer's previous element; None for the first, or if there is none.
        signed: The exact bytes under the signature. Writer, session, seq and prev were read
            out of them, or are checked against them by the caller.
        signature: The author signature as text.
    """

    writer: str
    session: str
    seq: int
    prev: str | None
    signed: bytes
    signature: str


class ChainColumns(Sequence[ChainElement]):
    """Chain elements column by column: of many of them, that is made and read faster."""

    __slots__ = ("prevs", "seqs", "sessions", "signatures", "signed", "writers")

    def __init__(self, elements: Iterable[ChainElement] = ()) -> None:
        self.writers: list[str] = []
        self.sessions: list[str] = []
        self.seqs: list[int] = []
        self.prevs: list[str | None] = []
        self.signed: list[bytes] = []
        self.signatures: list[str] = []
        for element in elements:
            self.append(element)

    def append(self, element: ChainElement) -> None:
        """Add one element."""
        self.writers.append(element.writer)
        self.sessions.append(element.session)
        self.seqs.append(element.seq)
        self.prevs.append(element.prev)
        self.signed.append(element.signed)
        self.signatures.append(element.signature)

    def extend(
        self,
        *,
        writer: str,
        session: str,
        seq: int,
        prevs: Sequence[str | None],
        signed: Iterable[bytes],
        signatures: Iterable[str],
    ) -> None:
        """Add elements of one session, whose seqs count up from the first one's."""
        size = len(prevs)
        self.writers += [writer] * size
        self.sessions += [session] * size
        self.seqs += range(seq, seq + size)
        self.prevs += prevs
        self.signed += signed
        self.signatures += signatures

    def check(self, place: int) -> SignatureCheck:
        """The question whether an element's signature is good."""
        return SignatureCheck(self.writers[place], self.signed[place], self.signatures[place])

    def __len__(self) -> int:
        return len(self.writers)

    @overload
    def __getitem__(self, index: int) -> ChainElement: ...
    @overload
    def __getitem__(self, index: slice) -> list[ChainElement]: ...
    def __getitem__(self, index: int | slice) -> ChainElement | list[ChainElement]:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        return ChainElement(
            self.writers[index],
            self.sessions[index],
            self.seqs[index],
            self.prevs[index],
            self.signed[index],
            self.signatures[index],
        )


class Head(NamedTuple):
    """The newest element of a branch, as a snapshot or a store remembers it."""

    link: str
    session: str
    seq: int


class Verdict(Enum):
    """What became of an element, and why."""

    SIGNED = "its signature verifies"
    LINKED = "an accepted element of its writer links to it"
    KNOWN = "it is a known head"
    MALFORMED = "its key or signature is not in the strict form"
    FORGED = "its signature does not verify and nothing accepted links to it"

    @property
    def accepted(self) -> bool:
        """Whether the writer is proven."""
        return self in _ACCEPTED


_ACCEPTED = frozenset({Verdict.SIGNED, Verdict.LINKED, Verdict.KNOWN})
_REJECTED = (Verdict.MALFORMED, Verdict.FORGED)


class Twins(NamedTuple):
    """Two accepted elements of one session with one writer seq: the session was forked."""

    writer: str
    session: str
    seq: int
    links: tuple[str, str]


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What `check_chain` found.

    Attributes:
        elements: The elements, as given.
        known: The heads that were known before, by writer.
        verdicts: One per element, in the order given.
        links: The link of each element, to be named by the writer's next one; None if malformed.
        heads: The heads by writer, old and new, without those that an accepted element continues.
    """

    elements: Sequence[ChainElement]
    known: Mapping[str, frozenset[Head]]
    verdicts: list[Verdict]
    links: list[str | None]
    heads: dict[str, frozenset[Head]]

    @property
    def unlinked(self) -> list[int]:
        """Positions of accepted elements whose previous one is neither here nor a known head.

        It was pruned, not pulled yet, or withheld.
        """
        at_hand = {
            (element.writer, name) for element, name in zip(self.elements, self.links, strict=True)
        }
        at_hand |= {(writer, head.link) for writer, each in self.known.items() for head in each}
        return [
            place
            for place in self._accepted()
            if (prev := (element := self.elements[place]).prev) is not None
            and not ((element.writer, prev) in at_hand and _stands_in(prev, element.signed))
        ]

    @property
    def twins(self) -> list[Twins]:
        """Forked sessions."""
        first: dict[tuple[str, str, int], str] = {
            (writer, head.session, head.seq): head.link
            for writer, each in self.known.items()
            for head in each
        }
        twins = []
        for place, name in self._accepted().items():
            element = self.elements[place]
            count = (element.writer, element.session, element.seq)
            other = first.setdefault(count, name)
            if other != name:
                twins.append(Twins(*count, links=(other, name)))
        return twins

    def _accepted(self) -> dict[int, str]:
        """The places of the accepted elements, each element once, with their links."""
        places: dict[str, int] = {}
        for place, name in enumerate(self.links):
            if name is not None and self.verdicts[place].accepted:
                places.setdefault(name, place)
        return {place: name for name, place in places.items()}


def are_accepted(verdicts: Sequence[Verdict]) -> bool:
    """Whether all of these elements are proven."""
    # Enum members are slow to hash, so this asks the other way round.
    return not any(rejected in verdicts for rejected in _REJECTED)


def link(signed: bytes, *, author_pubkey: str, author_signature: str) -> str:
    """The name of an element, for its writer's next one to carry: 64 hex digits.

    Raises:
        MalformedError: The key or the signature is not in the strict form.
    """
    key, signature = decode_public_key(author_pubkey), decode_signature(author_signature)
    if key is None or signature is None:
        raise MalformedError("author proof", "the key or signature is not in the strict form")
    return link_decoded(signed, key=key, signature=signature)


def link_decoded(signed: bytes, *, key: bytes, signature: bytes) -> str:
    """The same for a key and a signature that were decoded before."""
    return _link(_DOMAIN + key, signature, signed)


def check_chain(
    elements: Sequence[ChainElement],
    heads: Mapping[str, Collection[Head]] | None = None,
    *,
    unverified: Collection[str] = (),
    pool: Executor | None = None,
    is_ordered: bool = False,
) -> ChainReport:
    """Tell the proven elements from the others with as few signature checks as possible.

    Args:
        elements: Of any writers, in any order, repeated or not.
        heads: By writer, links to elements that the caller has verified, from earlier calls. Such
            an element is accepted unseen and vouches for what it links to.
        unverified: Those links among them that the caller has from somebody else, a snapshot's
            producer: others may go on from there, but such an element is verified as any other.
        pool: Threads for the signature checks, as for `verify_many`.
        is_ordered: Whether an element vouches only for those before it: then the verdicts on a log
            that is read in parts are those on the whole, if what was rejected is offered again.
    """
    known = {writer: frozenset(each) for writer, each in (heads or {}).items()}
    columns = elements if isinstance(elements, ChainColumns) else ChainColumns(elements)
    links = _links(columns)
    lines = _Lines(columns, links, known)
    if lines.are_whole() and lines.are_signed(pool):
        return ChainReport(elements, known, lines.verdicts(), links, lines.heads())
    forest = _Forest(columns, links, known)
    forest.grow(is_ordered=is_ordered)
    forest.judge(pool, unverified)
    verdicts = [forest.verdict(place) for place in range(len(columns))]
    continued = set(map(forest.previous, forest.accepted()))
    newest = _heads(columns, forest.accepted(), continued, known)
    return ChainReport(elements, known, verdicts, links, newest)


def _link(start: bytes, signature: bytes, signed: bytes) -> str:
    return sha256(start + signature + signed).hexdigest()


def _links(columns: ChainColumns) -> list[str | None]:
    starts: dict[str, bytes | None] = {}
    for writer in set(columns.writers):
        key = decode_public_key(writer)
        starts[writer] = None if key is None else _DOMAIN + key
    return [
        None if start is None or signature is None else _link(start, signature, signed)
        for start, signature, signed in zip(
            map(starts.__getitem__, columns.writers),
            _decoded(columns.signatures),
            columns.signed,
            strict=True,
        )
    ]


def _decoded(signatures: list[str]) -> list[bytes | None]:
    """The raw signatures, None for those that are not in the strict form."""
    are_long_enough = set(map(type, signatures)) == {str} and set(map(len, signatures)) == {
        SIGNATURE_CHARS
    }
    # Looking at all of them at once takes half the time.
    if are_long_enough and _STRICT_SIGNATURES.fullmatch("".join(signatures)):
        return list(map(a2b_base64, signatures))
    return list(map(decode_signature, signatures))


def _stands_in(prev: str, signed: bytes) -> bool:
    """Whether the link that an element carries stands in its signed bytes."""
    return prev.encode(errors="replace") in signed


class _Lines:
    """The commonest shape of all: of each writer, every element links to the one before it.

    Then the last elements are the only leaves. Nothing else is decided here: whatever has another
    shape, or a last element that does not verify, is for the forest.
    """

    def __init__(
        self,
        elements: ChainColumns,
        links: list[str | None],
        known: Mapping[str, frozenset[Head]],
    ) -> None:
        self._elements = elements
        self._links = links
        self._known = known
        self._writers = _writers_by_link(known)
        # By writer, the places of the first and of the last element.
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}

    def are_whole(self) -> bool:
        """Whether there is nothing but such lines, of elements that are new."""
        links, last = self._links, self._last
        if None in links or not self._writers.keys().isdisjoint(links):
            return False
        from_end = 0
        prevs, signed = self._elements.prevs, self._elements.signed
        for place, writer in enumerate(self._elements.writers):
            before = last.get(writer)
            last[writer] = place
            if before is None:
                self._first[writer] = place
                continue
            prev = prevs[place]
            if prev is None or prev != links[before]:
                return False
            # As a rule it stands as far from the end as the last one, and need not be searched.
            name = prev.encode()
            if not signed[place].startswith(name, -from_end):
                found = signed[place].find(name)
                if found < 0:
                    return False
                from_end = len(signed[place]) - found
        return True

    def are_signed(self, pool: Executor | None) -> bool:
        """Whether the last element of every line verifies."""
        checks = [self._elements.check(place) for place in self._last.values()]
        return all(verify_many(checks, pool))

    def verdicts(self) -> list[Verdict]:
        """One verdict per element."""
        verdicts = [Verdict.LINKED] * len(self._elements)
        for place in self._last.values():
            verdicts[place] = Verdict.SIGNED
        return verdicts

    def heads(self) -> dict[str, frozenset[Head]]:
        """The heads, old and new."""
        continued: set[str | None] = set()
        for writer, place in self._first.items():
            prev, signed = self._elements.prevs[place], self._elements.signed[place]
            if prev is not None and self._writers.get(prev) == writer and _stands_in(prev, signed):
                continued.add(prev)
        ends = {place: self._links[place] or "" for place in self._last.values()}
        return _heads(self._elements, ends, continued, self._known)


class _Forest:
    """The trees that the elements of one call form, each element once."""

    def __init__(
        self,
        elements: ChainColumns,
        links: list[str | None],
        known: Mapping[str, frozenset[Head]],
    ) -> None:
        self._elements = elements
        self.links = links
        # Copies of one element share a link, and so the place of the first copy.
        self._places: dict[str, int] = {}
        for place, name in enumerate(self.links):
            if name is not None:
                self._places.setdefault(name, place)
        self._known = _writers_by_link(known)
        self._previous: dict[int, str] = {}
        self._parents: dict[int, int] = {}
        self._children_left = dict.fromkeys(self._places.values(), 0)
        self._verdicts: dict[int, Verdict] = {}

    def grow(self, *, is_ordered: bool) -> None:
        """Tie each element to the one of the same writer that it links to, if that is at hand."""
        lasts = {name: place for place, name in enumerate(self.links)} if is_ordered else {}
        for name, place in self._places.items():
            writer, prev = self._elements.writers[place], self._elements.prevs[place]
            if prev is None or self._writer_of(prev) != writer:
                continue
            if not _stands_in(prev, self._elements.signed[place]):
                continue
            self._previous[place] = prev
            parent = self._places.get(prev)
            # Another copy of an element, later on, vouches for what is between the two.
            if parent is not None and parent <= lasts.get(name, parent):
                self._parents[place] = parent
                self._children_left[parent] += 1

    def judge(self, pool: Executor | None, unverified: Collection[str]) -> None:
        """Give every element in the trees its verdict."""
        for name in (self._known.keys() & self._places.keys()).difference(unverified):
            self._accept(self._places[name], Verdict.KNOWN)
        leaves = [place for place, count in self._children_left.items() if count == 0]
        while leaves := [place for place in leaves if place not in self._verdicts]:
            answers = verify_many([self._elements.check(place) for place in leaves], pool)
            judged = list(zip(leaves, answers, strict=True))
            for place, good in judged:
                if good:
                    self._accept(place, Verdict.SIGNED)
            leaves = [
                parent for place, good in judged if not good for parent in self._reject(place)
            ]

    def verdict(self, place: int) -> Verdict:
        """The verdict on the element, which is that on its first copy."""
        name = self.links[place]
        return Verdict.MALFORMED if name is None else self._verdicts[self._places[name]]

    def accepted(self) -> dict[int, str]:
        """The places of the accepted elements, each element once, with their links."""
        return {
            place: name
            for name, place in self._places.items()
            if self._verdicts[place] is not Verdict.FORGED
        }

    def previous(self, place: int) -> str | None:
        """The link to the previous element, if that element is at hand or a known head."""
        return self._previous.get(place)

    def _writer_of(self, name: str) -> str | None:
        place = self._places.get(name)
        return self._known.get(name) if place is None else self._elements.writers[place]

    def _accept(self, place: int, verdict: Verdict) -> None:
        self._verdicts[place] = verdict
        parent = self._parents.get(place)
        # Whatever is judged already was accepted, and has passed the word on to its own parent.
        while parent is not None and parent not in self._verdicts:
            self._verdicts[parent] = Verdict.LINKED
            parent = self._parents.get(parent)

    def _reject(self, place: int) -> list[int]:
        """Judge an element forged; returns its parent if that has become a leaf."""
        self._verdicts[place] = Verdict.FORGED
        parent = self._parents.get(place)
        if parent is None:
            return []
        self._children_left[parent] -= 1
        return [parent] if self._children_left[parent] == 0 else []


def _heads(
    elements: ChainColumns,
    accepted: Mapping[int, str],
    continued: Collection[str | None],
    known: Mapping[str, frozenset[Head]],
) -> dict[str, frozenset[Head]]:
    """The heads, old and new, that no accepted element continues."""
    heads = {
        writer: {head for head in each if head.link not in continued}
        for writer, each in known.items()
    }
    for place, name in accepted.items():
        if name in continued:
            continue
        writer = elements.writers[place]
        head = Head(name, elements.sessions[place], elements.seqs[place])
        heads.setdefault(writer, set()).add(head)
    return {writer: frozenset(each) for writer, each in heads.items()}


def _writers_by_link(known: Mapping[str, frozenset[Head]]) -> dict[str, str]:
    return {head.link: writer for writer, each in known.items() for head in each}
