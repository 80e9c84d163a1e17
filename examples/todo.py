"""A to-do list on the command line, the same on every computer that holds its key.

python -m examples.todo add buy bread
python -m examples.todo                  # lists them
python -m examples.todo done 1
python -m examples.todo --relay ws://127.0.0.1:3400 --home ~/.todo add take the kite
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from walstore import Identity, WalStore, WalStoreError


async def todo(options: argparse.Namespace) -> int:
    """Do what was asked, and list what there is to do; the exit status."""
    options.home.mkdir(parents=True, exist_ok=True)
    key = options.home / "identity.json"
    if not key.exists():
        Identity.generate().save(key)
    path, identity = options.home / "todo.db", Identity.load(key)
    async with WalStore.open("todo", identity=identity, path=path, relay=options.relay) as store:
        if options.relay:
            await store.pull()
        tasks = store.list("tasks")
        match options.what:
            case ["add", first, *rest]:
                tasks.append({"what": " ".join([first, *rest]), "done": False})
            case ["done", number] if number.isdecimal() and 0 < int(number) <= len(tasks):
                place = int(number) - 1
                tasks[place] = {**tasks[place], "done": True}
            case []:
                pass
            case _:
                print("say `add WHAT`, or `done NUMBER` of one that is listed", file=sys.stderr)
                return 2
        for number, task in enumerate(tasks, 1):
            print(f"{number:>3} {'☑' if task['done'] else '☐'} {task['what']}")
        if not tasks:
            print("nothing to do; say `add WHAT`", file=sys.stderr)
        await store.flush()
    return 0


def main() -> int:
    """Read the command line, and carry it out."""
    parser = argparse.ArgumentParser(prog="python -m examples.todo", description="What is to do.")
    parser.add_argument("what", nargs="*", help="`add WHAT`, `done NUMBER`, or nothing")
    parser.add_argument("--home", type=Path, default=Path.home() / ".walstore-todo")
    parser.add_argument("--relay", metavar="URL", help="keep it the same on other computers")
    try:
        return asyncio.run(todo(parser.parse_args()))
    except WalStoreError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
