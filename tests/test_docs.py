"""The documents: what they show runs, what they point to exists, and the demo converges."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from examples.two_replicas import Person, verdict

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

# The words after the three backticks: Python that is run, that is run where there is a Spark, and
# that is only shown.
RUN = "python"
SPARK = "python spark"
SHOWN = "python no-run"

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<words>[^`]*)$")
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_PICTURE = re.compile(r"\b(?:src|srcset)=\"(?P<path>[^\"\s]+)\"")
_COMMAND = re.compile(r"`make (?:[A-Z]+=\S+ )*(?P<target>[a-z]+)|^make (?P<line>[a-z]+)", re.M)
_PATH = re.compile(r"`(?P<path>(?:src|tests|examples|benchmarks|docs)/[\w./]+)`")


class Block(NamedTuple):
    """A fenced block: the words behind its fence, its first line's number, its text."""

    words: str
    line: int
    text: str


def fenced_blocks(document: str) -> Iterator[Block]:
    """The fenced blocks of a document, in order."""
    fence, words, start = "", "", 0
    lines: list[str] = []
    for number, line in enumerate(document.splitlines(), 1):
        match = _FENCE.match(line)
        if match is None or (fence and (match["words"] or len(match["ticks"]) < len(fence))):
            lines.append(line)
        elif fence:
            yield Block(words, start, "\n".join(lines))
            fence = ""
        else:
            fence, words, start, lines = match["ticks"], match["words"].strip(), number + 1, []
    assert not fence, f"the block of line {start - 1} has no end"


def run_blocks(document: str, name: str) -> dict[str, Any]:
    """Run a document's Python in one namespace, and return that namespace."""
    namespace: dict[str, Any] = {"__name__": "document"}
    for block in fenced_blocks(document):
        if block.words in (RUN, SPARK):
            # The empty lines let a traceback point at the line of the document.
            text = "\n" * (block.line - 1) + block.text
            exec(compile(text, name, "exec", dont_inherit=True), namespace)
    return namespace


def per_document() -> pytest.MarkDecorator:
    """Run a test for each document."""
    ids = [str(document.relative_to(ROOT)) for document in DOCUMENTS]
    return pytest.mark.parametrize("document", DOCUMENTS, ids=ids)


@per_document()
def test_the_python_in_a_document_runs(document: Path, request: pytest.FixtureRequest) -> None:
    text = document.read_text(encoding="utf-8")
    if any(block.words == SPARK for block in fenced_blocks(text)):
        # It is the one that all tests share; without a Spark or a Java this is skipped.
        request.getfixturevalue("spark")
    run_blocks(text, str(document))


@per_document()
def test_python_in_a_document_is_marked_as_run_or_as_shown(document: Path) -> None:
    for block in fenced_blocks(document.read_text(encoding="utf-8")):
        if block.words.startswith("py"):
            assert block.words in (RUN, SPARK, SHOWN), f"line {block.line - 1}: {block.words}"


@per_document()
def test_the_links_of_a_document_lead_somewhere(document: Path) -> None:
    for match in _LINK.finditer(document.read_text(encoding="utf-8")):
        target = match["target"].partition("#")[0]
        if target and "://" not in target:
            assert (document.parent / target).exists(), target


@per_document()
def test_the_headings_that_a_document_points_to_exist(document: Path) -> None:
    for match in _LINK.finditer(document.read_text(encoding="utf-8")):
        target, _, heading = match["target"].partition("#")
        if heading and "://" not in target:
            assert heading in headings(document.parent / target if target else document), match[0]


def headings(document: Path) -> set[str]:
    """What the headings of a document are called in links, as code hosts make it of them."""
    text = document.read_text(encoding="utf-8")
    for block in fenced_blocks(text):
        text = text.replace(block.text, "") if block.text else text
    words = (match[1].strip().lower() for match in re.finditer(r"^#+ (.+)$", text, re.M))
    return {re.sub(r"[^\w -]", "", each).replace(" ", "-") for each in words}


@per_document()
def test_the_pictures_of_a_document_exist(document: Path) -> None:
    for match in _PICTURE.finditer(document.read_text(encoding="utf-8")):
        if "://" not in match["path"]:
            assert (document.parent / match["path"]).exists(), match["path"]


@per_document()
def test_the_files_that_a_document_names_exist(document: Path) -> None:
    for match in _PATH.finditer(document.read_text(encoding="utf-8")):
        assert (ROOT / match["path"]).exists(), match["path"]


@per_document()
def test_the_make_targets_that_a_document_names_exist(document: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.M))
    for match in _COMMAND.finditer(document.read_text(encoding="utf-8")):
        assert (match["target"] or match["line"]) in targets, match[0]


def test_the_quick_start_is_among_what_is_run() -> None:
    namespace = run_blocks((ROOT / "README.md").read_text(encoding="utf-8"), "README.md")
    assert "WalCrdt" in namespace


def test_blocks_share_a_namespace_and_a_shown_one_is_not_run() -> None:
    document = "```python\na = 1\n```\n```python no-run\na = 2\n```\n```\na = 3\n```\n"
    assert run_blocks(document, "a document")["a"] == 1
    assert run_blocks(document + "```python\na += 4\n```\n", "a document")["a"] == 5


def test_a_block_that_fails_is_an_error_at_its_line() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        run_blocks("Text.\n\n```python\n1 / 0\n```\n", "a document")
    assert raised.traceback[-1].lineno == 3  # counted from 0


def test_a_longer_fence_may_hold_a_shorter_one() -> None:
    document = "````text\n```python\n1 / 0\n```\n````\n"
    assert [block.words for block in fenced_blocks(document)] == ["text"]


def test_the_demo_converges() -> None:
    demo = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "two_replicas.py")], capture_output=True, text=True
    )
    assert demo.returncode == 0, demo.stderr
    assert demo.stdout.count("byte-identical") == 2
    assert "DIFFERENT" not in demo.stdout
    note = "Let us all meet at the lake at noon."
    assert demo.stdout.count(note) == 2


def test_the_demo_fails_if_a_message_was_lost(capsys: pytest.CaptureFixture[str]) -> None:
    ada, bo = Person("Ada"), Person("Bo")
    ada.writer.set("title", "Picnic")
    message = ada.send()
    assert verdict(ada, bo, exchanged=[message]) == 1
    assert capsys.readouterr().out.count("DIFFERENT") == 2
    bo.receive(message)
    assert verdict(ada, bo, exchanged=[message]) == 0
