"""Tests that share a session or a file stay together, where several processes run them."""

from __future__ import annotations

import os

import pytest


def test_the_tests_of_a_file_are_run_by_one_process(request: pytest.FixtureRequest) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("there is one process only")
    assert request.node.nodeid.endswith("@test_groups.py")
