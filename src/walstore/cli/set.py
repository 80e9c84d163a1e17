"""`walstore set`: write, append or delete one value of a document."""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from walstore.cli.arguments import SYNC, document_parser, parsed
from walstore.cli.documents import KnownDocument, find_document
from walstore.cli.opened import opened
from walstore.cli.output import json_text, note, put_json
from walstore.cli.values import NothingThereError, value_at
from walstore.cli.writing import writing
from walstore.document.content import KindError
from walstore.errors import UsageError
from walstore.store.change import ABSENT
from walstore.store.disk import FILE_BYTES_MAX
from walstore.store.merging import is_same
from walstore.store.store import WalStore

TYPES = ("string", "text", "json", "list", "map")


class NotThatTypeError(UsageError):
    """A value is not of the type that it is said to be."""

    def __init__(self, kind: str, reason: str) -> None:
        example = {"list": """'["a", 1]'""", "map": """'{"a": 1}'"""}.get(kind, """'{"a": [1]}'""")
        super().__init__(f"not a value of --type {kind}: {reason}; one is like {example}")


class OtherKindError(UsageError):
    """A name stands for something that cannot be written like this."""

    def __init__(self, document: str, name: str, *, kind: str, wanted: str) -> None:
        shown = "plain value" if kind == "register" else kind
        # An emptied list would hide a map.
        way_out = "use another name"
        if not (kind in ("list", "text") and wanted == "map"):
            way_out += f", or delete it first: walstore set {document} {name} --delete"
        super().__init__(
            f"{name} in {document} is a {shown} and cannot become something else by this; {way_out}"
        )


class NothingToWriteError(UsageError):
    """A text, a list or a map begins with the first thing in it."""

    def __init__(self, document: str, place: str) -> None:
        super().__init__(
            f"nothing was written: {document} has nothing called {place}, and an empty text, list"
            " or map is not there either until something is in it"
        )


def parser() -> ArgumentParser:
    """What `walstore set` takes."""
    made = document_parser(
        "set",
        "Write one value. What is a text or a list by now is edited, so that what others write"
        " at the same time stays; anything else is replaced.",
    )
    made.add_argument("place", metavar="name", help="its name, or name/key in a map")
    made.add_argument("value", nargs="?", help="what to write; - reads it from standard input")
    made.add_argument(
        "--type",
        choices=TYPES,
        default="string",
        help="string (as it is), text (to be edited by several at once), json (any value),"
        " list or map (each part of it can be edited by itself)",
    )
    made.add_argument("--append", action="store_true", help="add it at the end of a list or a text")
    made.add_argument("--delete", action="store_true", help="delete what is there")
    made.add_argument("--dry-run", action="store_true", help="only say what would change")
    made.add_argument("-m", "--message", help="what to say of it in the log")
    made.add_argument("--sync", action="store_true", help=SYNC)
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore set …`; the exit code."""
    made = parser()
    flags = parsed(made, arguments)
    if not flags.place.partition("/")[0]:
        made.error("the name is empty")
    if flags.delete == (flags.value is not None):
        made.error("give a value, or --delete")
    return asyncio.run(_set(flags))


async def _set(flags: Namespace) -> int:
    document = find_document(flags.document, beside=flags.place)
    value = None if flags.delete else _value(flags.type, flags.value)
    if flags.dry_run:
        await _preview(document, flags)
        return 0
    done = f"{'deleted' if flags.delete else 'wrote'} {flags.place} in {document.name}"
    async with writing(document, done=done, is_synced=flags.sync) as store:
        with store.batch(flags.message):
            if flags.delete:
                _delete(store, document, flags.place)
            else:
                _try_to_write(store, document, value, flags)
        if flags.json:
            shown = None if flags.delete else value_at(store, document.name, flags.place)
            await store.flush()
            put_json({"name": flags.place, "value": shown, "unsent": store.status.unsent})
    return 0


async def _preview(document: KnownDocument, flags: Namespace) -> None:
    async with opened(document) as store:
        try:
            value = value_at(store, document.name, flags.place)
        except NothingThereError:
            if flags.delete:
                raise
            value = None
    verb = "be deleted" if flags.delete else "become something else"
    note(f"{flags.place} in {document.name} would {verb}; now it is {json_text(value)}")


def _value(kind: str, given: str) -> Any:
    """What was given, as a value.

    Raises:
        NotThatTypeError: It is none of that type.
    """
    text = _standard_input() if given == "-" else given
    if kind in ("string", "text"):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotThatTypeError(kind, f"not JSON ({error})") from error
    if kind == "list" and not isinstance(value, list):
        raise NotThatTypeError(kind, "not a JSON array")
    if kind == "map" and not isinstance(value, dict):
        raise NotThatTypeError(kind, "not a JSON object")
    return value


def _standard_input() -> str:
    text = sys.stdin.read(FILE_BYTES_MAX + 1)
    if len(text) > FILE_BYTES_MAX:
        raise UsageError(f"standard input is longer than {FILE_BYTES_MAX:,} characters")
    return text


def _try_to_write(store: WalStore, document: KnownDocument, value: Any, flags: Namespace) -> None:
    name = flags.place.partition("/")[0]
    if store.document.kind(name) in ("list", "map") and not store[name]:
        # It was emptied, maybe to make room for this.
        store.document.migrate(name)
    try:
        _write(store, flags.place, value, flags)
    except KindError as error:
        raise OtherKindError(document.name, name, kind=error.kind, wanted=error.wanted) from error
    try:
        value_at(store, document.name, flags.place)
    except NothingThereError as error:
        raise NothingToWriteError(document.name, flags.place) from error


def _write(store: WalStore, place: str, value: Any, flags: Namespace) -> None:
    name, _, key = place.partition("/")
    is_key = bool(key) and place not in store
    if flags.append and is_key and store.document.kind(name) == "map":
        raise UsageError(f"{place} is a key of a map, which has one value: nothing can be appended")
    if flags.append:
        _append(store, place, value)
    elif is_key:
        store.put(name, key, value)
    elif flags.type == "text":
        store.set_text(place, value)
    elif flags.type == "list":
        store.set_list(place, value)
    elif flags.type == "map":
        _write_map(store, place, value)
    else:
        store[place] = value


def _append(store: WalStore, name: str, value: Any) -> None:
    if store.document.kind(name) == "text" and isinstance(value, str):
        store.edit_text(name, store.document.length(name), 0, value)
    else:
        store.list(name).append(value)


def _write_map(store: WalStore, name: str, entries: dict[str, Any]) -> None:
    before = store[name] if store.document.kind(name) == "map" else {}
    for key in before.keys() - entries.keys():
        store.drop(name, key)
    for key, value in entries.items():
        if not is_same(before.get(key, ABSENT), value):
            store.put(name, key, value)


def _delete(store: WalStore, document: KnownDocument, place: str) -> None:
    value_at(store, document.name, place)
    name, _, key = place.partition("/")
    if place in store:
        del store[place]
    else:
        store.drop(name, key)
