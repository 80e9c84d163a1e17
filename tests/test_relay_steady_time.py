"""The time that a relay stamps with: jumps that last, and jumps that do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walstore.relay.steady_time import LASTING_MS, STEP_MS_MAX, UNSEEN_MS_MAX, SteadyTime

START_MS = 1_700_000_000_000
DAY_MS = 24 * 3600 * 1000


class Clock:
    """A system's clock that can be set, beside one that cannot."""

    def __init__(self) -> None:
        self.passed_ms = 0
        self.error_ms = 0
        self.steady = SteadyTime(
            lambda: START_MS + self.passed_ms + self.error_ms, lambda: self.passed_ms
        )

    @property
    def stamped_ahead_ms(self) -> int:
        """How far what is stamped now is ahead of the time that has really passed."""
        return self.steady() - START_MS - self.passed_ms


@pytest.mark.parametrize("ms", [0, 1, 60_000, STEP_MS_MAX, -1, -365 * DAY_MS])
def test_a_small_step_and_every_step_back_is_followed_at_once(ms: int) -> None:
    clock = Clock()
    clock.error_ms = ms
    assert clock.stamped_ahead_ms == ms


def test_a_jump_ahead_that_does_not_last_is_never_followed() -> None:
    clock = Clock()
    for _ in range(3):
        clock.error_ms = 3 * DAY_MS
        assert clock.stamped_ahead_ms == 0
        clock.passed_ms += LASTING_MS - 1
        assert clock.stamped_ahead_ms == 0
        clock.error_ms = 0
        assert clock.stamped_ahead_ms == 0
        clock.passed_ms += 1


def test_a_jump_ahead_that_lasts_is_followed() -> None:
    clock = Clock()
    clock.error_ms = 365 * DAY_MS
    for _ in range(LASTING_MS // UNSEEN_MS_MAX):
        assert clock.stamped_ahead_ms == 0
        clock.passed_ms += UNSEEN_MS_MAX
    assert clock.stamped_ahead_ms == 365 * DAY_MS


def test_a_jump_whose_end_nobody_has_seen_says_nothing_of_the_next_one() -> None:
    clock = Clock()
    for _ in range(3):
        clock.error_ms = 5 * DAY_MS
        assert clock.stamped_ahead_ms == 0
        clock.error_ms = 0
        clock.passed_ms += 2 * LASTING_MS


@pytest.mark.parametrize("days", [2, 3650])
def test_a_jump_that_follows_another_one_has_to_last_by_itself(days: int) -> None:
    clock = Clock()
    clock.error_ms = 30 * DAY_MS
    for _ in range(LASTING_MS // UNSEEN_MS_MAX):
        assert clock.stamped_ahead_ms == 0
        clock.passed_ms += UNSEEN_MS_MAX
    clock.error_ms = days * DAY_MS
    for _ in range(LASTING_MS // UNSEEN_MS_MAX):
        assert clock.stamped_ahead_ms == 0
        clock.passed_ms += UNSEEN_MS_MAX
    assert clock.stamped_ahead_ms == days * DAY_MS


def test_a_clock_that_is_corrected_slowly_is_followed_wherever_it_goes() -> None:
    clock = Clock()
    for _ in range(100):
        clock.passed_ms += DAY_MS
        clock.error_ms += 60_000
        assert clock.stamped_ahead_ms == clock.error_ms


@given(st.integers(-(10**13), 10**13), st.integers(0, 10**10))
def test_a_relay_that_was_off_for_however_long_begins_with_the_time_it_finds(
    now_ms: int, monotonic_ms: int
) -> None:
    assert SteadyTime(lambda: now_ms, lambda: monotonic_ms)() == now_ms
