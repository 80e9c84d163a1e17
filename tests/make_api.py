"""Writes docs/api.md, the reference of what is public, from the docstrings.

    python -m tests.make_api            # writes it anew
    python -m tests.make_api --check    # says whether it is up to date

- What is listed is what is promised: the façade, and of the packages beside it what an app needs.
- A docstring is shown as it is written, its sections as lists.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "docs" / "api.md"

# Modules in the order of a reader, and what is shown of each; all that it promises if nothing is.
MODULES: dict[str, tuple[str, ...]] = {
    "walstore": (
        "WalStore",
        "Change",
        "Identity",
        "WalDocument",
        "View",
        "Marks",
        "ALLOW_ANY",
        "MemoryTransport",
        "MemorySnapshots",
        "WalCrdt",
        "Writer",
        "pack_ops",
        "unpack_ops",
        "to_ops",
        "to_runs",
        "compare_clocks",
        "derive_replica_id",
        "LamportClock",
        "WalStoreError",
        "UsageError",
        "PeerError",
        "StorageError",
        "TransportError",
    ),
    "walstore.store.status": ("StoreStatus",),
    "walstore.store.sharing": ("Sharing", "Person"),
    "walstore.store.presence": ("Presence", "Cursor"),
    "walstore.store.typed": ("Schema", "Typed", "Text"),
    "walstore.store.files": ("FileBinding", "FileStatus"),
    "walstore.net.websocket": ("WebSocketTransport",),
    "walstore.relay": (),
    "walstore.archive.reader": ("Archive",),
    "walstore.textual": (),
}

_SECTION = re.compile(r"^(Args|Raises|Returns|Attributes|Yields):$")
_ITEM = re.compile(r"^ {4}(\*{0,2}[\w.`]+): (.*)$")

_HEAD = """\
# Reference

What is public, from the docstrings. `python -m tests.make_api` writes this page, and the tests look
whether it is up to date. [store.md](store.md) explains it in the order in which one needs it.
"""


def main(arguments: list[str]) -> int:
    """Write the page, or say whether it is up to date; the exit status."""
    page = reference()
    if "--check" not in arguments:
        TARGET.write_text(page, encoding="utf-8")
        print(f"wrote {TARGET}")
        return 0
    is_same = TARGET.exists() and TARGET.read_text(encoding="utf-8") == page
    print("up to date" if is_same else "docs/api.md is old: python -m tests.make_api")
    return 0 if is_same else 1


def reference() -> str:
    """The whole page."""
    parts = [_HEAD]
    for name, wanted in MODULES.items():
        module = import_module(name)
        parts.append(f"## `{name}`\n")
        parts.append(f"{first_sentence(module)}\n")
        for each in wanted or module.__all__:
            parts += entry(name, each, getattr(module, each))
    return "\n".join(parts)


def first_sentence(member: object) -> str:
    """What something is for."""
    lines = (inspect.getdoc(member) or "").split("\n\n", 1)[0].splitlines()
    return " ".join(lines)


def entry(module: str, name: str, member: object) -> Iterator[str]:
    """A class with its methods, a function, or a value."""
    if inspect.isclass(member):
        yield f"### `{name}`\n"
        yield f"{described(member)}\n"
        for method, function in methods(member):
            said = first_sentence(function) + raised(function)
            yield f"- **`{method}{signature(function)}`** {said}"
        yield ""
    elif callable(member):
        yield f"### `{name}{signature(member)}`\n"
        yield f"{described(member)}\n"
    else:
        yield f"### `{name}`\n"


def raised(member: object) -> str:
    """What a method raises on purpose, in one sentence."""
    _, _, section = (inspect.getdoc(member) or "").partition("\nRaises:\n")
    names = re.findall(r"^ {4}(\w+): ", section, re.M)
    return f" Raises {', '.join(f'`{name}`' for name in names)}." if names else ""


def methods(member: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties of a class, in the order in which they are written."""
    if issubclass(member, Exception):
        return
    seen: set[str] = set()
    for base in member.__mro__:
        if not base.__module__.startswith("walstore"):
            continue
        for name, value in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            found = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            if inspect.isfunction(found) or isinstance(found, property):
                yield name, found


def signature(member: object) -> str:
    """How something is called; nothing for a property."""
    if isinstance(member, property) or inspect.isclass(member):
        return ""
    try:
        found = inspect.signature(member)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "(…)"
    names = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in found.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    shown = inspect.Signature(names)
    text = re.sub(r"<([\w.]+)[^>]*>", r"\1", str(shown))
    return f"{text} (awaited)" if inspect.iscoroutinefunction(member) else text


def described(member: object) -> str:
    """A docstring as Markdown: its sections become lists."""
    lines: list[str] = []
    for line in (inspect.getdoc(member) or "").splitlines():
        section, item = _SECTION.match(line), _ITEM.match(line)
        if section is not None:
            lines += [f"*{section[1]}*\n"]
        elif item is not None:
            lines.append(f"- `{item[1].strip('`')}`: {item[2]}")
        elif line.startswith("        "):
            lines.append(f"  {line.strip()}")
        else:
            lines.append(line.removeprefix("    "))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
