"""Author proofs against the recorded cases of the TypeScript packages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from walstore.canon import canonical_bytes, parse
from walstore.signed import (
    Domain,
    signing_input,
    signing_input_of,
    verify_append,
    verify_bytes,
    verify_document,
)

VECTORS = Path(__file__).with_name("vectors")


def load(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((VECTORS / name).read_bytes())["cases"]
    return cases


def named(cases: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


every_signature = named(load("signatures.json"))
every_snapshot = named(load("snapshots.json"))


@every_signature
def test_an_append_proof_is_judged_as_recorded(case: dict[str, Any]) -> None:
    data = parse(case["data_json"])
    accepted = verify_append(
        case["document_key"], data, case["author_pubkey"], case["author_signature"]
    )
    assert accepted == (case["required"] == "accept")


@every_signature
def test_the_signed_bytes_are_the_recorded_ones(case: dict[str, Any]) -> None:
    data, key = parse(case["data_json"]), case["document_key"]
    expected = case["signing_input"].encode()
    assert signing_input(Domain.APPEND, key, data) == expected
    assert signing_input_of(Domain.APPEND, key, canonical_bytes(data)) == expected
    accepted = verify_bytes(case["author_pubkey"], expected, case["author_signature"])
    assert accepted == (case["required"] == "accept")


@every_signature
def test_a_proof_holds_in_one_domain_only(case: dict[str, Any]) -> None:
    data, key = parse(case["data_json"]), case["document_key"]
    accepted = verify_document(key, data, case["author_pubkey"], case["author_signature"])
    assert accepted == (case["name"] == "variant: document-domain signature")


@every_snapshot
def test_a_document_proof_is_judged_as_recorded(case: dict[str, Any]) -> None:
    snapshot = parse(case["snapshot_json"])
    assert isinstance(snapshot, dict)
    content = {name: snapshot[name] for name in ("state", "uptoTs", "writerSeq", "producedBy")}
    accepted = verify_document(
        case["snapshot_key"], content, snapshot["authorPubkey"], snapshot["authorSignature"]
    )
    assert accepted == case["signature_valid"]
