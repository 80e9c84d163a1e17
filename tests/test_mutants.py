"""Whether the tests notice faults that are put in on purpose."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.known_bad import KNOWN_BAD, KnownBad, survivors
from tests.mutants.score import AREAS, changed, sites
from tests.mutants.tree import SOURCE


@pytest.mark.parametrize("bad", KNOWN_BAD, ids=lambda bad: bad.weakness)
def test_a_weakness_still_fits_the_source(bad: KnownBad) -> None:
    text = (SOURCE / bad.path).read_text()
    assert ast.parse(bad.put_back(text))


def test_every_weakness_that_is_put_back_is_noticed_by_its_test() -> None:
    said: list[str] = []
    assert survivors(said.append, is_thorough=False) == [], said


def test_small_faults_are_faults_and_nothing_but_one() -> None:
    for area in AREAS.values():
        for path in area.modules:
            text = (SOURCE / path).read_text()
            plain = ast.unparse(ast.parse(text))
            found = list(sites(text))
            assert found
            for site in found[:: max(1, len(found) // 7)]:
                mutant = changed(text, site)
                assert ast.parse(mutant)
                lines = zip(plain.splitlines(), mutant.splitlines(), strict=False)
                assert mutant != plain
                assert sum(left != right for left, right in lines) >= 1
