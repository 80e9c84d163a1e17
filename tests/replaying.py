"""What a document shows, by path, and what its changes make of that: deltas held to their law."""

from __future__ import annotations

from typing import Any

from walstore.store.change import ABSENT, Change, CrdtState, apply_delta


def shown(state: CrdtState) -> dict[str, Any]:
    """The values of all paths."""
    values: dict[str, Any] = {}
    for name in state.names():
        match state.kind(name):
            case "register":
                values[name] = state.register(name)
            case "map":
                values |= {
                    f"{name}/{key}": state.map_value(name, key) for key in state.map_keys(name)
                }
            case _:
                values[name] = state.list_value(name)
    return values


def replay(values: dict[str, Any], change: Change) -> None:
    """Make a change in the values of all paths."""
    for path in [path for path in values if path.startswith(f"{change.path}/")]:
        del values[path]
    after = apply_delta(values.pop(change.path, ABSENT), change.delta)
    if after is not ABSENT:
        values[change.path] = after
