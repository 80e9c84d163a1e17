"""The conflict-free core: ops in any order, one document out."""

from walstore.crdt.changes import Change, ListChanged, MapChanged, RegisterChanged
from walstore.crdt.clock import (
    COUNTER_MAX,
    Clock,
    ClockExhaustedError,
    LamportClock,
    clock_greater,
    compare_clocks,
    derive_replica_id,
)
from walstore.crdt.convert import to_ops, to_runs
from walstore.crdt.crdt import WalCrdt
from walstore.crdt.ids import element_id, parse_element_id
from walstore.crdt.ops import Json, Op
from walstore.crdt.packed_ops import pack_ops, unpack_ops
from walstore.crdt.runs import Run
from walstore.crdt.writer import Writer

__all__ = [
    "COUNTER_MAX",
    "Change",
    "Clock",
    "ClockExhaustedError",
    "Json",
    "LamportClock",
    "ListChanged",
    "MapChanged",
    "Op",
    "RegisterChanged",
    "Run",
    "WalCrdt",
    "Writer",
    "clock_greater",
    "compare_clocks",
    "derive_replica_id",
    "element_id",
    "pack_ops",
    "parse_element_id",
    "to_ops",
    "to_runs",
    "unpack_ops",
]
