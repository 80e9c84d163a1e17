"""How the editor and the inspector end: the terminal is as it was, and nothing is lost."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from examples.textual_editor.sessions import Session, load_identity
from tests.terminals import Terminal, terminal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal of POSIX")

EDITOR = "examples.textual_editor"
LEFT_SCREEN, SHOWN_CURSOR = b"\x1b[?1049l", b"\x1b[?25h"


def wrote(shell: Terminal, text: str) -> None:
    """Type something and see that it is on the screen."""
    shell.until("Write here.")
    shell.type(text)
    shell.until(text[-1])


async def kept(file: Path) -> str:
    """The text that is on file."""
    async with Session("notes/demo", "Ada", load_identity(file), file=file).store() as store:
        return store.text("body")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_editor_that_is_told_to_end_leaves_the_terminal_as_it_was(
    tmp_path: Path, number: signal.Signals
) -> None:
    file = tmp_path / "note.walstore"
    with terminal(EDITOR, "--file", str(file)) as shell:
        wrote(shell, "half a ~")
        shell.process.send_signal(number)
        assert shell.ended() == 128 + number
        assert shell.is_as_before
        assert LEFT_SCREEN in shell.written
        assert SHOWN_CURSOR in shell.written
    assert await kept(file) == "half a ~"


async def test_nothing_is_lost_with_a_terminal_that_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "note.walstore"
    with terminal(EDITOR, "--file", str(file)) as shell:
        wrote(shell, "half a ~")
        assert shell.hang_up() == 128 + signal.SIGHUP
    assert await kept(file) == "half a ~"


def test_the_relay_of_an_editor_goes_with_it() -> None:
    with terminal(EDITOR, "--demo") as shell:
        shell.until("Enter begins")
        children = Path(f"/proc/{shell.process.pid}/task/{shell.process.pid}/children")
        if not children.exists():
            pytest.skip("this system does not say who belongs to whom")
        relay = int(children.read_text())
        shell.process.terminate()
        assert shell.ended() == 128 + signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            os.kill(relay, 0)


async def test_an_inspector_that_is_told_to_end_leaves_the_terminal_as_it_was(
    tmp_path: Path,
) -> None:
    file = tmp_path / "note.walstore"
    identity = load_identity(file)
    async with Session("notes/demo", "Ada", identity, file=file).store() as store:
        store.set_text("body", "seen")
    with terminal("walstore", "inspect", str(file)) as shell:
        shell.until("notes/demo")
        shell.process.terminate()
        assert shell.ended() == 128 + signal.SIGTERM
        assert shell.is_as_before
        assert LEFT_SCREEN in shell.written


def test_what_cannot_be_opened_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with terminal(EDITOR, "--file", str(tmp_path / "file" / "below" / "n.walstore")) as shell:
        assert shell.ended() == 1
        assert b"Traceback" not in shell.written
        assert b"Not a directory" in shell.written
