"""Typed characters as pycrdt's updates; runs in the peers' environment, and imports nothing else.

Run as `python pycrdt_updates.py WRITERS COUNT`; prints, for each writer, the messages of one
document that is typed character by character, in hexadecimal digits.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

_pycrdt = import_module("pycrdt")


def typed(count: int) -> list[str]:
    """The messages of one writer."""
    messages: list[str] = []

    def keep(event: Any) -> None:
        messages.append(_pycrdt.create_update_message(event.update).hex())

    document = _pycrdt.Doc()
    text = document.get("text", type=_pycrdt.Text)
    subscription = document.observe(keep)
    for number in range(count):
        text += "abcdefghij klmnopqrst"[number % 21]
    document.unobserve(subscription)
    return messages


if __name__ == "__main__":
    print(json.dumps([typed(int(sys.argv[2])) for _ in range(int(sys.argv[1]))]))
