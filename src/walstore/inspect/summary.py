"""A document under inspection as JSON, and as some lines of text where there is no terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from walstore.inspect.places import Line
from walstore.inspect.subject import UNSENT, VERIFIED, Subject

# Rejections, gaps and forks that are listed; all are counted.
LISTED_MAX = 100

# A relay counts in milliseconds since 1970; whatever is outside of these is no such time.
_TIME_MS_MIN, _TIME_MS_MAX = 10**12, 10**13


def time_of(ts: int) -> str:
    """When something was stored, by the clock of its relay; empty if its `ts` is no time."""
    if not _TIME_MS_MIN < ts < _TIME_MS_MAX:
        return ""
    moment = datetime.fromtimestamp(ts / 1000, UTC).replace(tzinfo=None)
    return moment.isoformat(" ", "milliseconds") + "Z"


def summary_of(subject: Subject) -> dict[str, Any]:
    """What there is to know about a document."""
    upto, verdict = subject.snapshot
    return {
        "document": subject.key,
        "place": subject.place.name,
        "believed": subject.trust.said,
        "elements": subject.elements,
        "bytes": subject.bytes,
        "versions": len(subject.versions),
        "authors": list(_authors(subject)),
        "names": [
            {"name": name, "kind": subject.kind(name), "length": _length(subject, name)}
            for name in subject.names()
        ],
        "retention": {
            "starts_at": subject.start,
            "snapshot_upto": upto,
            "snapshot": verdict,
        },
        "unsent": _unsent(subject),
        "unsigned": subject.place.recorded,
        "unreadable": subject.unreadable,
        "gaps": [each._asdict() for each in subject.gaps[:LISTED_MAX]],
        "forks": [
            {"author": each.author, "counter": each.counter, "replica": each.replica}
            for each in subject.forks[:LISTED_MAX]
        ],
        "rejected": [
            {"ts": each.ts, "author": each.author, "reason": each.reason, "proven": each.proven}
            for each in subject.rejections[:LISTED_MAX]
        ],
        "lost": [each.reason for each in subject.rollbacks],
    }


def _length(subject: Subject, name: str) -> int | None:
    return subject.length(name) if subject.kind(name) in ("list", "text") else None


def _unsent(subject: Subject) -> int:
    first = subject.place.unsent_from
    return 0 if first is None else sum(line.ts >= first for line in subject.lines)


def _authors(subject: Subject) -> Iterator[dict[str, Any]]:
    by_author: dict[str, list[Line]] = {}
    for line in subject.lines:
        by_author.setdefault(line.author, []).append(line)
    for author, lines in sorted(by_author.items(), key=lambda item: -len(item[1])):
        yield {
            "author": author,
            "elements": len(lines),
            "verified": sum(subject.verdict(line) in (VERIFIED, UNSENT) for line in lines),
            "bytes": sum(line.size for line in lines),
            "sessions": len({line.session for line in lines}),
            "first": lines[0].ts,
            "last": lines[-1].ts,
        }


def text_of(summary: Mapping[str, Any]) -> str:
    """The same for people."""
    retention = summary["retention"]
    lines = [
        f"{summary['document']}  at {summary['place']}",
        f"  {summary['elements']:,} elements, {summary['bytes']:,} bytes;"
        f" {summary['versions']:,} versions can be read",
        f"  believed: {summary['believed']}",
        "",
        "authors",
        *(
            f"  {each['author'][:16]}  {each['elements']:>7,} elements"
            f"  {each['verified']:>7,} verified  {each['sessions']:>3} sessions"
            f"  {time_of(each['last']) or each['last']}"
            for each in summary["authors"]
        ),
        "",
        "content",
        *(
            f"  {each['name']}  {each['kind']}"
            + ("" if each["length"] is None else f" of {each['length']:,}")
            for each in summary["names"]
        ),
        "",
        "retention",
        "  the log goes back to its beginning"
        if not retention["starts_at"]
        else f"  versions start at {time_of(retention['starts_at']) or retention['starts_at']}",
        f"  snapshot: {retention['snapshot']}",
        "",
        *faults_in(summary),
    ]
    return "\n".join(lines) + "\n"


def faults_in(summary: Mapping[str, Any]) -> Sequence[str]:
    """What is missing or wrong, or that nothing is."""
    found = [
        f"  {each['author'][:16]}: elements {each['expected']} to {each['got'] - 1} are missing"
        for each in summary["gaps"]
    ]
    found += [
        f"  {each['author'][:16]}: clock {each['counter']} was used twice"
        for each in summary["forks"]
    ]
    found += [
        f"  {time_of(each['ts'] or 0) or each['ts']}  {(each['author'] or '')[:16]}:"
        f" {each['reason']}"
        for each in summary["rejected"]
    ]
    found += [f"  lost: {reason}" for reason in summary["lost"]]
    for name, said in (
        ("unreadable", "wait for a key"),
        ("unsent", "are not sent yet"),
        ("unsigned", "edits are not signed yet"),
    ):
        if summary[name]:
            found.append(f"  {summary[name]:,} {said}")
    return ["gaps and faults", *found] if found else ["no gaps, no faults"]
