"""docs/cli.md: its commands do what it says, from top to bottom, by the installed command."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.test_docs import fenced_blocks

ROOT = Path(__file__).resolve().parent.parent


def test_the_commands_of_the_guide_run(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    blocks = [block.text for block in fenced_blocks(text) if block.words == "sh"]
    assert len(blocks) > 5
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    blocks = [block.replace("34567", port) for block in blocks]
    script = "set -eu\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + "\n".join(blocks)
    environment = {
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "Picnic" in lines
    assert "Meet at the lake. At noon!" in done.stdout
    assert "+12" in lines
    assert any("sound" in line for line in lines)
    assert '["bread","cheese"]' in lines
