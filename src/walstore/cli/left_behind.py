"""What lies beside a document's file since that was found damaged, and who is told of it.

- A damaged file is told of once, by whoever finds it. What was set aside with it is still there
  later, and the document still lacks it: so every command that opens the document says so.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from walstore.cli.documents import KnownDocument
from walstore.cli.output import note
from walstore.local import unsent_files


@cache
def tell_left_behind(document: KnownDocument) -> None:
    """Say what was set aside, once in a process, however often the document is opened.

    Raises:
        LocalFileError: The directory cannot be read.
    """
    unsent, damaged = unsent_files(document.file), _damaged_files(document.file)
    if unsent:
        note(
            f"{unsent[0]} holds unsent edits of a file that was damaged; bring them back: walstore"
            f" restore {document.name}"
        )
    elif damaged:
        note(
            f"{damaged[0]} was set aside because it was damaged; move it away once nothing is"
            " missing here"
        )


def _damaged_files(file: Path) -> list[Path]:
    found = sorted(file.parent.glob(f"{file.name}.damaged-*"))
    return [each for each in found if not each.name.endswith("-wal")]
