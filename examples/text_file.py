"""A text file that follows a document: edit it in vim, and others see it in the editor.

    make demo                                                      # prints the relay's address
    python -m examples.text_file note.txt --relay ws://127.0.0.1:…
    vim note.txt

- Whatever is saved is merged with what others wrote meanwhile, and the file says both.
- Edits that are made while this does not run are merged when it runs again: what was agreed on last
  is remembered beside the file.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from walstore import ALLOW_ANY, Identity, WalStore, WalStoreError
from walstore.store.files import FileStatus


async def follow(options: argparse.Namespace) -> None:
    """Let the file and the document follow each other until told to stop."""
    beside = options.file.with_name(f".{options.file.name}.walstore")
    beside.mkdir(mode=0o700, exist_ok=True)
    key = beside / "identity.json"
    if not key.exists():
        Identity.generate().save(key)
    store = WalStore.open(
        options.document,
        identity=Identity.load(key),
        path=beside / "document.db",
        relay=options.relay,
        # Whoever knows the key of the document may write, as in the editor's demo.
        writers=ALLOW_ANY,
        snapshot_role=ALLOW_ANY,
    )
    async with (
        store,
        store.bind_file(
            options.file, text=options.text, memory=beside / "agreed", on_status=say
        ) as binding,
    ):
        say(binding.status)
        await asyncio.Event().wait()


def say(status: FileStatus) -> None:
    """Say how the two stand."""
    print(f"{status.state}: {status.reason}" if status.reason else status.state, flush=True)


def main() -> int:
    """Read the command line, and carry it out."""
    parser = argparse.ArgumentParser(prog="python -m examples.text_file")
    parser.add_argument("file", type=Path)
    parser.add_argument("--relay", metavar="URL", help="where the others are")
    parser.add_argument("--document", metavar="KEY", default="notes/demo")
    parser.add_argument("--text", default="body", help="which text of the document (body)")
    try:
        asyncio.run(follow(parser.parse_args()))
    except KeyboardInterrupt:
        return 0
    except (WalStoreError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
