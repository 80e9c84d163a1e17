"""`walstore spark compact`: sign snapshots of documents with long logs.

- The key is named by its file or by a variable, and is read where tasks run.
- Whose elements count has to be said, and with rosters who may own documents: what a relay makes
  up is not signed.
- Exit code 3 says that some documents were refused, or failed; the others are done.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from walstore.archive.authority import Authority
from walstore.canon import canonical_text
from walstore.errors import UsageError
from walstore.spark.address import Address
from walstore.spark.command_session import command_session
from walstore.spark.compaction import TAIL_MIN, Compacted, Compaction, compact
from walstore.spark.signer import Signer

INCOMPLETE = 3

# Documents that are named one by one in what is said to people.
_SHOWN_MAX = 20


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore spark compact …`; the exit code."""
    flags = _parser().parse_args(arguments)
    file = None if flags.key_file is None else str(Path(flags.key_file).absolute())
    signer = Signer(file, flags.key_variable)
    source = _source(flags, signer)
    compaction = Compaction(flags.relay, signer, _authority(flags))
    with command_session(flags.master, app="walstore compact", is_quick=flags.quick) as spark:
        found = compact(spark, source, compaction, tail_min=flags.min_tail)
    for line in _lines(found, is_json=flags.json):
        print(line)
    return 0 if all(each.outcome == "stored" for each in found) else INCOMPLETE


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="walstore spark compact",
        description="Sign snapshots of the documents of a relay whose logs are long, so that the"
        " relay may let go of what they cover: `walstore relay compact`.",
        epilog=f"Exit code {INCOMPLETE} says that some documents were refused, or failed.",
    )
    parser.add_argument("--relay", required=True, help="where documents are: ws://… or wss://…")
    parser.add_argument("--database", help="its database, if that is where to count")
    parser.add_argument("--prefix", default="", help="what the document keys begin with")
    parser.add_argument("--key-file", help="the identity that holds the role, by its file")
    parser.add_argument("--key-variable", help="or by the variable that has its seed in hex")
    parser.add_argument(
        "--writers",
        action="append",
        default=[],
        metavar="KEY|roster|any",
        help="whose elements count: a key, given several times for several; those whom rosters"
        " name; or any that the relay has let in, which signs whatever a relay makes up",
    )
    parser.add_argument(
        "--owners",
        action="append",
        default=[],
        metavar="KEY",
        help="a key that may own documents, given several times for several; needed with roster",
    )
    parser.add_argument(
        "--snapshot-role",
        action="append",
        default=[],
        metavar="KEY",
        help="a key whose snapshots count, given several times for several (anybody's)",
    )
    parser.add_argument("--min-tail", type=int, default=TAIL_MIN, help="elements since a snapshot")
    parser.add_argument("--master", help="local[2], spark://host:7077, or sc://host:15002")
    parser.add_argument("--quick", action="store_true", help="start sooner, run slower")
    parser.add_argument("--json", action="store_true", help="say it as JSON, a line a document")
    return parser


def _source(flags: Namespace, signer: Signer) -> Address:
    if flags.database is not None:
        database = flags.database
        is_path = "://" not in database
        database = str(Path(database).absolute()) if is_path else database
        return Address(database=database, prefix=flags.prefix)
    return Address(relay=flags.relay, prefix=flags.prefix, identity=signer.place)


def _authority(flags: Namespace) -> Authority:
    given: list[str] = flags.writers
    writers: Literal["any", "roster"] | dict[str, list[str]]
    if not given:
        raise UsageError("say whose elements count: --writers with a key, roster, or any")
    if given == ["any"]:
        writers = "any"
    elif given == ["roster"]:
        writers = "roster"
    elif {"any", "roster"} & set(given):
        raise UsageError("--writers is any, or roster, or keys")
    else:
        writers = {"": given}
    producers = {"": flags.snapshot_role} if flags.snapshot_role else None
    owners = {"": flags.owners} if flags.owners else {}
    return Authority(writers=writers, producers=producers, owners=owners)


def _lines(found: Sequence[Compacted], *, is_json: bool) -> list[str]:
    if is_json:
        return [canonical_text(_shown(each)) for each in found]
    counts = Counter[str](each.outcome for each in found)
    bad = [each for each in found if each.outcome != "stored"]
    lines = [f"{each.document}: {each.outcome}: {each.reason}" for each in bad[:_SHOWN_MAX]]
    said = ", ".join(f"{counts[each]:,} {each}" for each in ("stored", "refused", "failed"))
    return [*lines, said]


def _shown(each: Compacted) -> dict[str, Any]:
    return each._asdict()
