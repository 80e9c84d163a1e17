"""Python's garbage collector kept from running while a whole list is laid out.

- Laying out makes thousands of objects and no garbage; the collector would walk them again and
  again, which takes up to a fifth of the time.
- It is on again afterwards, whatever happens, unless whoever runs this has turned it off. If two
  threads do this at once it may be on early, which costs time and nothing else.
"""

from __future__ import annotations

import gc


class CollectorPaused:
    """A block in which the collector does not run."""

    __slots__ = ("_was_on",)

    def __init__(self) -> None:
        self._was_on = False

    def __enter__(self) -> None:
        self._was_on = gc.isenabled()
        gc.disable()

    def __exit__(self, *raised: object) -> None:
        if self._was_on:
            gc.enable()
