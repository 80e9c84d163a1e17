"""Lists whose removed elements were let go: they show the same, and go on showing the same."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from walstore.crdt import Run, WalCrdt
from walstore.crdt.runs import Insert, Remove
from walstore.crdt.writer import Writer

seeds = st.integers(0, 2**32)


class Peer:
    """A document, its writer, and what the others have not read of it yet."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.crdt = WalCrdt()
        self.writer = Writer(self.crdt, name)

    def edit(self, rng: Random) -> None:
        length = self.crdt.list_length("body")
        if length and rng.random() < 0.4:
            at = rng.randrange(length)
            self.writer.remove("body", at, min(rng.randint(1, 4), length - at))
        else:
            word = "".join(rng.choices("abcdefgh", k=rng.randint(1, 5)))
            self.writer.insert_text("body", rng.randint(0, length), word)
        if rng.random() < 0.2:
            self.writer.insert("items", 0, [{"n": rng.randrange(9)}])

    def collect(self) -> None:
        self.crdt = self.crdt.collected()
        self.writer.move_to(self.crdt)


def exchange(peers: list[Peer]) -> None:
    """Everybody reads what the others have written."""
    written = [peer.writer.take() for peer in peers]
    for peer in peers:
        for source, runs in zip(peers, written, strict=True):
            if source is not peer:
                peer.crdt.fold_runs(runs)


def rounds(rng: Random, peers: list[Peer]) -> None:
    for _ in range(rng.randint(1, 5)):
        for peer in peers:
            for _ in range(rng.randint(0, 5)):
                peer.edit(rng)
        exchange(peers)


def has_tombstones(crdt: WalCrdt) -> bool:
    return any(node["deleted"] for nodes in crdt.export_state()["lists"].values() for node in nodes)


@given(seeds)
def test_who_has_let_go_and_who_has_not_show_the_same_for_ever(seed: int) -> None:
    rng = Random(seed)
    peers = [Peer(name) for name in ("ann", "bob", "cid")]
    rounds(rng, peers)
    shown = peers[0].crdt.materialize()
    peers[0].collect()
    peers[1].collect()
    assert peers[0].crdt.materialize() == shown
    assert not has_tombstones(peers[0].crdt)
    peers[0].crdt.check()
    rounds(rng, peers)
    peers[0].crdt.check()
    assert peers[0].crdt.materialize() == peers[1].crdt.materialize()
    assert peers[0].crdt.materialize() == peers[2].crdt.materialize()
    assert peers[0].crdt.canonical_state() == peers[1].crdt.canonical_state()
    assert not peers[0].crdt.displaced


@given(seeds)
def test_what_was_collected_packs_and_unpacks_to_the_same(seed: int) -> None:
    rng = Random(seed)
    peers = [Peer(name) for name in ("ann", "bob")]
    rounds(rng, peers)
    collected = peers[0].crdt.collected()
    copy = WalCrdt()
    copy.import_packed(collected.export_packed())
    assert copy.canonical_state() == collected.canonical_state()
    assert copy.materialize() == peers[0].crdt.materialize()
    again = WalCrdt()
    again.import_state(collected.export_state())
    assert again.canonical_state() == collected.canonical_state()


@given(seeds)
def test_late_edits_are_kept_and_all_who_let_go_agree(seed: int) -> None:
    rng = Random(seed)
    peers = [Peer(name) for name in ("ann", "bob", "late")]
    rounds(rng, peers)
    late = peers.pop()
    # Written without having seen what the others remove now.
    for _ in range(6):
        late.edit(rng)
    for _ in range(6):
        peers[0].edit(rng)
    exchange(peers)
    for peer in peers:
        peer.collect()
    runs = late.writer.take()
    for peer in peers:
        peer.crdt.fold_runs(runs)
    rounds(rng, peers)
    assert peers[0].crdt.canonical_state() == peers[1].crdt.canonical_state()
    peers[0].crdt.check()
    inserted = [run for run in runs if isinstance(run, Insert) and run.list == "body"]
    for run in inserted:
        for offset in range(len(run.values)):
            found = peers[0].crdt.find_element("body", f"{run.counter + offset}@late")
            assert found is not None


def test_an_insert_after_a_collected_element_goes_near_where_it_was() -> None:
    crdt = WalCrdt()
    writer = Writer(crdt, "ann")
    writer.insert_text("body", 0, "abcdef")
    writer.remove("body", 2, 2)
    writer.take()
    collected = crdt.collected()
    collected.fold_runs([Insert("body", "bob", 7, "ann", 4, "XY")])
    assert collected.text("body") == "abXYef"
    assert collected.displaced == [Insert("body", "bob", 7, "ann", 4, "XY")]
    collected.check()


def test_an_insert_without_anything_near_goes_to_the_head() -> None:
    crdt = WalCrdt()
    Writer(crdt, "ann").insert_text("body", 0, "ab")
    Writer(crdt, "bob").insert_text("body", 2, "cd")
    writer = Writer(crdt, "ann")
    writer.remove("body", 0, 2)
    collected = crdt.collected()
    collected.fold_runs([Insert("body", "cid", 9, "ann", 2, "X")])
    assert collected.text("body") == "Xcd"
    collected.check()


def test_removing_what_was_collected_changes_nothing() -> None:
    crdt = WalCrdt()
    writer = Writer(crdt, "ann")
    writer.insert_text("body", 0, "abcdef")
    writer.remove("body", 1, 2)
    collected = crdt.collected()
    before: list[Run] = [Remove("body", "bob", 9, "ann", 1, 4), Remove("body", "bob", 13, "ann", 6)]
    collected.fold_runs(before)
    assert collected.text("body") == "e"
    collected.check()
    collected.fold_runs([Remove("gone", "bob", 14, "ann", 2, 3)])
    assert collected.names() == ["body"]


def test_an_irregular_list_keeps_its_nodes_and_loses_the_removed_values() -> None:
    crdt = WalCrdt()
    writer = Writer(crdt, "ann")
    writer.insert_text("body", 0, "secret")
    writer.remove("body", 0, 6)
    crdt.fold_runs([Insert("body", "bob", 20, "nobody", 19, "x")])
    collected = crdt.collected()
    nodes = collected.export_state()["lists"]["body"]
    assert len(nodes) == 7
    assert [node["value"] for node in nodes if node["deleted"]] == [None] * 6


def test_an_anchor_that_has_not_arrived_is_waited_for() -> None:
    crdt = WalCrdt()
    Writer(crdt, "ann").insert_text("body", 0, "ab")
    collected = crdt.collected()
    collected.fold_runs([Insert("body", "bob", 9, "cid", 8, "y")])
    assert collected.text("body") == "ab"
    collected.fold_runs([Insert("body", "cid", 8, "ann", 2, "x")])
    assert collected.text("body") == "abxy"
    assert collected.displaced == []
