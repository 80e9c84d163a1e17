"""The pictures in the documentation: made by the project's own command, and of the real editor."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from examples.textual_editor.pictures import BO, CLEO, SELECTED, TITLE, TYPED, self_contained
from walstore.textual import author_color

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("editor-dark.svg", "editor-light.svg")
SVG = "{http://www.w3.org/2000/svg}"


def words(picture: Path) -> list[str]:
    """What a picture says, row by row."""
    rows: dict[float, str] = {}
    for text in ElementTree.parse(picture).iter(f"{SVG}text"):
        row = float(text.attrib["y"])
        rows[row] = rows.get(row, "") + (text.text or "").replace("\xa0", " ")
    return [rows[row].strip() for row in sorted(rows)]


def grounds(picture: Path) -> set[str]:
    """The colours that something stands on."""
    return {each.attrib.get("fill", "") for each in ElementTree.parse(picture).iter(f"{SVG}rect")}


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pictures")
    made = subprocess.run(
        [sys.executable, "-m", "examples.textual_editor", "--screenshot", str(directory)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=180,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return directory


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_shows_who_writes_what_and_where(taken: Path, name: str) -> None:
    rows = words(taken / name)
    said = "\n".join(rows)
    for part in (TITLE, SELECTED, TYPED.strip(), "People", "Ada (you)", "Tags", "summer", "To do"):
        assert part in said
    assert "☑ buy the tickets" in said
    assert "☐ find the kite" in said
    assert any(re.search(r"● live .* all sent", row) for row in rows)
    # Each name stands beside its caret, in its colour.
    assert any(re.search(rf"{SELECTED}.* Bo", row) for row in rows)
    assert any(re.search(rf"{TYPED.strip()}.* Cleo", row) for row in rows)
    for who in (BO, CLEO):
        assert author_color(who.public_key) in grounds(taken / name)


@pytest.mark.parametrize("name", NAMES)
def test_the_documentation_shows_what_the_command_makes(taken: Path, name: str) -> None:
    shown = ROOT / "docs" / name
    assert words(shown) == words(taken / name), "make screenshot takes them anew"
    assert grounds(shown) == grounds(taken / name)
    assert f"docs/{name}" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_loads_nothing(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert re.findall(r"https?://[^\s\"')]+", text) == ["http://www.w3.org/2000/svg"]
    for loader in ("@font-face", "@import", "<image", "<script", "href", "<foreignObject"):
        assert loader not in text
    assert set(re.findall(r"url\(([^)]*)\)", text)) == set(re.findall(r"url\((#[^)]*)\)", text))


def test_what_a_picture_would_load_is_taken_out() -> None:
    svg = (
        "<svg><!-- made with https://a.example -->\n<style>\n@font-face {\n src: "
        'url("https://b.example/x.woff2");\n}\n.m { font-family: Fira Code, monospace; }\n</style>'
    )
    cleaned = self_contained(svg)
    assert "example" not in cleaned
    assert "monospace" in cleaned


def test_both_themes_differ_in_colours_alone(taken: Path) -> None:
    dark, light = (taken / name for name in NAMES)
    assert words(dark) == words(light)
    assert grounds(dark) != grounds(light)
