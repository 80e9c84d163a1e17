"""The collector rests while a list is laid out, and only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from walstore import WalCrdt, Writer, to_ops
from walstore.crdt.collector import CollectorPaused
from walstore.errors import MalformedError


@pytest.fixture(autouse=True)
def collector_on_afterwards() -> Iterator[None]:
    yield
    gc.enable()


def many_ops() -> list[Any]:
    writer = Writer(WalCrdt(), "ada")
    for position in range(100):
        writer.insert_text("note", position // 2, "x")
    return list(to_ops(writer.take()))


def test_it_rests_inside_the_block_and_runs_again_after_it() -> None:
    with CollectorPaused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_runs_again_after_a_block_that_fails() -> None:
    with pytest.raises(ZeroDivisionError), CollectorPaused():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_it_stays_off_for_whoever_has_turned_it_off() -> None:
    gc.disable()
    with CollectorPaused():
        pass
    assert not gc.isenabled()


def test_it_runs_again_once_many_ops_are_folded_or_refused() -> None:
    ops = many_ops()
    crdt = WalCrdt()
    crdt.fold(ops)
    assert len(crdt.text("note")) == 100
    assert gc.isenabled()
    with pytest.raises(MalformedError):
        WalCrdt().fold([*ops, {"t": "ins"}])
    assert gc.isenabled()


def test_it_runs_again_once_a_packed_list_is_opened_or_refused() -> None:
    crdt = WalCrdt()
    crdt.fold(many_ops())
    packed = crdt.export_packed()
    WalCrdt().import_packed(packed)
    assert gc.isenabled()
    structure = packed[3][0]
    structure[-1] = structure[-1][:-4]
    with pytest.raises(MalformedError):
        WalCrdt().import_packed(packed)
    assert gc.isenabled()
