"""The runs of `make torture`: what each proves, how large it is, and how much it has to do."""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """A run that proves one promise.

    Attributes:
        goal: The promise.
        what: What is done, in words.
        command: Modules or files, and arguments; `{size}` stands for the size.
        size: How much of it, in a release; 0 if there is but one size.
        variable: The environment variable that takes the size, if not the command.
        traffic: What it has to say that it did: a pattern with one number, and how many of these
            there have to be for each one of the size.
        may_skip: Whether a test may be left out where something is not installed.
        is_compiled: Whether it is timed, and so runs with the compiled core where there is one.
    """

    goal: str
    what: str
    command: tuple[str, ...]
    size: int = 0
    variable: str | None = None
    traffic: tuple[str, float] | None = None
    may_skip: bool = False
    is_compiled: bool = False


def pytest(*names: str, only: str | None = None) -> tuple[str, ...]:
    """The command that runs test files, by their names, and shows what they say."""
    files = [f"tests/test_{name}.py" for name in names]
    chosen = [] if only is None else ["-k", only]
    return ("pytest", "-q", "-s", "-p", "no:cacheprovider", *files, *chosen)


PARTS = [
    Part(
        "G1",
        "kills of a client that edits and commits",
        pytest("store_kills"),
        2000,
        "WALSTORE_STORE_KILLS",
        (r"(\d+) edits", 1),
    ),
    Part(
        "G1",
        "kills of a relay under load, on SQLite and PostgreSQL",
        pytest("relay_kills"),
        1000,
        "WALSTORE_RELAY_KILLS",
        (r"(\d+) elements", 50),
    ),
    Part(
        "G1",
        "kills amid writes to the local file",
        pytest("local_faults", only="kills"),
        2000,
        "WALSTORE_LOCAL_KILLS",
        (r"(\d+) edits recorded", 1),
    ),
    Part(
        "G1",
        "kills of a client that accepts a roll-back",
        pytest("store_rollback_laws"),
        500,
        "WALSTORE_ROLLBACK_KILLS",
        (r"(\d+) of \d+ were killed after it was accepted", 0.05),
    ),
    Part(
        "G1",
        "failures of each call to the disk, one in so many",
        pytest("fault_sweep"),
        1,
        "WALSTORE_FAULT_STEP",
        (r"(\d+) faults", 4_000),
    ),
    Part(
        "G1",
        "full, locked, read-only and failing disks",
        pytest("local_faults", "relay_log_sqlite", "store_files"),
        may_skip=True,
    ),
    Part(
        "G1",
        "lengths of torn tails, of local files and of a relay's database: each byte of them",
        pytest("local_faults", "relay_log_sqlite", only="cut or missing"),
        50_000,
        "WALSTORE_TORN_CUTS",
        (r"(\d+) lengths of a torn", 1),
    ),
    Part(
        "G2",
        "edits that race with everything else",
        pytest("store_laws", only="race"),
        10_000,
        "WALSTORE_STORE_RACES",
        (r"(\d+) edits in \d+ races", 10),
    ),
    Part(
        "G3",
        "appends, of which one in ten is not answered",
        pytest("promises", only="answers"),
        100_000,
        "WALSTORE_LOST_ANSWERS",
        (r"(\d+) answers to \d+ appends were lost", 0.05),
    ),
    Part("G3", "connections that break amid appends", pytest("net_websocket", only="append")),
    Part(
        "G4",
        "seeds of simulated documents",
        ("walstore.testing.simulator", "--level", "document", "--seeds", "{size}"),
        100_000,
    ),
    Part(
        "G4",
        "seeds of simulated fleets",
        ("walstore.testing.simulator", "--level", "fleet", "--seeds", "{size}"),
        5_000,
    ),
    Part(
        "G4",
        "histories against the reference fold",
        ("tests.fuzz", "--histories", "{size}"),
        130_000,
        None,
        (r"(\d+) histories agree, SEED", 1),
    ),
    Part(
        "G4",
        "edits of five people who meet now and then",
        pytest("crdt_long", only="people"),
        130_000,
        "WALSTORE_LONG_EDITS",
    ),
    Part(
        "G4",
        "edits of editing traces, typed by several",
        pytest("crdt_long", only="traces"),
        300_000,
        "WALSTORE_TRACE_EDITS",
        may_skip=True,
    ),
    Part(
        "G4",
        "examples of each law about a fold",
        pytest("crdt_oracle", "crdt_writer", "packed_state", "document_folding", "document_undo"),
        1_000,
        "WALSTORE_EXAMPLES",
    ),
    Part(
        "G5",
        "sets of ops against the TypeScript fold",
        pytest("crdt_differential"),
        10_000,
        "WALSTORE_DIFFERENTIAL_SETS",
        may_skip=True,
    ),
    Part(
        "G5",
        "scenarios of both on one log, a fifth as many of processes through a relay",
        pytest("interop_documents", "interop_relay"),
        200,
        "WALSTORE_INTEROP_SEEDS",
        may_skip=True,
    ),
    Part(
        "G5",
        "scenarios of both through a relay and a Starfish server, plain and sealed, of each",
        pytest("interop_servers"),
        200,
        "WALSTORE_INTEROP_SEEDS",
        (r"(\d+) elements of \d+ stories on servers", 60),
    ),
    Part(
        "G5",
        "recorded cases",
        pytest(
            "crdt_vectors",
            "signed_vectors",
            "sealed_vectors",
            "document_scenarios",
            "document_sealed_vectors",
            "document_snapshots_vectors",
        ),
    ),
    Part(
        "G6",
        "scenarios in which somebody dies before or after each step, from a snapshot to a manifest",
        pytest("panic_points"),
        50,
        "WALSTORE_PANIC_SEEDS",
        (r"(\d+) panics at", 40),
    ),
    Part(
        "G6",
        "seeds for each of 40 points where an archive's writer is killed",
        pytest("archive_writer", only="kill or points"),
        50,
        "WALSTORE_ARCHIVE_PANICS",
        (r"(\d+) kills of a writer", 40),
    ),
    Part(
        "G6",
        "commits of each of 16 writers of one archive",
        pytest("archive_writers"),
        200,
        "WALSTORE_ARCHIVE_COMMITS",
        (r"(\d+) commits of \d+ were told of", 32),
    ),
    Part(
        "G6",
        "kills of an archive's process",
        pytest("archive_kills"),
        200,
        "WALSTORE_ARCHIVE_KILLS",
        (r"(\d+) kills of a busy archive", 1),
    ),
    Part(
        "G6",
        "kills of a Spark driver",
        pytest("spark_kills"),
        20,
        "WALSTORE_SPARK_KILLS",
        (r"(\d+) kills of a busy driver", 1),
        may_skip=True,
    ),
    Part(
        "G6",
        "snapshots, pruning and what they cover",
        pytest("document_snapshots", "document_pruning", "relay_compaction"),
    ),
    Part(
        "G7",
        "attacks of a relay",
        pytest("document_attacks", "store_rollback", "document_snapshots_vectors", "net_client"),
    ),
    Part(
        "G7",
        "runs of honest people, quirks of TypeScript peers and all",
        pytest("honest_runs"),
        10_000,
        "WALSTORE_HONEST_RUNS",
        (r"(\d+) quirks", 15),
    ),
    Part("G8", "attacks of a writer", pytest("document_malformed", "crdt_malformed", "weaknesses")),
    Part(
        "G8",
        "logs of members who sign anything",
        pytest("fuzz_documents"),
        20_000,
        "WALSTORE_FUZZ_LOGS",
        (r"(\d+) elements folded", 1),
    ),
    Part(
        "G8",
        "logs of somebody revoked, of each of six kinds, read in every way",
        pytest("document_revoked_laws"),
        1_000,
        "WALSTORE_REVOKED_LOGS",
        (r"(\d+) logs of somebody revoked", 6),
    ),
    Part(
        "G8",
        "logs of documents that live beside somebody who lies, of each of nine kinds",
        pytest("document_live_laws"),
        1_000,
        "WALSTORE_LIVE_LOGS",
        (r"(\d+) logs", 9),
    ),
    Part("G8", "batches made to hurt", pytest("promises", only="too_much or heaviest")),
    Part(
        "G9",
        "frames against a running relay, and a fifth as many that are signed anew",
        pytest("fuzz_relay"),
        1_000_000,
        "WALSTORE_FUZZ_FRAMES",
        (r"(\d+) orders", 0.2),
    ),
    Part(
        "G9",
        "frames, of which a third as many are said to a client",
        pytest("fuzz_client"),
        1_000_000,
        "WALSTORE_FUZZ_FRAMES",
        (r"after (\d+) frames said to a client", 0.25),
    ),
    Part(
        "G9",
        "cases for each reader of hostile input",
        pytest("fuzz_readers"),
        50_000,
        "WALSTORE_FUZZ_CASES",
        (r"envelope: \d+ taken, (\d+) refused", 0.5),
    ),
    *(
        Part(
            "G9",
            f"cases of `{reader}` led by coverage, where atheris is installed",
            ("tests.fuzzing.coverage_led", reader, "--cases", "{size}"),
            20_000,
            None,
            (r"(\d+) cases led by coverage", 0.9),
        )
        for reader in ("canonical", "envelope", "snapshot", "frames", "keyring", "manifest")
    ),
    Part(
        "G9",
        "registers of a snapshot that is read",
        pytest("memory_limits"),
        1_000_000,
        "WALSTORE_REGISTERS",
        (r"(\d+) registers: ", 2),
    ),
    Part("G9", "the Autobahn suite, where `WSTEST` says that it is", ("tests.autobahn",)),
    Part(
        "G10",
        "clients that come back at once",
        pytest("promises", only="soon"),
        1000,
        "WALSTORE_STORM",
        (r"(\d+) clients were in sync", 1),
    ),
    Part(
        "G10",
        "limits of a relay",
        pytest("relay_server", "relay_framing", "relay_session", "relay_fairness"),
    ),
    Part(
        "G10",
        "documents that one peer asks to follow, beside those who say nothing or little",
        pytest("relay_patience"),
        100_000,
        "WALSTORE_ASKED",
        (r"(\d+) documents asked for", 1),
    ),
    Part(
        "G10",
        "seconds of peers who do not read, and of one who forges",
        pytest("relay_abuse", only="not idle"),
        60,
        "WALSTORE_ABUSE_S",
        (r"(\d+) seconds of abuse", 2),
    ),
    Part(
        "G10",
        "seconds beside two thousand idle connections",
        pytest("relay_abuse", only="idle"),
        3600,
        "WALSTORE_IDLE_S",
        (r"watched for (\d+) seconds", 1),
    ),
    Part(
        "G10",
        "seconds of everything at once, with kills and comparisons",
        pytest("soak"),
        7200,
        "WALSTORE_SOAK_S",
        (r"soaked for (\d+) seconds", 1),
        is_compiled=True,
    ),
    Part(
        "G11",
        "members who are removed",
        pytest("promises", only="removed"),
        1000,
        "WALSTORE_REVOCATIONS",
        (r"(\d+) seals stayed shut", 6),
    ),
    Part(
        "G11",
        "changes of keys while others write",
        pytest("rotation"),
        1000,
        "WALSTORE_ROTATIONS",
        (r"(\d+) seals stayed shut", 3),
    ),
    Part(
        "G11",
        "keyrings, rosters and late joiners",
        pytest("sealed_keyring", "store_sharing", "document_revoked", "store_members"),
    ),
    Part("G12", "what a relay stores, logs and tells", pytest("promises", only="operator")),
    Part(
        "G12",
        "seals without a nonce used twice",
        pytest("promises", only="nonce"),
        10_000_000,
        "WALSTORE_SEALS",
        (r"(\d+) seals by", 1.25),
    ),
    Part(
        "G13",
        "flipped bits of an archive",
        pytest("archive_flips"),
        10_000,
        "WALSTORE_ARCHIVE_FLIPS",
        (r"(\d+) of \d+ bits flipped of an archive", 0.9),
    ),
    Part(
        "G13",
        "flipped bits of a relay's database, twice",
        pytest("relay_log_sqlite", only="bit"),
        5_000,
        "WALSTORE_RELAY_FLIPS",
        (r"(\d+) bits flipped of a relay's database", 2),
    ),
    Part(
        "G13",
        "damaged places of a local file",
        pytest("local_faults", only="flipped or sector"),
        5_000,
        "WALSTORE_LOCAL_FLIPS",
        (r"(\d+) places of a local file damaged", 2),
    ),
    Part("G14", "weaknesses of the peer", pytest("weaknesses", "weaknesses_servers")),
    Part(
        "G15",
        "weaknesses that are put back",
        ("tests.mutants", "--thorough"),
    ),
    Part(
        "G16",
        "small faults in each of four areas",
        ("tests.mutants", "--score", "{size}"),
        60,
        None,
        (r"% of (\d+) faults", 3.6),
    ),
    Part("G16", "branches of the core that tests reach", ("tests.covered",)),
]
