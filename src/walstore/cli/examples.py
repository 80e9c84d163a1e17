"""What each command's help shows last: lines to copy, the plainest first.

- The tests hand every line to the parser of its command, so none can be wrong for long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "init": (
        "walstore init notes",
        "walstore init notes --relay ws://127.0.0.1:3400",
        "walstore init diary --sealed",
    ),
    "show": (
        "walstore show",
        "walstore show notes",
        "walstore show notes --at ~1",
    ),
    "get": (
        "walstore get notes title",
        "walstore get notes who/ada",
        "walstore get notes body --sync > body.txt",
    ),
    "set": (
        'walstore set notes title "A picnic"',
        'walstore set notes body "Meet at the lake." --type text',
        "walstore set notes bring cheese --append",
        "walstore set notes who/ada salad",
        "walstore set notes title --delete",
    ),
    "edit": (
        "walstore edit notes body",
        "EDITOR=nano walstore edit notes body",
    ),
    "undo": (
        "walstore undo notes --dry-run",
        "walstore undo notes",
        "walstore undo notes --redo",
    ),
    "log": (
        "walstore log notes",
        "walstore log notes -n 5",
        "walstore log notes --json",
    ),
    "diff": (
        "walstore diff notes ~1",
        "walstore diff notes +1 now",
    ),
    "blame": (
        "walstore blame notes body",
        "walstore blame notes body --at ~3",
    ),
    "sync": (
        "walstore sync notes --relay ws://127.0.0.1:3400",
        "walstore sync",
        "walstore sync notes --follow",
    ),
    "keygen": (
        "walstore keygen",
        "walstore keygen work",
        "walstore keygen --list",
    ),
    "share": (
        "walstore share notes walstore-card.… --as bo",
        "walstore share notes - --role reader < card.txt",
        "walstore share notes",
    ),
    "join": (
        "walstore join walstore-invitation.…",
        "walstore join - picnic < invitation.txt",
    ),
    "revoke": (
        "walstore revoke notes bo --dry-run",
        "walstore revoke notes bo",
    ),
    "verify": (
        "walstore verify notes",
        "walstore verify note.db",
        "walstore verify archive/ --prefix notes/",
    ),
    "restore": (
        "walstore restore notes",
        "walstore restore notes --json",
    ),
    "compact": (
        "walstore compact notes --dry-run",
        "walstore compact notes",
    ),
    "inspect": (
        "walstore inspect notes",
        "walstore inspect ws://127.0.0.1:3400",
        "walstore inspect walstore-relay.db --document notes",
    ),
    "doctor": (
        "walstore doctor",
        "walstore doctor --offline --json",
    ),
    "relay": (
        "walstore relay",
        "walstore relay --port 0 --database /tmp/relay.db",
        "walstore relay --host 0.0.0.0 --roles roles.toml",
    ),
    "relay compact": (
        "walstore relay compact --dry-run",
        "walstore relay compact --url http://127.0.0.1:3400",
    ),
    "archive run": (
        "walstore archive run --config archive.toml",
        "walstore archive run --config archive.toml --once",
    ),
    "archive export": (
        "walstore archive export archive/ --prefix notes/",
        "walstore archive export archive/ --format parquet --output notes.parquet",
        "walstore archive export archive/ --follow",
    ),
    "archive reconstruct": (
        "walstore archive reconstruct archive/ --at 42",
        "walstore archive reconstruct archive/ --format parquet --output then.parquet",
    ),
    "archive verify": (
        "walstore archive verify archive/",
        "walstore archive verify archive/ --prefix notes/ --json",
    ),
    "archive gc": (
        "walstore archive gc archive/ --dry-run",
        "walstore archive gc archive/ --grace 1h",
    ),
    "completion": (
        'eval "$(walstore completion bash)"',
        "walstore completion fish > ~/.config/fish/completions/walstore.fish",
    ),
}
