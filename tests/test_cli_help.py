"""What the commands say of themselves: examples that work, and hints for what was mistyped."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

from tests.cli_process import Done
from tests.test_docs import DOCUMENTS, fenced_blocks
from walstore.cli.archive import WORDS as ARCHIVE_WORDS
from walstore.cli.arguments import CommandParser
from walstore.cli.examples import EXAMPLES
from walstore.cli.main import COMMANDS, main

# Those that have commands of their own, or are another part's.
_APART = {"archive", "spark"}
NAMED = [
    *sorted(COMMANDS.keys() - _APART),
    "relay compact",
    *(f"archive {word}" for word in ARCHIVE_WORDS),
]


class UnderstoodError(Exception):
    """A command line was understood; it is not carried out."""


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(capsys)


class Said:
    """What commands say that are carried out in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Done:
        """Carry out `walstore …`."""
        self._capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        return Done(code, *self._capsys.readouterr())


@pytest.mark.parametrize("command", NAMED)
def test_the_help_of_a_command_ends_with_examples(command: str, said: Said) -> None:
    helped = said(*command.split(), "--help")
    assert (helped.code, helped.err) == (0, "")
    shown = helped.out.partition("\nexamples:\n")[2]
    assert shown.splitlines() == [f"  {line}" for line in EXAMPLES[command]]
    assert len(EXAMPLES[command]) >= 2


@pytest.mark.parametrize(
    ("command", "line"), [(name, line) for name in NAMED for line in EXAMPLES[name]]
)
def test_every_example_is_understood(
    command: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = words_of(line)
    assert arguments[: len(command.split())] == command.split()
    refuse_to_carry_out(monkeypatch)
    with pytest.raises(UnderstoodError):
        main(arguments)


@pytest.mark.parametrize(
    # The commands of cli.md are carried out, in tests/test_cli_docs.py.
    "document",
    [each for each in DOCUMENTS if each.name != "cli.md"],
    ids=lambda each: each.name,
)
def test_every_command_of_a_document_is_understood(
    document: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_to_carry_out(monkeypatch)
    for block in fenced_blocks(document.read_text(encoding="utf-8")):
        for line in block.text.splitlines() if block.words == "sh" else ():
            # Spark's commands are not loaded without Spark, and have their own tests.
            if re.match(r"walstore (?!spark\b)", line):
                words = shlex.split(line, comments=True)[1:]
                with pytest.raises(UnderstoodError):
                    main([word for word in words if word != "&"])


def refuse_to_carry_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is understood ends there."""

    def understood(parser: CommandParser, given: Sequence[str]) -> None:
        _, unknown = CommandParser.parse_known_intermixed_args(parser, given)
        assert not unknown
        raise UnderstoodError

    monkeypatch.setattr(CommandParser, "parse_args", understood)
    monkeypatch.setattr(CommandParser, "parse_intermixed_args", understood)


def words_of(line: str) -> list[str]:
    """The arguments of `walstore` in a line of a shell."""
    command = re.search(r"walstore (.*?)(?:\)\"| [<>] .*|$)", line)
    assert command, line
    return shlex.split(command[1])


def test_help_can_be_asked_for_in_several_ways(said: Said) -> None:
    asked = said("--help")
    assert asked == said("help") == said("-h")
    assert "walstore init notes" in asked.out
    assert said("help", "set") == said("set", "--help")
    assert said("help", "archive", "run") == said("archive", "run", "--help")
    version = said("--version")
    assert version.out.startswith("walstore ")
    assert version == said("version") == said("-V")


def test_who_types_nothing_is_told_what_there_is(said: Said) -> None:
    assert said().code == 2
    assert "usage: walstore <command>" in said().err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["inti", "notes"], "did you mean init?"),
        (["nonsense"], "`walstore --help` lists all"),
        (["help", "sycn"], "did you mean sync?"),
        (["archive", "exprot"], "did you mean export?"),
        (["doctor", "--ofline"], "did you mean --offline?"),
        (["set", "notes", "title", "x", "--typ", "text"], "did you mean --type?"),
        (["set", "notes", "title", "A", "picnic"], "put in quotes"),
        (["relay", "--databse", "x.db"], "did you mean --database?"),
        (["get", "notes"], "see walstore get --help"),
        (["sync", "--follow"], "say which document"),
    ],
)
def test_what_was_mistyped_is_answered_with_what_was_meant(
    arguments: list[str], hint: str, said: Said
) -> None:
    done = said(*arguments)
    assert (done.code, done.out) == (2, "")
    assert hint in done.err
    # Whoever has mistyped one word does not look for the error above a page of help.
    assert len(done.err.splitlines()) <= 6


def test_an_example_that_is_wrong_is_noticed() -> None:
    parser = import_module("walstore.cli.set").parser()
    assert isinstance(parser, CommandParser)
    with pytest.raises(SystemExit):
        parser.parse_args(words_of("walstore set notes title --typo")[1:])
    assert words_of('eval "$(walstore completion bash)"') == ["completion", "bash"]
    assert words_of("EDITOR=nano walstore edit notes body") == ["edit", "notes", "body"]


def test_the_commands_are_in_the_documents() -> None:
    page = (Path(__file__).parent.parent / "docs" / "cli.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in COMMANDS)
