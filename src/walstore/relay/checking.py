"""What a relay makes sure of before it stores anything: a checked type comes out, or an error.

- An element: canonical text within the limits, signed by the author that it names.
- A snapshot: canonical text within the limits, signed by its producer, counts that can be compared.
- The relay cannot tell more; readers check the rest, and do not believe the relay in this either.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

from walstore.canon import canonical_bytes, parse
from walstore.crdt import COUNTER_MAX
from walstore.errors import MalformedError
from walstore.relay.log import NewElement, NewSnapshot
from walstore.relay.session import RESERVED_SUFFIX, PutWhole
from walstore.signed.author import Domain, SigningFrame, verify_bytes, verify_document
from walstore.signed.chain import link
from walstore.wire.element import has_too_many_values, read_raw_element
from walstore.wire.envelope import is_counted_writer
from walstore.wire.frames import Append
from walstore.wire.limits import COUNTS_BYTES_MAX, COUNTS_MAX, SNAPSHOT_VALUES_MAX, TS_MAX


def check_element(frame: Append) -> NewElement:
    """An element that may be stored.

    Raises:
        MalformedError: It is not one; the reason is for its sender.
    """
    element = read_raw_element(0, frame.data, frame.author, frame.signature)
    if element.canonical != frame.data:
        raise MalformedError("element", "its text is not canonical")
    signed = _signing_frame(frame.document).around(frame.data)
    name = link(signed, author_pubkey=frame.author, author_signature=frame.signature)
    if not verify_bytes(frame.author, signed, frame.signature):
        raise MalformedError("element", "its signature does not verify")
    return NewElement(frame.document, name, frame.author, frame.signature, frame.data)


def check_snapshot(order: PutWhole) -> NewSnapshot:
    """A snapshot that may be stored.

    Raises:
        MalformedError: It is not one; the reason is for its sender.
    """
    if has_too_many_values(order.text, SNAPSHOT_VALUES_MAX):
        raise MalformedError("snapshot", f"more than {SNAPSHOT_VALUES_MAX} values")
    document = parse(order.text)
    if not isinstance(document, dict):
        raise MalformedError("snapshot", "not an object")
    if canonical_bytes(document) != order.text:
        raise MalformedError("snapshot", "its text is not canonical")
    if "state" not in document:
        # Its signature is that of a deletion, which says null; readers take neither for the other.
        raise MalformedError("snapshot", "it has no state")
    content = {name: document.get(name) for name in ("state", "uptoTs", "writerSeq", "producedBy")}
    producer, signature = document.get("authorPubkey"), document.get("authorSignature")
    upto_ts = content["uptoTs"]
    if content["producedBy"] != producer or not isinstance(producer, str):
        raise MalformedError("snapshot", "its producer is not the signer")
    if type(upto_ts) is not int or not 0 <= upto_ts <= TS_MAX:
        raise MalformedError("snapshot", "`uptoTs` is not a `ts`")
    vc = _vector_clock(content["writerSeq"])
    if not verify_document(order.document + RESERVED_SUFFIX, content, producer, signature):
        raise MalformedError("snapshot", "its signature does not verify")
    return NewSnapshot(
        order.document,
        order.revision,
        sha256(order.text).hexdigest(),
        producer,
        upto_ts,
        vc,
        content["state"] is None,
        order.text,
    )


def _vector_clock(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        raise MalformedError("snapshot", "`writerSeq` is not an object")
    if len(value) > COUNTS_MAX:
        raise MalformedError("snapshot", f"`writerSeq` counts more than {COUNTS_MAX} writers")
    for writer, seq in value.items():
        if not is_counted_writer(writer) or type(seq) is not int or not 1 <= seq <= COUNTER_MAX:
            raise MalformedError("snapshot", "`writerSeq` does not count by writer, from 1")
    # How many sessions a document has had is no fault of whoever counts them; what takes room is.
    if len(canonical_bytes(value)) > COUNTS_BYTES_MAX:
        raise MalformedError("snapshot", f"`writerSeq` exceeds {COUNTS_BYTES_MAX} bytes")
    return value


@lru_cache(maxsize=1024)
def _signing_frame(document: str) -> SigningFrame:
    return SigningFrame(Domain.APPEND, document)
