"""However large or hostile the texts, a diff stays right, quick and small.

The limits are far above what was measured, so that only a change of the order of growth, not a
busy machine, makes a test fail.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
import tracemalloc
from functools import cache

import pytest

from tests.test_reconcile_text import edited, size
from walstore.reconcile import apply_to_items, apply_to_text, diff_items, diff_text

SECONDS_MAX = 2.0
TRACED_BYTES_MAX = 50 * 2**20

CHANCE = random.Random(6)


@cache
def table(alphabet: str) -> dict[int, str]:
    return {byte: alphabet[byte % len(alphabet)] for byte in range(256)}


def letters(count: int, alphabet: str = "abcdefghijklmnopqrstuvwxyz ") -> str:
    return CHANCE.randbytes(count).decode("latin-1").translate(table(alphabet))


def lines(count: int) -> str:
    return "".join(letters(CHANCE.randrange(80)) + "\n" for _ in range(count))


PROSE = lines(2_600)
MEGABYTE = 2**20

WORST = {
    "100,000 characters, one changed": (PROSE, PROSE[:50_000] + "#" + PROSE[50_001:]),
    "50 edits in 20,000": (PROSE[:20_000], edited(PROSE[:20_000], 50, CHANCE)),
    "2,000 edits in 100,000": (PROSE, edited(PROSE, 2_000, CHANCE)),
    "5,000 all different": ("a" * 5_000, "b" * 5_000),
    "16,000 rewritten": (letters(16_000), letters(16_000)),
    "a megabyte rewritten": (letters(MEGABYTE), letters(MEGABYTE)),
    "a megabyte of lines rewritten": (lines(26_000), lines(26_000)),
    "short lines rewritten": (letters(400_000, "abcdef\n"), letters(400_000, "abcdef\n")),
    "a megabyte of newlines": ("\n" * MEGABYTE + "a", "b" + "\n" * MEGABYTE),
    "repeated lines": ("x\ny\n" * 50_000, "y\nx\nx\n" * 33_000),
    "periods out of step": ("abc" * 60_000, "acb" * 60_000),
    "a period with many edits": ("ab" * 500_000, edited("ab" * 500_000, 2_000, CHANCE)),
    "two letters": (letters(100_000, "01"), letters(100_000, "01")),
    "few against many": (letters(500), letters(500_000)),
    "a row of flags": ("🇫🇷" * 20_000, "🇩" + "🇫🇷" * 20_000),
    "flags changed by half": ("🇫🇷🇩🇪" * 2_000, "🇫🇷🇩🇮" * 2_000),
    "flag halves shuffled": (letters(8_000, "🇫🇷🇩"), letters(8_000, "🇫🇷🇩")),
    "marks on one letter": ("a" + "\u0301" * 100_000, "a" + "\u0301" * 50_000 + "\u0302" * 9),
    "marks shuffled": (letters(9_000, "\u0301\u0302"), letters(9_000, "\u0301\u0302")),
    "emoji shuffled": (letters(9_000, "👩\u200d👧🏽"), letters(9_000, "👩\u200d👧🏽")),
    "conjuncts shuffled": (letters(9_000, "क\u094dषि"), letters(9_000, "क\u094dषि")),
}


@pytest.mark.parametrize("name", WORST)
def test_the_worst_texts_are_diffed_quickly(name: str) -> None:
    old, new = WORST[name]
    started = time.process_time()
    hunks = diff_text(old, new)
    assert time.process_time() - started < SECONDS_MAX
    assert apply_to_text(old, hunks) == new
    assert size(hunks) <= len(old) + len(new)


@pytest.mark.parametrize("name", WORST)
def test_the_worst_texts_are_diffed_in_little_memory(name: str) -> None:
    old, new = WORST[name]
    tracemalloc.start()
    try:
        diff_text(old, new)
        assert tracemalloc.get_traced_memory()[1] < TRACED_BYTES_MAX
    finally:
        tracemalloc.stop()


# Memory of compiled code is not traced, so the system is asked, in a process of its own. 16,300
# characters are the most that is compared at once. 60,000 would take 450 MB, and a few against
# millions 24 bytes for each.
COMPARISON = """
import random, re
from walstore.reconcile import diff_items, diff_text

def peak_kb():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read()).group(1))

chance = random.Random(1)
texts = [["".join(chance.choices("abcdefgh ", k=k)) for _ in "on"] for k in (16_300, 60_000)]
long = "abcdefgh" * 400_000
diff_text("warm", "up")
before = peak_kb()
for old, new in texts:
    assert diff_text(old, new)
    assert diff_items(list(old), list(new))
assert diff_text("#a#", long)
print(peak_kb() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak this way")
def test_the_largest_comparison_takes_at_most_50_megabytes() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", COMPARISON], capture_output=True, text=True, check=True
    )
    peak_kb = int(ran.stdout)
    assert 16 * 1024 < peak_kb < 50 * 1024


def test_one_change_costs_no_more_than_reading_the_text_a_few_times() -> None:
    old = letters(4 * MEGABYTE)
    new = old[: 3 * MEGABYTE] + "#" + old[3 * MEGABYTE :]
    started = time.process_time()
    for _ in range(10):
        assert size(diff_text(old, new)) == 1
    # A loop over the characters would take a second for each.
    assert time.process_time() - started < SECONDS_MAX


ITEMS = {
    "5,000 all different": (list(range(5_000)), list(range(5_000, 10_000))),
    "100,000 all different": (list(range(100_000)), list(range(100_000, 200_000))),
    "50,000 shuffled": (list(range(50_000)), CHANCE.sample(range(50_000), 50_000)),
    "three values": (CHANCE.choices(range(3), k=50_000), CHANCE.choices(range(3), k=50_000)),
}


@pytest.mark.parametrize("name", ITEMS)
def test_the_worst_lists_are_diffed_quickly(name: str) -> None:
    old, new = ITEMS[name]
    started = time.process_time()
    hunks = diff_items(old, new)
    assert time.process_time() - started < SECONDS_MAX
    assert apply_to_items(old, hunks) == new
