"""The picture of a history: it is drawn, it says who and what, and it says what it needs."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from walstore.archive.extras import ExtraMissingError
from walstore.spark.picture import OTHERS, History, check_drawing, draw

START = datetime(2026, 3, 2, 8, tzinfo=UTC)
TIMES = [START + timedelta(hours=hour) for hour in range(9)]
HISTORY = History(
    {"Ada": dict.fromkeys(TIMES, 10), "Bo": {TIMES[2]: 7}, OTHERS: {TIMES[8]: 1}},
    "hour",
    {"notes/a": [(time, 10 * place) for place, time in enumerate(TIMES)], "notes/b": []},
    "hour",
)


def test_a_picture_shows_who_wrote_and_how_documents_grew(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra notebook is not installed")
    figure = draw(HISTORY, "A day")
    figure.savefig(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    bars, lines = figure.axes
    assert [text.get_text() for text in bars.get_legend().get_texts()] == ["Ada", "Bo", OTHERS]
    # Bo's bar stands on Ada's.
    assert [patch.get_y() for patch in bars.patches if patch.get_height() == 7] == [10]
    (line,) = lines.lines
    assert list(line.get_ydata())[-1] == 80
    assert [text.get_text() for text in lines.texts] == ["notes/a"]


def test_nothing_can_be_drawn_too(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra notebook is not installed")
    draw(History({}, "day", {}, "hour"), "Nothing").savefig(tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ExtraMissingError, match=r"pip install 'walstore\[notebook\]'"):
        check_drawing()
