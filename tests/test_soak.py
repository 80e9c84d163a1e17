"""Hours of everything at once: nothing is lost, and all who look see the same.

    writers ──► relay (prunes what is archived) ──► archive
       kill -9 of any of them, one after the other, at a random moment

- Writers edit documents and snapshot them now and then: as stores, each in files of its own, some
  of which they share, and as documents without a file.
- Every so often they rest, and what there is is compared: what each writer has, what somebody sees
  who has just come, whose only sources are the relay's snapshot and the rest of its log, and what
  the archive has folded. Sometimes they let go of what was removed before that.
- An edit is there, whoever was killed since: of a store once its call had returned, of a document
  without a file once its commit had. Memory does not grow.

`WALSTORE_SOAK_S` says for how long; from a minute on it is 500 appends a second by the clock, with
all rests and comparisons, of which there are two a minute. `WALSTORE_SOAK_PER_SECOND` says how many
for a machine that does something else, or is slow. The seed of the kills is printed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.archive_process import Running, World, ask, until
from tests.relay_process import Forker, RelayProcess, forking
from tests.soak_writer import counts_in, counts_of, is_plain, shown, store_of
from walstore.archive.checking import check_archive

SOAK_S = float(os.environ.get("WALSTORE_SOAK_S", "6"))
SEED = int(os.environ.get("WALSTORE_SOAK_SEED", "0")) or time.time_ns() % 10**6
IS_LONG = SOAK_S >= 60
ROUND_S = 30.0 if IS_LONG else 1.5
ROUNDS = max(4, round(SOAK_S / ROUND_S))

WRITERS = 3 if IS_LONG else 2
DOCUMENTS = [
    *(f"soak/{number}" for number in range(6 if IS_LONG else 2)),
    *(f"soak/plain-{number}" for number in range(12 if IS_LONG else 1)),
]
PER_SECOND = float(os.environ.get("WALSTORE_SOAK_PER_SECOND", "500" if IS_LONG else "80"))
SNAPSHOT_EVERY = 1_000 if IS_LONG else 15
TAIL = 64 if IS_LONG else 8

# How often the relay prunes, and the archive writes.
PRUNE_S, ARCHIVE_S = (10, 4) if IS_LONG else (1, 1)

# After so many rounds what was removed from texts is let go of: nothing else keeps them small.
COLLECT_EVERY = 8 if IS_LONG else 3

# Edits that a writer makes without a relay before it is killed.
OFFLINE_EDITS = 10

# Writers are asked for more than is wanted: who was killed, or has no relay, writes nothing, and a
# machine that others use, too, is not always as fast.
SURPLUS = 2.0

# Less than this much of what was wanted, over all that time, was no soak. In a short one kills, and
# what comes after them, take much of the time.
TRAFFIC_MIN = 1.0 if SOAK_S >= 600 else 0.5 if IS_LONG else 0.05

# How much more memory than in the first half of the time a process may have in the second.
GROWTH_MAX, GROWTH_BYTES_MAX = 1.25, 32 * 2**20

TOKEN = "a-token-of-the-operator"
ROOT = Path(__file__).parent.parent
PATIENCE_S = 120.0

RELAY = f"""
[relay]
admin_token_file = "token"
# It is killed all the time: the default reads and compares everything, however much there is.
database_check = "quick"

[retention]
require_archive = true
log_mode = "compact_below_snapshot"
retain_tail_n = {TAIL}
compaction_interval_seconds = {PRUNE_S}
"""
ARCHIVE = """
[report]
token_file = "token"

[snapshot]
max_churn_records = 2000

[retention]
keep_epochs = 3
"""


def memory_of(number: int) -> int:
    """How much memory a process has, in bytes."""
    pages = int(Path(f"/proc/{number}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Client:
    """A writer's process, which is started anew whenever it was killed."""

    def __init__(self, name: str, url: str, directory: Path, documents: list[str]) -> None:
        pace = PER_SECOND * SURPLUS / WRITERS / len(documents)
        self._arguments = [name, url, str(directory), str(pace), str(SNAPSHOT_EVERY), *documents]
        self.name = name
        self._documents = documents
        self._counts = counts_in(counts_of(name, directory), len(documents))
        self._answers: asyncio.Queue[Any] = asyncio.Queue()

    @property
    def did(self) -> dict[str, int]:
        """The last edit of each document whose call has returned."""
        return dict(zip(self._documents, self._counts, strict=True))

    async def start(self) -> None:
        """Start it, with a relay or without; nothing that it has on file is gone."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.soak_writer",
            *self._arguments,
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._hearing = asyncio.create_task(self._hear())
        on_file = {name: number for name, number in self.did.items() if not is_plain(name)}
        self.check(await self.ask("open"), at_least=on_file)

    async def go(self) -> None:
        """Let it edit; nothing that it did is gone."""
        before = self.did
        self.check(await self.ask("go"), at_least=before)

    async def ask(self, word: str) -> Any:
        """Have it do something; what it answers."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())
        async with asyncio.timeout(PATIENCE_S):
            answer = await self._answers.get()
        assert answer is not None, f"{self.name} has ended; its error stream says why"
        return answer

    async def edits(self) -> None:
        """Wait until it has edited some more, with a relay or without."""
        before = sum(self.did.values())
        async with asyncio.timeout(PATIENCE_S):
            while sum(self.did.values()) < before + OFFLINE_EDITS:
                await asyncio.sleep(0.01)

    def check(self, found: Mapping[str, int], *, at_least: Mapping[str, int]) -> None:
        """Every edit that was made is there, and none but one whose call was cut off."""
        for document, number in at_least.items():
            assert number <= found[document] <= self.did[document] + 1, (self.name, document)

    async def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        await self._process.wait()
        await self._hearing
        assert self._answers.get_nowait() is None

    @property
    def memory(self) -> int:
        """How much memory it has."""
        return memory_of(self._process.pid)

    async def _hear(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            if not line.endswith(b"\n"):
                # It was killed while it said this.
                break
            self._answers.put_nowait(json.loads(line)["result"])
        self._answers.put_nowait(None)


class Soak:
    """Everything that runs, and what was seen of it."""

    def __init__(self, forker: Forker, directory: Path) -> None:
        self._forker, self._directory = forker, directory
        self.chance = random.Random(SEED)
        self.port = free_port()
        self.url = f"ws://127.0.0.1:{self.port}"
        self.world = World(forker, directory)
        self.clients = [
            Client(f"writer-{number}", self.url, directory, documents_of(number))
            for number in range(WRITERS)
        ]
        self.kills = dict.fromkeys(("relay", "archive", "writer", "both"), 0)
        self.memory: list[dict[str, int]] = []
        self.relay: RelayProcess
        self.archive: Running

    async def start(self) -> None:
        (self._directory / "relay.toml").write_text(RELAY)
        (self._directory / "token").write_text(TOKEN)
        (self._directory / "token").chmod(0o600)
        await self.start_relay()
        self.world.configure(
            self.url, "soak", mode="folded", interval=f"{ARCHIVE_S}s", more=ARCHIVE
        )
        self.archive = await self.world.run()
        await asyncio.gather(*(client.start() for client in self.clients))
        await self.go()

    async def start_relay(self) -> None:
        database, config = self._directory / "relay.db", self._directory / "relay.toml"
        port = str(self.port)
        self.relay = await self._forker.start(
            "--port", port, "--database", str(database), "--config", str(config)
        )

    async def stop(self) -> None:
        await asyncio.gather(*(client.kill() for client in self.clients))
        with self.archive.output:
            self._forker.kill(self.archive.number)

    async def kill(self, who: str) -> None:
        """Kill one of them, and start it again."""
        self.kills[who] += 1
        match who:
            case "relay":
                self._forker.kill(self.relay.number)
                await self.start_relay()
            case "archive":
                with self.archive.output:
                    self._forker.kill(self.archive.number)
                self.archive = await self.world.run()
            case "writer":
                client = self.chance.choice(self.clients)
                await client.kill()
                await client.start()
                await client.go()
            case _:
                # What is edited while there is no relay is nowhere but in the writer's file.
                client = self.chance.choice(self.clients)
                self._forker.kill(self.relay.number)
                await client.edits()
                await client.kill()
                await client.start()
                await self.start_relay()
                await client.go()

    async def compare(self, *, is_collecting: bool) -> None:
        """Let everybody rest, and see whether all have the same, and all that was done."""
        counts = await asyncio.gather(*(client.ask("rest") for client in self.clients))
        for client, found in zip(self.clients, counts, strict=True):
            client.check(found, at_least=client.did)
        if is_collecting:
            for client in self.clients:
                await client.ask("settle")
            for client in self.clients:
                await client.ask("collect")
        states = await asyncio.gather(*(client.ask("state") for client in self.clients))
        restored = {document: await self._restored(document) for document in DOCUMENTS}
        for client, state in zip(self.clients, states, strict=True):
            for document, text in state.items():
                assert text == restored[document], (client.name, document)
        for client, found in zip(self.clients, counts, strict=True):
            for document, number in found.items():
                assert json.loads(restored[document])["counts"][client.name] == number
        await self._compare_archive(restored)
        self.memory.append(
            {
                "relay": memory_of(self.relay.number),
                "archive": memory_of(self.archive.number),
                "writer": max(client.memory for client in self.clients),
            }
        )

    async def go(self) -> None:
        """Let everybody go on."""
        await asyncio.gather(*(client.go() for client in self.clients))

    async def _restored(self, document: str) -> str:
        """What somebody sees who has just come."""
        async with store_of("somebody", self.url, document) as store:
            await store.pull()
            assert (store.status.gaps, store.status.forks) == ((), ())
            return shown(store)

    async def _compare_archive(self, restored: Mapping[str, str]) -> None:
        head: int = (await self.status())["head_seq"]

        async def has_all() -> bool:
            manifest = await self.world.archive("soak").manifest()
            return manifest.head_position >= head

        await until(has_all)
        rows = await self.world.rows("soak")
        assert {row["document"]: row["value"] for row in rows} == {
            document: json.loads(text) for document, text in restored.items()
        }
        assert {row["rejected"] for row in rows} == {0}

    @property
    def edits(self) -> int:
        """How many edits there were."""
        return sum(sum(client.did.values()) for client in self.clients)

    def told(self, took_s: float, edits: int) -> str:
        """How much was done in a time, and what memory it takes."""
        memory = ", ".join(f"{who} {size >> 20}" for who, size in self.memory[-1].items())
        return f"{edits} appends, {edits / took_s:.0f} a second; MiB {memory}"

    async def status(self) -> dict[str, Any]:
        """What the relay says of itself."""
        answered = await asyncio.to_thread(ask, self.url, "GET", "/status")
        status: dict[str, Any] = answered.content
        return status


def documents_of(writer: int) -> list[str]:
    """Every other store has two writers, all other documents one each."""
    return [
        document
        for number, document in enumerate(DOCUMENTS)
        if writer == number % WRITERS
        or (number % 2 == 0 and writer == (number + 1) % WRITERS and not is_plain(document))
    ]


def free_port() -> int:
    """A port for a relay that is to come back at the same address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@asynccontextmanager
async def soaking(directory: Path) -> AsyncIterator[Soak]:
    async with AsyncExitStack() as stack:
        soak = Soak(stack.enter_context(forking(directory)), directory)
        await soak.start()
        stack.push_async_callback(soak.stop)
        yield soak


def check_memory(samples: list[dict[str, int]]) -> None:
    """Nobody has needed more and more of it."""
    middle = len(samples) // 2
    for who in samples[0]:
        early = max(sample[who] for sample in samples[:middle])
        late = max(sample[who] for sample in samples[middle:])
        assert late <= early * GROWTH_MAX + GROWTH_BYTES_MAX, (who, samples)


async def test_whoever_is_killed_nothing_is_lost_and_all_see_the_same(tmp_path: Path) -> None:
    print(f"WALSTORE_SOAK_SEED={SEED}")
    victims: list[str] = []
    compared_s = 0.0
    # When each round ended, and how many edits had been acknowledged by then. What is edited
    # without a relay is sent while the others rest, so that rests and comparisons count, too.
    ended = [(0.0, 0)]
    async with soaking(tmp_path) as soak:
        started = time.monotonic()
        for number in range(ROUNDS):
            began = time.monotonic()
            if not victims:
                victims = soak.chance.sample(list(soak.kills), len(soak.kills))
            await asyncio.sleep(soak.chance.uniform(0.2, 0.6) * ROUND_S)
            await soak.kill(victims.pop())
            # A round ends with its comparison, which takes about as long as the last one.
            ends = began + ROUND_S - min(compared_s, ROUND_S / 2)
            await asyncio.sleep(max(0.0, ends - time.monotonic()))
            stopped = time.monotonic()
            await soak.compare(is_collecting=number % COLLECT_EVERY == COLLECT_EVERY - 1)
            compared_s = time.monotonic() - stopped
            ended.append((time.monotonic() - started, soak.edits))
            print(f"round {number + 1} of {ROUNDS}: {soak.told(*ended[-1])}", flush=True)
            if number < ROUNDS - 1:
                await soak.go()
        status = await soak.status()
        checked = await check_archive(soak.world.archive("soak"))
        assert checked.is_sound, checked.flaws
    took_s, edits = ended[-1]
    tenth_s, tenth = ended[-1 - max(1, ROUNDS // 10)]
    print(
        f"soaked for {took_s:.0f} seconds: {soak.told(took_s, edits)},"
        f" {(edits - tenth) / (took_s - tenth_s):.0f} a second in the last tenth,"
        f" {status['head_seq']} events, kills {soak.kills}, {ROUNDS} comparisons"
    )
    assert all(each["floor"] > 0 for each in status["documents"]), "nothing was pruned"
    assert status["head_seq"] >= edits >= PER_SECOND * took_s * TRAFFIC_MIN, "too little traffic"
    check_memory(soak.memory)
