"""Files of unsent edits: what was saved of a damaged local file, one JSON object in each line.

    {"format": "walstore-unsent", "documentKey": …, "author": …}
    {"session": …, "seq": …, "link": …}                    where a session stands
    {"session": …, "number": …, "packed": …}               an edit that was recorded
    {"canonical": …, "author": …, …, "acknowledged": …}    a body

- Bytes are in base64. A line that cannot be read costs that line alone, and is counted.
"""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from walstore.local.durable import sync_file
from walstore.local.faults import UnsentFileError, fault_of_system
from walstore.local.rows import LastSealed, OutboxBody, Pending, Recorded

_FORMAT = "walstore-unsent"


class Unsent(NamedTuple):
    """The unsent edits of a file that was set aside.

    Attributes:
        document_key: The document that they were made in.
        author: Who made them.
        pending: The edits and bodies, in order.
        sessions: Where their sessions stand, to seal what is recorded under the same.
        unreadable: How many lines cannot be read any more.
    """

    document_key: str
    author: str
    pending: Pending
    sessions: dict[str, LastSealed]
    unreadable: int


def unsent_files(path: str | os.PathLike[str]) -> list[Path]:
    """The files of unsent edits that were set aside beside a local file, oldest first."""
    beside = Path(os.path.realpath(path))
    pattern = re.compile(re.escape(beside.name) + r"\.unsent-([0-9]{1,9})\.jsonl")
    try:
        names = [(pattern.fullmatch(file.name), file) for file in beside.parent.iterdir()]
    except OSError as error:
        raise fault_of_system(beside, error) from error
    return [file for _, file in sorted((int(match[1]), file) for match, file in names if match)]


def read_unsent(file: str | os.PathLike[str]) -> Unsent:
    """Read a file of unsent edits, to be sent again.

    Raises:
        UnsentFileError: It is no such file.
        LocalFileError: It cannot be read.
    """
    path = Path(file)
    try:
        first, *lines = path.read_bytes().splitlines() or [b""]
    except OSError as error:
        raise fault_of_system(path, error) from error
    match _parse(first):
        case {"format": name, "documentKey": str(key), "author": str(author)} if name == _FORMAT:
            unsent = Unsent(key, author, Pending([], []), {}, 0)
        case _:
            raise UnsentFileError(path)
    return unsent._replace(unreadable=sum(not _take(_parse(line), unsent) for line in lines))


def write_unsent(path: Path, unsent: Unsent) -> None:
    """Write a new file of unsent edits, durable when this returns."""
    lines: list[dict[str, Any]] = [
        {"format": _FORMAT, "documentKey": unsent.document_key, "author": unsent.author},
        *({"session": session, **last._asdict()} for session, last in unsent.sessions.items()),
        *(
            {**edit._asdict(), "packed": _to_base64(edit.packed)}
            for edit in unsent.pending.recorded
        ),
        *(
            {**body._asdict(), "canonical": _to_base64(body.canonical)}
            for body in unsent.pending.bodies
        ),
    ]
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="ascii")
    sync_file(path)


def _parse(line: bytes) -> object:
    """What a line says, None if it is not JSON."""
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value


def _take(value: object, unsent: Unsent) -> bool:
    """Take in what a line says; tell whether it could be read."""
    try:
        match value:
            case {"packed": str(packed), "session": str(session), "number": int(number)}:
                unsent.pending.recorded.append(Recorded(session, number, _of_base64(packed)))
            case {
                "canonical": str(canonical),
                "author": str(author),
                "signature": str(signature),
                "link": str(link),
                "session": str(session),
                "seq": int(seq),
                "header": str(header),
                "epoch": str(epoch),
                "acknowledged": int() | None as ts,
            }:
                text = _of_base64(canonical)
                unsent.pending.bodies.append(
                    OutboxBody(text, author, signature, link, session, seq, header, epoch, ts)
                )
            case {"session": str(session), "seq": int(seq), "link": str(link)}:
                unsent.sessions[session] = LastSealed(seq, link)
            case _:
                return False
    except ValueError:
        return False
    return True


def _to_base64(kept: bytes) -> str:
    return base64.b64encode(kept).decode()


def _of_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
