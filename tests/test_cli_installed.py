"""The command as it is installed: quick to start, light, at home in a shell and in a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli_process import Done, Forker, Home, forking
from walstore.cli.main import COMMANDS, main

# Beside the interpreter, where pip puts it.
WALSTORE = Path(sys.executable).with_name("walstore")

LOADED = """
import json, sys
from walstore.cli.main import main
code = main(json.loads(sys.argv[1]))
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
sys.exit(code)
"""

WITHOUT = """
import json, sys
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None
from walstore.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    with forking() as started:
        yield started


@pytest.fixture(scope="module")
def ada(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(forker, tmp_path_factory.mktemp("home") / "ada")
    home.ok("init", "notes")
    home.ok("set", "notes", "title", "Picnic")
    home.ok("set", "notes", "$(touch gone)", "Picnic")
    return home


def ran(home: Home, *command: str | Path, **variables: str) -> Done:
    """A program of any kind, to its end."""
    done = subprocess.run(
        command,
        env={**home.environment, **variables},
        cwd=home.root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_the_installed_command_does_what_it_says(ada: Home) -> None:
    helped = ran(ada, WALSTORE, "--help")
    assert helped.code == 0
    assert all(re.search(rf"^  {name} ", helped.out, re.M) for name in COMMANDS)
    assert ran(ada, WALSTORE, "get", "notes", "title") == Done(0, "Picnic\n", "")


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"spark"}))
def test_every_command_tells_how_it_is_used(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main([command, "--help"])
    except SystemExit as ended:
        code = int(ended.code or 0)
    shown = capsys.readouterr()
    assert (code, shown.err) == (0, "")
    assert shown.out.startswith(f"usage: walstore {command}")


def test_nothing_is_loaded_that_is_not_needed(ada: Home) -> None:
    helped = ran(ada, sys.executable, "-c", LOADED, '["--help"]')
    assert not {"asyncio", "nacl", "orjson", "argparse"} & set(json.loads(helped.err))
    got = ran(ada, sys.executable, "-c", LOADED, '["get", "notes", "title"]')
    assert got.out == "Picnic\n"
    loaded = {name.partition(".")[0] for name in json.loads(got.err.splitlines()[-1])}
    assert not {"cryptography", "h11", "httpx", "keyring", "textual", "websockets"} & loaded


def test_without_extras_local_commands_work_and_others_say_what_to_install(ada: Home) -> None:
    missing = json.dumps(["websockets", "cryptography", "keyring", "h11"])

    def light(*arguments: str) -> Done:
        return ran(ada, sys.executable, "-c", WITHOUT, missing, *arguments)

    assert light("set", "notes", "title", "Picnic").code == 0
    assert light("get", "notes", "title").out == "Picnic\n"
    for arguments, extra in (
        (["sync", "notes", "--relay", "ws://127.0.0.1:1"], "net"),
        (["init", "vault", "--sealed"], "starfish"),
        (["keygen", "other", "--keychain"], "keychain"),
        (["relay"], "relay"),
    ):
        done = light(*arguments)
        assert done.code == 1, done
        assert re.search(rf"pip install ['\"]walstore\[{extra}\]['\"]", done.err), done
        assert "Traceback" not in done.err
    assert not (ada.data / "documents" / "vault").exists()


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("walstore set notes title - <&-", 1, "standard input is closed"),
        ("walstore join - <&-", 1, "standard input is closed"),
        ("walstore edit notes body <&-", 2, "there is no terminal"),
        ("printf '\\377' | walstore set notes title -", 1, "this is no text"),
        ("printf '\\377' | LC_ALL=C walstore set notes title -", 1, "this is no text"),
        ("PYTHONIOENCODING=ascii walstore --help", 0, ""),
        ("PYTHONIOENCODING=ascii walstore show notes", 0, ""),
    ],
)
def test_streams_that_are_closed_or_no_text_are_told_in_a_line(
    ada: Home, line: str, code: int, said: str
) -> None:
    path = f"{WALSTORE.parent}:{ada.environment['PATH']}"
    done = ran(ada, "sh", "-c", line, PATH=path)
    assert done.code == code, done
    assert "Traceback" not in done.err
    assert said in done.err
    assert ada.ok("get", "notes", "title").out == "Picnic\n"


def test_a_shell_completes_commands_documents_and_what_is_in_them(ada: Home) -> None:
    bash = shutil.which("bash")
    assert bash
    script = """
eval "$(walstore completion bash)"
for line in "walstore ver" "walstore get no" "walstore get notes ti" "walstore get notes $" \
            "walstore set notes title --type js" "walstore sync --acc" "walstore relay co" \
            "walstore relay compact --ti" "walstore archive gc out --gr"; do
    read -ra COMP_WORDS <<< "$line"; COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
    _walstore; echo "${COMPREPLY[*]}"
done
"""
    path = f"{WALSTORE.parent}:{ada.environment['PATH']}"
    done = ran(ada, bash, "--norc", "-c", script, PATH=path)
    expected = ["verify", "notes", "title", "", "json", "--accept-rollback", "compact"]
    expected += ["--timeout", "--grace"]
    assert done.out.splitlines() == expected, done
    assert ada.ok("completion", "--words", "nonsense", "").out == ""


# Each asks its shell as its user would with the key, and prints what is offered, a line each.
COMPLETED = {
    # `compadd` is what the shell itself would be given; it works at a prompt only.
    "zsh": """
eval "$(walstore completion zsh)"
compadd() { print -l -- "${(P@)2}" }
_files() { print files }
for line in "walstore ver" "walstore get no" "walstore get notes ti" "walstore inspect READ"; do
    words=(${=line}); CURRENT=$#words; _walstore
done
""",
    "fish": """
walstore completion fish | source
for line in "walstore ver" "walstore get no" "walstore get notes ti" "walstore inspect READ"
    complete --do-complete $line
end
""",
}


@pytest.mark.parametrize(("shell", "files"), [("zsh", "files"), ("fish", "README")])
def test_other_shells_complete_as_well(ada: Home, shell: str, files: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"there is no {shell}")
    (ada.root / "README").touch()
    path = f"{WALSTORE.parent}:{ada.environment['PATH']}"
    done = ran(ada, found, "-c", COMPLETED[shell], PATH=path)
    assert done.out.split() == ["verify", "notes", "title", files], done
    assert done.err == ""


def in_terminal(home: Home, *arguments: str, **variables: str) -> str:
    """What a command shows to a person."""
    ours, its = pty.openpty()
    try:
        environment = {**home.environment, "TERM": "xterm", **variables}
        command = [str(WALSTORE), *arguments]
        done = subprocess.run(
            command, env=environment, stdin=its, stdout=its, stderr=its, timeout=120, check=False
        )
        assert done.returncode == 0
        return os.read(ours, 2**16).decode()
    finally:
        os.close(ours)
        os.close(its)


def test_a_terminal_gets_colours_unless_they_are_not_wanted(ada: Home) -> None:
    ada.ok("set", "notes", "evil", "\x1b[2Jgone")
    coloured = in_terminal(ada, "show", "notes")
    assert "\x1b[36mtitle:\x1b[0m Picnic" in coloured
    # What somebody has written does nothing to the terminal.
    assert "\x1b[2J" not in coloured
    assert "\\x1b[2Jgone" in coloured
    assert "\x1b" not in in_terminal(ada, "show", "notes", NO_COLOR="1")
    assert ada.ok("get", "notes", "evil").out == "\x1b[2Jgone\n"


@pytest.mark.parametrize("arguments", [["--help"], ["show", "--help"], ["show"]])
def test_output_that_nobody_reads_is_nothing_to_complain_of(
    ada: Home, arguments: list[str]
) -> None:
    command = [str(WALSTORE), *arguments]
    ours, its = os.pipe()
    # Whoever was to read is gone already.
    os.close(ours)
    try:
        done = subprocess.run(
            command,
            env=ada.environment,
            stdout=its,
            stderr=subprocess.PIPE,
            timeout=120,
            check=False,
        )
    finally:
        os.close(its)
    assert (done.returncode, done.stderr) == (1, b"")
    closed = ran(ada, "/bin/sh", "-c", f"{shlex.join(command)} >&-")
    assert (closed.code, closed.err) == (0, "")
    assert ran(ada, "/bin/sh", "-c", f"{shlex.join(command)} 2>&-").code == 0


def test_a_reader_that_has_seen_enough_is_no_failure_to_tell_of(ada: Home) -> None:
    for number in range(4):
        ada.ok("set", "notes", f"long{number}", "x" * 60_000)
    line = f"'{WALSTORE}' show notes | head -c 1"
    done = ran(ada, "/bin/sh", "-c", line)
    assert "Traceback" not in done.err
    assert "Broken pipe" not in done.err
