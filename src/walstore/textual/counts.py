"""Counts in a row, in a balanced tree: sums, places and the largest are found in log n.

    Branch(total=9) ── Leaf([3, 1, 2])        sum_before(3) is 6, find(7) is (3, 1)
                   └── Leaf([2, 1])

- Nodes never change; a splice makes new ones along its way and shares the rest.
- The heights of the two sides of a branch differ by one at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

# Counts in a leaf: so many are summed in less time than a climb between nodes takes.
_LEAF_SIZE_MAX = 64


class _Leaf:
    __slots__ = ("largest", "size", "total", "values")

    height = 0

    def __init__(self, values: list[int]) -> None:
        self.values = values
        self.size = len(values)
        self.total = sum(values)
        self.largest = max(values, default=0)


class _Branch:
    __slots__ = ("height", "largest", "left", "right", "size", "total")

    height: int
    size: int
    total: int
    largest: int

    def __init__(self, left: _Node, right: _Node) -> None:
        self.left = left
        self.right = right
        self.height = max(left.height, right.height) + 1
        self.size = left.size + right.size
        self.total = left.total + right.total
        self.largest = max(left.largest, right.largest)


_Node: TypeAlias = _Leaf | _Branch


class Counts:
    """A row of counts, none of them negative."""

    __slots__ = ("_root",)

    def __init__(self, values: Iterable[int] = ()) -> None:
        self._root: _Node = _built(list(values))

    def __len__(self) -> int:
        return self._root.size

    def __getitem__(self, index: int) -> int:
        """One of them.

        Raises:
            IndexError: There are not so many.
        """
        if not 0 <= index < self._root.size:
            raise IndexError(index)
        node = self._root
        while isinstance(node, _Branch):
            if index < node.left.size:
                node = node.left
            else:
                index -= node.left.size
                node = node.right
        return node.values[index]

    @property
    def total(self) -> int:
        """The sum of all."""
        return self._root.total

    @property
    def largest(self) -> int:
        """The largest; 0 if there is none."""
        return self._root.largest

    def sum_before(self, index: int) -> int:
        """The sum of those before an index; of all if there are not so many."""
        if index >= self._root.size:
            return self._root.total
        before = 0
        node = self._root
        while isinstance(node, _Branch):
            if index < node.left.size:
                node = node.left
            else:
                index -= node.left.size
                before += node.left.total
                node = node.right
        return before + sum(node.values[:index])

    def find(self, amount: int) -> tuple[int, int]:
        """The count within which an amount falls, and how far into it.

        Raises:
            IndexError: It is not less than the sum of all, or negative.
        """
        if not 0 <= amount < self._root.total:
            raise IndexError(amount)
        before = 0
        node = self._root
        while isinstance(node, _Branch):
            if amount < node.left.total:
                node = node.left
            else:
                amount -= node.left.total
                before += node.left.size
                node = node.right
        for index, end in enumerate(accumulate(node.values)):
            if amount < end:
                return before + index, amount - end + node.values[index]
        raise AssertionError("a leaf sums up to its total")

    def splice(self, start: int, stop: int, values: Sequence[int]) -> None:
        """Put counts in the place of those from `start` to `stop`."""
        respliced = _respliced(self._root, start, stop, values)
        if respliced is not None:
            self._root = respliced
            return
        left, rest = _split(self._root, start)
        _, right = _split(rest, stop - start)
        # The cut leaves become whole again, so that they do not crumble under many edits.
        left, head = _without_last(left)
        tail, right = _without_first(right)
        middle = _built([*head.values, *values, *tail.values])
        self._root = _joined(_joined(left, middle), right)


_EMPTY = _Leaf([])


def _built(values: list[int]) -> _Node:
    if len(values) <= _LEAF_SIZE_MAX:
        return _Leaf(values)
    half = len(values) // 2
    return _Branch(_built(values[:half]), _built(values[half:]))


def _respliced(node: _Node, start: int, stop: int, values: Sequence[int]) -> _Node | None:
    """A splice within one leaf, which keeps the tree's shape: what a key-press does.

    None if it is none, or if the leaf would become empty or too large.
    """
    if isinstance(node, _Leaf):
        if not 0 < node.size - (stop - start) + len(values) <= _LEAF_SIZE_MAX:
            return None
        return _Leaf([*node.values[:start], *values, *node.values[stop:]])
    size = node.left.size
    if stop <= size:
        left = _respliced(node.left, start, stop, values)
        return None if left is None else _Branch(left, node.right)
    if start < size:
        return None
    right = _respliced(node.right, start - size, stop - size, values)
    return None if right is None else _Branch(node.left, right)


def _joined(left: _Node, right: _Node) -> _Node:
    if not left.size or not right.size:
        return left if left.size else right
    if left.height > right.height + 1:
        assert isinstance(left, _Branch)
        return _balanced(left.left, _joined(left.right, right))
    if right.height > left.height + 1:
        assert isinstance(right, _Branch)
        return _balanced(_joined(left, right.left), right.right)
    if isinstance(left, _Leaf) and isinstance(right, _Leaf):
        return _built(left.values + right.values)
    return _Branch(left, right)


def _balanced(left: _Node, right: _Node) -> _Node:
    """A branch whose sides differ by little, of two that may differ by two."""
    if left.height > right.height + 1:
        assert isinstance(left, _Branch)
        if left.left.height >= left.right.height:
            return _Branch(left.left, _Branch(left.right, right))
        inner = left.right
        assert isinstance(inner, _Branch)
        return _Branch(_Branch(left.left, inner.left), _Branch(inner.right, right))
    if right.height > left.height + 1:
        assert isinstance(right, _Branch)
        if right.right.height >= right.left.height:
            return _Branch(_Branch(left, right.left), right.right)
        inner = right.left
        assert isinstance(inner, _Branch)
        return _Branch(_Branch(left, inner.left), _Branch(inner.right, right.right))
    return _Branch(left, right)


def _split(node: _Node, index: int) -> tuple[_Node, _Node]:
    if index <= 0:
        return _EMPTY, node
    if index >= node.size:
        return node, _EMPTY
    if isinstance(node, _Leaf):
        return _Leaf(node.values[:index]), _Leaf(node.values[index:])
    if index < node.left.size:
        left, right = _split(node.left, index)
        return left, _joined(right, node.right)
    left, right = _split(node.right, index - node.left.size)
    return _joined(node.left, left), right


def _without_last(node: _Node) -> tuple[_Node, _Leaf]:
    if isinstance(node, _Leaf):
        return _EMPTY, node
    rest, last = _without_last(node.right)
    return _joined(node.left, rest), last


def _without_first(node: _Node) -> tuple[_Leaf, _Node]:
    if isinstance(node, _Leaf):
        return node, _EMPTY
    first, rest = _without_first(node.left)
    return first, _joined(rest, node.right)
