"""A base is due exactly when the settings say so."""

from __future__ import annotations

from typing import Any

import pytest

from walstore.archive.policy import (
    Decision,
    Measures,
    Policy,
    PolicyError,
    decide,
    parse_duration_ms,
    size_skew,
)

# The settings of the examples: 5m, 6h, 32 MiB, a quarter, 100,000 events, a half.
ALL = Policy(300_000, 21_600_000, 33_554_432, 0.25, 100_000, 0.5)
TRIGGERS = (
    "max_interval",
    "max_diff_bytes",
    "max_diff_fraction",
    "max_churn_records",
    "max_churn_fraction",
    "max_chain_fraction",
    "max_chain_diffs",
)
# No base for the length of the chain, as everything else is off unless it is asked for.
CHAIN_OFF: dict[str, Any] = {"max_chain_fraction": 0, "max_chain_diffs": 0}
QUIET = Measures(age_ms=300_000, diff_bytes=0, base_bytes=1_000_000, churn=0, rows=1_000)

DIFF = Decision(is_base=False, trigger=None)
FLOOR = Decision(is_base=False, trigger="min_interval")


def base_by(trigger: str) -> Decision:
    return Decision(is_base=True, trigger=trigger)


# ── one at a time ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("trigger", "below", "at"),
    [
        ("max_interval", {"age_ms": 21_599_999}, {"age_ms": 21_600_000}),
        (
            "max_diff_bytes",
            {"diff_bytes": 33_554_431, "base_bytes": 10**9},
            {"diff_bytes": 33_554_432, "base_bytes": 10**9},
        ),
        ("max_diff_fraction", {"diff_bytes": 249_999}, {"diff_bytes": 250_000}),
        (
            "max_churn_records",
            {"churn": 99_999, "rows": 10**6},
            {"churn": 100_000, "rows": 10**6},
        ),
        ("max_churn_fraction", {"churn": 499}, {"churn": 500}),
    ],
)
def test_a_trigger_holds_from_its_limit_on(
    trigger: str, below: dict[str, Any], at: dict[str, Any]
) -> None:
    assert decide(ALL, QUIET._replace(**below)) == DIFF
    assert decide(ALL, QUIET._replace(**at)) == base_by(trigger)
    assert decide(ALL, QUIET._replace(**{k: v + 1 for k, v in at.items()})) == base_by(trigger)


def test_a_quiet_table_gets_diffs() -> None:
    assert decide(ALL, QUIET) == DIFF


def test_the_floor_beats_everything_until_it_is_over() -> None:
    everything = Measures(299_999, 10**9, 1, 10**9, 1)
    assert decide(ALL, everything) == FLOOR
    assert decide(ALL, everything._replace(age_ms=0)) == FLOOR
    assert decide(ALL, everything._replace(age_ms=300_000)) == base_by("max_diff_bytes")


def test_the_floor_beats_the_age_too() -> None:
    policy = Policy(min_interval_ms=60_000, max_interval_ms=60_000)
    assert decide(policy, QUIET._replace(age_ms=59_999)) == FLOOR
    assert decide(policy, QUIET._replace(age_ms=60_000)) == base_by("max_interval")


def test_a_clock_that_was_set_back_is_below_every_floor() -> None:
    assert decide(ALL, QUIET._replace(age_ms=-5, churn=10**9)) == FLOOR
    assert decide(Policy(max_interval_ms=1), QUIET._replace(age_ms=-5)) == DIFF


def test_the_first_trigger_is_named() -> None:
    reaching: dict[str, Any] = {"max_interval_ms": 1, "max_diff_bytes": 1, "max_churn_records": 1}
    reaching |= {"max_diff_fraction": 0.1, "max_churn_fraction": 0.1}
    everything = Measures(10**9, 10**9, 1, 10**9, 1, True, 10**9, 10**6, 1, 1)
    for trigger in TRIGGERS:
        assert decide(Policy(**reaching), everything) == base_by(trigger)
        reaching = {key: value for key, value in reaching.items() if not key.startswith(trigger)}
        if trigger in CHAIN_OFF:
            reaching[trigger] = 0
    assert decide(Policy(**reaching), everything) == DIFF


def test_with_everything_off_there_are_diffs_for_ever() -> None:
    everything = Measures(10**15, 10**15, 1, 10**15, 1, True, 10**9, 10**15, 1, 1)
    for policy in (Policy(**CHAIN_OFF), Policy.read(CHAIN_OFF)):
        assert decide(policy, everything) == DIFF


# ── the length of the chain ────────────────────────────────────────────────────────────

# A base of a thousand rows, and sixteen diffs since that take half as much.
LONG = QUIET._replace(chain_diffs=16, chain_bytes=500_000, stored_bytes=1_000_000, base_rows=1_000)


def test_a_base_is_due_without_any_setting_once_the_diffs_are_worth_it() -> None:
    for policy in (Policy(), Policy.read({}), Policy(max_interval_ms=10**9)):
        assert decide(policy, LONG) == base_by("max_chain_fraction")
        assert decide(policy, LONG._replace(chain_diffs=15)) == DIFF
        assert decide(policy, LONG._replace(chain_bytes=499_999)) == DIFF


def test_the_share_is_one_of_what_a_base_would_take_now() -> None:
    # Half of it is new: to write it again takes twice what was written since.
    grown = LONG._replace(rows=2_000)
    assert decide(Policy(), grown._replace(chain_bytes=999_999)) == DIFF
    assert decide(Policy(), grown._replace(chain_bytes=1_000_000)).is_base
    shrunk = LONG._replace(rows=100)
    assert decide(Policy(), shrunk._replace(chain_bytes=49_999)) == DIFF
    assert decide(Policy(), shrunk._replace(chain_bytes=50_000)).is_base
    # However many rows there are, a base takes no more than all that is there.
    many = LONG._replace(rows=10**9, chain_bytes=1_000_000)
    assert decide(Policy(), many).is_base


def test_a_base_of_nothing_is_due_once_there_are_some_diffs() -> None:
    empty = Measures(0, 10, 0, 0, 0, chain_diffs=16, chain_bytes=10)
    assert decide(Policy(), empty) == base_by("max_chain_fraction")
    assert decide(Policy(), empty._replace(rows=-3, base_rows=5, stored_bytes=9)).is_base
    assert decide(Policy(), empty._replace(chain_diffs=15)) == DIFF


def test_there_are_never_more_diffs_than_the_limit() -> None:
    small = LONG._replace(chain_bytes=1, chain_diffs=999)
    assert decide(Policy(), small) == DIFF
    assert decide(Policy(), small._replace(chain_diffs=1000)) == base_by("max_chain_diffs")
    assert decide(Policy(max_chain_diffs=7), small._replace(chain_diffs=7)).is_base


def test_a_base_that_memory_may_not_hold_is_not_due_for_the_length_of_the_chain() -> None:
    too_large = Decision(is_base=False, trigger="max_chain_part_bytes")
    large = LONG._replace(stored_bytes=2**30, chain_bytes=2**30, parts=4)
    assert decide(Policy(), large) == base_by("max_chain_fraction")
    assert decide(Policy(), large._replace(parts=3)) == too_large
    assert decide(Policy(), large._replace(parts=1, chain_bytes=1, chain_diffs=1000)) == too_large
    assert decide(Policy(), large._replace(parts=1, chain_diffs=15)) == DIFF
    assert decide(Policy(max_chain_part_bytes=0), large._replace(parts=1)).is_base
    # What was asked for is written all the same.
    asked = Policy(max_churn_records=7)
    assert decide(asked, large._replace(parts=1, churn=7)) == base_by("max_churn_records")


def test_each_rule_for_the_chain_can_be_set_or_switched_off() -> None:
    quarter = LONG._replace(chain_bytes=250_000)
    assert decide(Policy(max_chain_fraction=0.25), quarter) == base_by("max_chain_fraction")
    assert decide(Policy(min_chain_diffs=17), LONG) == DIFF
    assert decide(Policy(min_chain_diffs=0), LONG._replace(chain_diffs=1)).is_base
    longest = LONG._replace(chain_diffs=10**6)
    assert decide(Policy.read({"max_chain_diffs": 0, "max_chain_fraction": 0}), longest) == DIFF
    assert decide(Policy.read({"max_chain_fraction": 0}), longest) == base_by("max_chain_diffs")
    assert decide(Policy(min_interval_ms=300_001), longest) == FLOOR
    # An empty window adds nothing to the chain.
    assert decide(Policy(min_chain_diffs=0), LONG._replace(chain_diffs=0)) == DIFF


# ── what there is nothing of ───────────────────────────────────────────────────────────


def test_without_a_floor_there_is_none() -> None:
    policy = Policy(max_churn_records=1)
    assert decide(policy, Measures(0, 0, 0, 1, 0)) == base_by("max_churn_records")


def test_a_share_of_nothing_is_no_trigger() -> None:
    policy = Policy(max_diff_fraction=0.25, max_churn_fraction=0.5)
    assert decide(policy, Measures(0, diff_bytes=10**9, base_bytes=0, churn=0, rows=5)) == DIFF
    assert decide(policy, Measures(0, diff_bytes=0, base_bytes=9, churn=10**9, rows=0)) == DIFF
    assert decide(policy, Measures(0, 0, 0, 0, 0)) == DIFF
    empty_base = Measures(0, diff_bytes=10**9, base_bytes=0, churn=10, rows=10)
    assert decide(policy, empty_base) == base_by("max_churn_fraction")


def test_shares_are_exact() -> None:
    # As floats, 0.07 of 100 is a little more than 7.
    policy = Policy(max_diff_fraction=0.07, max_churn_fraction=0.07)
    assert decide(policy, Measures(0, 7, 100, 0, 0)) == base_by("max_diff_fraction")
    assert decide(policy, Measures(0, 0, 0, 7, 100)) == base_by("max_churn_fraction")
    large = 9_007_199_254_740_900
    assert decide(policy, Measures(0, large // 100 * 7, large, 0, 0)).is_base
    assert not decide(policy, Measures(0, large // 100 * 7 - 1, large, 0, 0)).is_base


def test_shares_may_be_more_than_the_whole() -> None:
    policy = Policy(max_diff_fraction=2)
    assert decide(policy, Measures(0, 199, 100, 0, 0)) == DIFF
    assert decide(policy, Measures(0, 200, 100, 0, 0)) == base_by("max_diff_fraction")


def test_a_table_that_has_not_moved_gets_no_base_for_its_age_unless_it_is_asked_for() -> None:
    old = QUIET._replace(age_ms=21_600_000)
    assert decide(ALL, old._replace(has_moved=True)) == base_by("max_interval")
    assert decide(ALL, old._replace(has_moved=False)) == DIFF
    asked = Policy(max_interval_ms=21_600_000, quiet_bases=True)
    assert decide(asked, old._replace(has_moved=False)) == base_by("max_interval")


def test_sizes_of_different_formats_are_said_to_be_skewed() -> None:
    policy = Policy(max_diff_fraction=0.25)
    said = size_skew(policy, base_format="parquet", diff_format="jsonl")
    assert said is not None
    assert "diffs in jsonl with bases in parquet" in said
    assert size_skew(policy, base_format="jsonl", diff_format="jsonl") is None
    assert size_skew(Policy(max_diff_bytes=1), base_format="a", diff_format="b") is None


# ── settings ───────────────────────────────────────────────────────────────────────────


def test_settings_are_read() -> None:
    settings: dict[str, object] = {
        "min_interval": "5m",
        "max_interval": "6h",
        "max_diff_bytes": 33_554_432,
        "max_diff_fraction": 0.25,
        "max_churn_records": 100_000,
        "max_churn_fraction": 0.5,
    }
    assert Policy.read(settings) == ALL
    assert Policy.read({"quiet_bases": True}) == Policy(quiet_bases=True)
    assert Policy.read({"min_interval": 0, "max_interval": "0s", "max_diff_bytes": 0}) == Policy()
    assert Policy.read({"max_diff_fraction": None}) == Policy()
    assert Policy.read({"min_interval": "6h", "max_interval": 0}).min_interval_ms == 21_600_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("6h", 21_600_000), ("2d", 172_800_000)],
)
def test_times_have_units(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms
    assert Policy.read({"max_interval": text}).max_interval_ms == ms


BAD_SETTINGS: dict[str, list[object]] = {
    "min_interval": ["", "5", "m", "5 m", " 5m", "5m ", "5m\n", "5M", "5min", "-5m", "+5m"],
    "max_interval": [5, 5.0, 0.0, None, True, False, ["5m"], b"5m", "1.5h", "1e3s", "5m30s", "٥m"],
    "max_diff_bytes": [-1, 1.5, "32MiB", "1", None, True, 2**53],
    "max_churn_records": [-1, 0.5, "100", [], False],
    "max_diff_fraction": [0, 0.0, -0.5, "0.25", True, []],
    "max_churn_fraction": [0, -1, float("nan"), float("inf"), float("-inf"), 10**400, {}],
    "quiet_bases": [0, 1, "yes", None],
    "min_chain_diffs": [-1, 1.5, "16", None, True],
    "max_chain_diffs": [-1, 0.5, "1000", None, False],
    "max_chain_part_bytes": [-1, 0.5, "512MiB", None],
    "max_chain_fraction": [-0.5, "0.5", None, True, False, float("nan"), float("inf"), []],
    "min_intervall": ["5m"],
    "min_interval_ms": [5],
    "MIN_INTERVAL": ["5m"],
    "": ["5m"],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in BAD_SETTINGS.items() for value in values]
)
def test_what_cannot_be_used_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.read({"max_churn_records": 7, key: value})
    assert caught.value.key == key
    assert str(caught.value).startswith(key)


def test_a_floor_above_the_age_is_refused() -> None:
    with pytest.raises(PolicyError, match="min_interval is above max_interval"):
        Policy.read({"min_interval": "6h", "max_interval": "5m"})
    with pytest.raises(PolicyError, match="min_interval is above max_interval"):
        Policy(min_interval_ms=2, max_interval_ms=1)
    assert Policy.read({"min_interval": "5m", "max_interval": "300s"})


def test_an_unknown_setting_is_told_the_known_ones() -> None:
    with pytest.raises(PolicyError, match="max_interval, max_diff_bytes"):
        Policy.read({"max_intervall": "5m"})
    unusual: dict[Any, object] = {7: "5m"}
    with pytest.raises(PolicyError, match="7 is not known"):
        Policy.read(unusual)
