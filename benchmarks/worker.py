"""One measurement of one Python library, in a process of its own.

- Arguments: the adapter's name, the workload's name, the folder of inputs, the folder of what
  this library made earlier.
- Runs under the library's own interpreter; only the adapter knows the library.
- Whole traces are timed with one reading of the text at the end, so that no work can be put off.
- Prints one JSON object: `figures` by case and the `digest` of what was shown, or `absent`.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.adapters.base import AbsentError, Adapter, Edit
from benchmarks.measure import REPEATS_MAX, Job, WrongResultError, resident_mb, timed, timed_often

Figures = dict[str, float]

# Signing costs milliseconds in some peers; its cost does not depend on the document.
_SIGNED_EDITS = 300


def local_edits(job: Job) -> Figures:
    edits = list(job.edits())
    seconds, text = timed(_edited_text, job.adapter, edits)
    job.check(text, edits=len(edits))
    return {"edit": seconds / len(edits) * 1e6}


def burst_edits(job: Job) -> Figures:
    bursts = job.bursts()
    count = sum(map(len, bursts))
    seconds, text = timed(lambda: job.adapter.text(job.adapter.edit_bursts(bursts)))
    job.check(text, edits=count)
    return {"edit": seconds / count * 1e6}


def emitting_edits(job: Job) -> Figures:
    edits = list(job.edits())
    seconds, (document, messages) = timed(job.adapter.edit_and_emit, edits)
    job.check(job.adapter.text(document), edits=len(edits))
    if len(messages) != len(edits):
        raise WrongResultError(f"{len(messages)} messages for {len(edits)} edits")
    return {"edit": seconds / len(edits) * 1e6}


def signed_edits(job: Job) -> Figures:
    edits = list(job.edits())[:_SIGNED_EDITS]
    spent = job.adapter.signed_exchange(edits)
    return {case: seconds / len(edits) * 1e6 for case, seconds in spent.items()}


def replayed_log(job: Job) -> Figures:
    elements = job.read("replayed")
    spent = job.adapter.cold_replay(elements)
    return {case: seconds / elements * 1e6 for case, seconds in spent.items()}


def received_messages(job: Job) -> Figures:
    messages = job.kept("messages")
    seconds, text = timed(_received_text, job.adapter, messages)
    job.check(text, edits=len(messages))
    return {"message": seconds / len(messages) * 1e6}


def whole_history(job: Job) -> Figures:
    (history,) = job.kept("history")
    seconds, text = timed_often(lambda: job.adapter.text(job.adapter.from_history(history)))
    job.check(text)
    return {"history": seconds * 1e3}


def bytes_needed(job: Job) -> Figures:
    figures: Figures = {}
    for case in ("history", "snapshot", "shallow"):
        with suppress(AbsentError):
            (content,) = job.kept(case)
            figures[case] = len(content)
            figures[f"{case} deflated"] = min(len(zlib.compress(content)), len(content))
    with suppress(AbsentError):
        figures["character"] = len(job.kept("character")[0])
    return figures


def opened_snapshot(job: Job) -> Figures:
    figures: Figures = {}
    (snapshot,) = job.kept("snapshot")
    seconds, text = timed_often(_opened_text, job.adapter, snapshot)
    figures["shown"] = seconds * 1e3
    job.check(text)
    with suppress(AbsentError):
        seconds, _ = timed_often(_opened_text, job.adapter, job.kept("shallow")[0])
        figures["shallow shown"] = seconds * 1e3
    with suppress(AbsentError):
        edit = (len(text) // 2, 0, "x")
        seconds, _ = timed_often(_open_and_edit, job.adapter, snapshot, edit)
        figures["first edit"] = seconds * 1e3
    return figures


def folded_ops(kind: str, job: Job) -> Figures:
    figures: Figures = {}
    for size in job.sizes(kind):
        seconds, content = timed_often(_folded, job.adapter, job.read(f"{kind}-{size}"))
        job.check("".join(content["text"]))
        figures[size] = seconds * 1e3
    return figures


def whole_values(job: Job) -> Figures:
    figures: Figures = {}
    for case, (before, after) in job.read("values").items():
        documents = [job.adapter.from_text(before) for _ in range(REPEATS_MAX)]
        seconds, document = timed_often(_set_text, job.adapter, documents, after)
        if job.adapter.text(document) != after:
            raise WrongResultError(f"wrong text after {case}")
        figures[case] = seconds * 1e3
    return figures


def concurrent_messages(job: Job) -> Figures:
    messages = job.kept("concurrent")
    seconds, text = timed(_received_text, job.adapter, messages)
    if text.encode() != job.kept("concurrent-text")[0]:
        raise WrongResultError("a reader shows another text than the writers")
    return {"trace": seconds * 1e3}


def random_edits(job: Job) -> Figures:
    figures: Figures = {}
    for size in job.sizes("random"):
        edits = list(job.edits(f"random-{size}"))
        seconds, text = timed(_edited_text, job.adapter, edits)
        job.check(text)
        figures[size] = seconds / len(edits) * 1e6
    return figures


def growing_document(job: Job) -> Figures:
    if job.adapter.searches:
        raise AbsentError("it walks to each position: too long to make")
    figures: Figures = {}
    for size in job.sizes("growth"):
        document = job.adapter.edit_each(job.edits(f"growth-{size}-build"))
        probe = list(job.edits(f"growth-{size}-probe"))
        job.adapter.text(document)
        seconds, _ = timed(job.adapter.edit_on, document, probe)
        job.check(job.adapter.text(document))
        figures[size] = seconds / len(probe) * 1e6
    return figures


def memory_of_edits(job: Job) -> Figures:
    before = resident_mb()
    document = job.adapter.edit_each(job.edits())
    after = resident_mb()
    job.check(job.adapter.text(document))
    return {"edits": after - before}


def memory_of_snapshot(job: Job) -> Figures:
    (snapshot,) = job.kept("snapshot")
    before = resident_mb()
    document = job.adapter.from_snapshot(snapshot)
    text = job.adapter.text(document)
    after = resident_mb()
    job.check(text)
    return {"loaded": after - before}


def make(job: Job) -> Figures:
    """Leave messages, history and snapshots for the workloads that start from bytes."""
    document = _make_from_ops(job) if job.adapter.folds_only else _make_by_edits(job)
    job.keep("snapshot", job.adapter.snapshot(document))
    with suppress(AbsentError):
        job.keep("shallow", job.adapter.shallow_snapshot(document))
    return {}


def make_concurrent(job: Job) -> Figures:
    """Let the replicas of the concurrent trace write their messages."""
    replicas: dict[int, Any] = {}
    messages: list[bytes] = []
    for line in job.lines("concurrent"):
        agent = line["agent"]
        if agent not in replicas:
            replicas[agent] = job.adapter.replica(agent)
        for number in line["receive"]:
            job.adapter.take_in(replicas[agent], messages[number])
        edits = [(position, deleted, text) for position, deleted, text in line["edits"]]
        messages.append(job.adapter.change(replicas[agent], edits))
    for message in messages:
        job.adapter.take_in(replicas[0], message)
    job.keep("concurrent", *messages)
    job.keep("concurrent-text", job.adapter.text(replicas[0]).encode())
    return {}


def _make_from_ops(job: Job) -> Any:
    ops = job.read("history")
    job.keep("history", json.dumps(ops, separators=(",", ":"), ensure_ascii=False).encode())
    return job.adapter.from_ops(ops)


def _make_by_edits(job: Job) -> Any:
    edits = list(job.edits())
    document, messages = job.adapter.edit_and_emit(edits)
    job.keep("messages", *messages)
    typed = [
        message
        for message, (_, deleted, inserted) in zip(messages, edits, strict=True)
        if len(inserted) == 1 and not deleted
    ]
    job.keep("character", sorted(typed, key=len)[len(typed) // 2])
    job.keep("history", job.adapter.history(document))
    return document


def _edited_text(adapter: Adapter, edits: Iterable[Edit]) -> str:
    return adapter.text(adapter.edit_each(edits))


def _received_text(adapter: Adapter, messages: list[bytes]) -> str:
    return adapter.text(adapter.receive(messages))


def _opened_text(adapter: Adapter, snapshot: bytes) -> str:
    return adapter.text(adapter.from_snapshot(snapshot))


def _open_and_edit(adapter: Adapter, snapshot: bytes, edit: Edit) -> None:
    adapter.edit_on(adapter.from_snapshot(snapshot), [edit])


def _set_text(adapter: Adapter, documents: list[Any], text: str) -> Any:
    document = documents.pop()
    adapter.set_text(document, text)
    return document


def _folded(adapter: Adapter, ops: list[dict[str, Any]]) -> dict[str, Any]:
    return adapter.materialize(adapter.from_ops(ops))


WORKLOADS: dict[str, Callable[[Job], Figures]] = {
    "make": make,
    "make-concurrent": make_concurrent,
    "W1": local_edits,
    "W1b": burst_edits,
    "W1c": emitting_edits,
    "W1s": signed_edits,
    "W2": received_messages,
    "W2m": whole_history,
    "W3": bytes_needed,
    "W4": opened_snapshot,
    "W5-chain": partial(folded_ops, "chain"),
    "W5-shuffled": partial(folded_ops, "shuffled"),
    "W5-siblings": partial(folded_ops, "siblings"),
    "W5-scrambled": partial(folded_ops, "scrambled"),
    "W6": whole_values,
    "replay": replayed_log,
    "W7": concurrent_messages,
    "W8": random_edits,
    "growth": growing_document,
    "memory-edits": memory_of_edits,
    "memory-loaded": memory_of_snapshot,
}


def main(adapter_name: str, workload: str, inputs: str, made: str) -> None:
    """Run one workload and print what came out."""
    adapter: Adapter = import_module(f"benchmarks.adapters.{adapter_name}").Library()
    job = Job(adapter, Path(inputs), Path(made))
    try:
        figures = WORKLOADS[workload](job)
    except AbsentError as error:
        print(json.dumps({"absent": str(error)}))
    else:
        compiled = adapter.compiled()
        print(json.dumps({"figures": figures, "digest": job.digest, "compiled": compiled}))


if __name__ == "__main__":
    main(*sys.argv[1:])
