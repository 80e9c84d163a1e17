"""The command `python -m benchmarks.editor`: measures, prints a table, and holds it to its targets.

- The figures are CPU milliseconds of the editor's process, from an event to the frame that shows
  it. 16 ms are a frame of a screen that shows sixty a second.
- `remote edit` is a frame that shows what others edited, `each` its share for each edit in it.
- `busy` is how much longer the same work took than when it was quickest, because of whatever else
  the machine does: far above 1, the figures are not the editor's.
- It returns 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from benchmarks.editor.cases import Measured, Setting, measured

_LINES = 100, 1_000, 10_000, 50_000
_PEERS = 0, 1, 5
_SETTINGS = [
    *[Setting(lines, peers) for lines in _LINES for peers in _PEERS],
    *[Setting(10_000, peers, 200, 60) for peers in (0, 5)],
]
_SETTINGS_QUICK = [Setting(100, 0), Setting(10_000, 0), Setting(10_000, 5)]
_KINDS = "key", "newline", "backspace", "joining lines", "paste", "remote edit"
# Of edits that one frame shows.
_EACH = "each"


class Target(NamedTuple):
    """What the 95th percentile of something has to be at most, in milliseconds."""

    setting: Setting
    kind: str
    ms_max: float


# A frame for what others wait to see; one more for what pastes twenty lines.
_FRAME_MS = 16.0
_TARGETS = [
    *[Target(Setting(10_000, 5), kind, _FRAME_MS) for kind in _KINDS if kind != "paste"],
    Target(Setting(10_000, 5), "paste", 2 * _FRAME_MS),
]


def main() -> int:
    """Measure, print, and return 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.editor", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three settings, fewer key-presses")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    rounds, watched_s = (20, 4.0) if options.quick else (60, 10.0)
    settings = _SETTINGS_QUICK if options.quick else _SETTINGS
    results: dict[Setting, Measured] = {}
    print("CPU milliseconds from an event to the screen: median / 95th percentile\n")
    print(_row("screen", "lines", "peers", [*_KINDS, _EACH, "busy"]), flush=True)
    for setting in settings:
        _say(str(setting))
        results[setting] = measured(setting, rounds=rounds, watched_s=watched_s)
        _say("")
        print(_shown(setting, results[setting]), flush=True)
    print()
    print("\n".join([*_growth(results), *_verdicts(results)]))
    if options.json:
        content = [
            {
                **setting._asdict(),
                "busy": result.busy,
                **{kind: figure._asdict() for kind, figure in result.figures.items()},
            }
            for setting, result in results.items()
        ]
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    return int(any(_is_missed(target, results) for target in _TARGETS))


def _shown(setting: Setting, result: Measured) -> str:
    figures = result.figures
    cells = [
        f"{figures[kind].p50:.1f} / {figures[kind].p95:.1f}" if kind in figures else "–"
        for kind in (*_KINDS, _EACH)
    ]
    cells.append(f"×{result.busy:.2f}")
    screen = f"{setting.width}×{setting.height}"
    return _row(screen, f"{setting.lines:,}", str(setting.peers), cells)


def _row(screen: str, lines: str, peers: str, cells: Iterable[str]) -> str:
    return f"{screen:<8}{lines:>8}{peers:>7}" + "".join([f"{cell:>15}" for cell in cells])


def _growth(results: dict[Setting, Measured]) -> list[str]:
    """How medians of a screen of 80×24 grow from the shortest text to the longest."""
    rows = []
    for peers in _PEERS:
        alike = [each for each in results if each.peers == peers and each.width == 80]
        if len(alike) < 2:
            continue
        short, long = alike[0], alike[-1]
        ratios = [
            f"{kind} ×{results[long].figures[kind].p50 / figure.p50:.2f}"
            for kind, figure in results[short].figures.items()
        ]
        rows.append(
            f"from {short.lines:,} to {long.lines:,} lines with {peers} peers: {', '.join(ratios)}"
        )
    return rows


def _verdicts(results: dict[Setting, Measured]) -> list[str]:
    return [
        f"target  {target.kind} at {target.setting}: "
        f"{results[target.setting].figures[target.kind].p95:.1f} ms, at most {target.ms_max:g}"
        + ("  missed" if _is_missed(target, results) else "")
        for target in _TARGETS
        if target.setting in results
    ]


def _is_missed(target: Target, results: dict[Setting, Measured]) -> bool:
    result = results.get(target.setting)
    return result is not None and result.figures[target.kind].p95 > target.ms_max


def _say(line: str) -> None:
    """Show progress where it does not mix with the table."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
