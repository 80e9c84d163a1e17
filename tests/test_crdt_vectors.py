"""The recorded folds: what the JavaScript peer made of each set of ops."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.delivery import PASSAGES, WAYS, Step, deliver, random_delivery
from tests.oracle import Oracle, canon
from tests.strategies import shuffled
from walstore.crdt import WalCrdt

VECTORS = Path(__file__).with_name("vectors")
CASES: list[dict[str, Any]] = json.loads((VECTORS / "folds.json").read_bytes())["cases"]

FREE_ORDER_CASES = [case for case in CASES if case["order_independent"]]


def name_of(case: dict[str, Any]) -> str:
    return str(case["name"])


every_case = pytest.mark.parametrize("case", CASES, ids=name_of)


def check_against(case: dict[str, Any], document: WalCrdt | Oracle) -> None:
    expect = case["expect"]
    assert canon(document.materialize()) == expect["materialize"]
    assert document.canonical_state() == expect["state"]
    assert document.list_names() == sorted(expect["lists"])
    for name, shown in expect["lists"].items():
        assert document.text(name) == shown["text"]
        assert document.list_ids(name) == shown["ids"]


def check_export(case: dict[str, Any], document: WalCrdt | Oracle) -> None:
    if "export" in case["expect"]:
        assert canon(document.export_state()) == case["expect"]["export"]


@every_case
def test_the_oracle_folds_as_recorded(case: dict[str, Any]) -> None:
    oracle = Oracle().fold(case["ops"])
    check_against(case, oracle)
    check_export(case, oracle)


@every_case
@pytest.mark.parametrize("way", WAYS)
def test_ops_fold_as_recorded_whichever_way_they_come(case: dict[str, Any], way: str) -> None:
    crdt = deliver([Step(way, case["ops"], "keep")])
    check_against(case, crdt)
    check_export(case, crdt)


@every_case
@pytest.mark.parametrize("passage", PASSAGES)
def test_a_folded_document_survives_every_passage(case: dict[str, Any], passage: str) -> None:
    check_against(case, deliver([Step("fold", case["ops"], passage)]))


@pytest.mark.parametrize("case", FREE_ORDER_CASES, ids=name_of)
def test_recorded_ops_fold_alike_in_any_order_that_may_be_taken(case: dict[str, Any]) -> None:
    for seed in range(3):
        rng = random.Random(seed)
        check_against(case, deliver(random_delivery(rng, shuffled(rng, case["ops"]))))
