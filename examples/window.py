"""A window that is bound to a store: what is typed into it is in the document, and the other way.

    pip install nicegui
    python -m examples.window --relay ws://127.0.0.1:3400      # then open http://127.0.0.1:8080

- Each field is bound to a path. What others write shows at once, and what two type at the same time
  is merged, because a binding knows what the field showed before.
- Every tab is a window of its own on one store.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from nicegui import app, ui

from walstore import ALLOW_ANY, Identity, WalStore

TITLE: Final = "title"
BODY: Final = "body"
DONE: Final = "done"


def window(store: WalStore) -> None:
    """Build a window over a store."""
    ui.label(store.key).classes("text-caption")
    bound(store, ui.input("Title").classes("w-full"), TITLE, as_text=True)
    bound(store, ui.textarea("Note").classes("w-full").props("autogrow"), BODY, as_text=True)
    bound(store, ui.checkbox("Done"), DONE, default=False)


def bound(store: WalStore, element: Any, path: str, **options: Any) -> None:
    """Let an element and a path show the same."""

    def listen(edit: Callable[[Any], None]) -> Callable[[], None]:
        element.on_value_change(lambda event: edit(event.value))
        return lambda: None

    store.bind(element, "value", path, listen=listen, **options)


def main() -> int:
    """Open the store with the server, and close it with the server."""
    parser = argparse.ArgumentParser(prog="python -m examples.window")
    parser.add_argument("--relay", metavar="URL", help="where the others are")
    parser.add_argument("--document", metavar="KEY", default="notes/demo")
    parser.add_argument("--file", type=Path, help="keep what is written in a file")
    parser.add_argument("--port", type=int, default=8080)
    options = parser.parse_args()
    store = WalStore.open(
        options.document,
        identity=identity_of(options.file),
        path=options.file,
        relay=options.relay,
        # Whoever knows the key of the document may write, as in the editor's demo.
        writers=ALLOW_ANY,
        snapshot_role=ALLOW_ANY,
    )
    app.on_startup(store.__aenter__)
    app.on_shutdown(lambda: store.__aexit__(None, None, None))
    ui.run(
        lambda: window(store),
        host="127.0.0.1",
        port=options.port,
        title="walstore",
        show=False,
        reload=False,
    )
    return 0


def identity_of(file: Path | None) -> Identity:
    """Who writes: always the same one for a file."""
    if file is None:
        return Identity.generate()
    key = file.with_name(f"{file.name}.identity")
    if not key.exists():
        Identity.generate().save(key)
    return Identity.load(key)


if __name__ == "__main__":
    sys.exit(main())
