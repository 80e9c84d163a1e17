"""Globs of storage paths, as the scopes of capabilities use them.

- `*` matches within a segment, `**` across segments, everything else itself.
- What a glob with `!` in front denies stays denied, whatever else is allowed, and so does
  everything below it. Globs that only deny allow nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

_GLOB_PARTS = re.compile(r"\*\*|\*|[^*]+")


def path_allowed(path: str, globs: Sequence[str] | None) -> bool:
    """Whether the globs of a scope allow a storage path; all is allowed if there are none.

    Args:
        path: The storage path, decoded.
        globs: With `{identity}` already replaced.
    """
    if not globs:
        return True
    # Servers skip empty segments and dots, so these must not lead past what is denied.
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    target = "/".join(segments)
    denied = [glob.removeprefix("!") for glob in globs if glob.startswith("!")]
    if any(_matches(glob, target) or _matches(f"{glob}/**", target) for glob in denied):
        return False
    return any(_matches(glob, target) for glob in globs if not glob.startswith("!"))


def _matches(glob: str, target: str) -> bool:
    # All places of the target that the glob so far can lead to. There are no more of them than
    # characters, so no glob makes this slow.
    places = {0}
    for part in _GLOB_PARTS.findall(glob):
        if part == "**":
            places = set(range(min(places), len(target) + 1))
        elif part == "*":
            places = set(_within_segment(target, places))
        else:
            places = {at + len(part) for at in places if target.startswith(part, at)}
        if not places:
            return False
    return len(target) in places


def _within_segment(target: str, places: Iterable[int]) -> Iterator[int]:
    """The places up to the end of each segment that one of the places is in."""
    end = -1
    for place in sorted(places):
        if place > end:
            slash = target.find("/", place)
            end = len(target) if slash < 0 else slash
            yield from range(place, end + 1)
