"""Element ids: `<counter>@<replica>` of the clock that inserted the element.

- The decimal counter has no sign and no leading zero, so that an id has one spelling only.
- The empty id is the head of a list.
"""

from __future__ import annotations

from typing import Final

from walstore.crdt.clock import COUNTER_MAX

_COUNTER_DIGITS_MAX: Final = len(str(COUNTER_MAX))


def element_id(counter: int, replica: str) -> str:
    """The id of the element that a clock inserted."""
    return f"{counter}@{replica}"


def parse_element_id(id: str) -> tuple[int, str] | None:
    """Counter and replica of an id, or None if it is no clock's id."""
    digits, at, replica = id.partition("@")
    if not at or not digits.isascii() or not digits.isdecimal() or digits[0] == "0":
        return None
    if len(digits) > _COUNTER_DIGITS_MAX:
        return None
    counter = int(digits)
    return (counter, replica) if counter <= COUNTER_MAX else None
