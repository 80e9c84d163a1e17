"""What the commands never do: lose what they have said is written, trust what is not signed, show
a secret, or leave a document half-made.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.archive_made import Made
from tests.cli_process import Forker, Home, forking, relay_of
from walstore.archive.local import LocalDestination
from walstore.cli.main import main
from walstore.local.guard import Guard
from walstore.local.rows import checked
from walstore.signed import Identity

KILLS = 25


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    with forking() as started:
        yield started


@pytest.fixture
def ada(forker: Forker, tmp_path: Path) -> Home:
    return Home(forker, tmp_path / "ada")


def test_what_was_said_to_be_written_survives_a_kill(ada: Home) -> None:
    ada.ok("init", "notes")
    chance, written, maybe = random.Random(11), set[str](), set[str]()
    for number in range(KILLS):
        item = f"item {number}"
        running = ada.start("set", "notes", "bring", item, "--append")
        # Right after it has said so, or somewhere from its first line on.
        said = running.err.line(wait_s=60 if number % 2 else chance.uniform(0, 0.2))
        (written if said == "wrote bring in notes" else maybe).add(item)
        running.end(signal.SIGKILL)
    counts = Counter(ada.ok("get", "notes", "bring", "--json").json)
    assert len(written) >= KILLS // 2
    assert written <= counts.keys() <= written | maybe
    assert set(counts.values()) <= {1}
    assert ada.ok("verify", "notes", "--json").json["sound"]
    ada.ok("set", "notes", "bring", "one more", "--append")
    assert ada.ok("get", "notes", "bring", "--json").json[-1] == "one more"


def test_commands_at_the_same_time_follow_one_another(ada: Home) -> None:
    ada.ok("init", "notes")
    items = [f"item {number}" for number in range(6)]
    running = [ada.start("set", "notes", "bring", item, "--append") for item in items]
    assert [each.wait() for each in running] == [0] * len(items)
    assert sorted(ada.ok("get", "notes", "bring", "--json").json) == items
    made = [ada.start("init", "same") for _ in range(3)]
    assert sorted(each.wait() for each in made) == [0, 2, 2]
    ada.ok("set", "same", "title", "Picnic")


def test_a_program_that_keeps_a_document_is_waited_for_and_then_told_of(ada: Home) -> None:
    ada.ok("init", "notes")
    guard = Guard.acquire(ada.file("notes"))
    running = ada.start("set", "notes", "title", "Picnic")
    assert "waiting for another program" in (running.err.line() or "")
    guard.close()
    assert running.err.line() == "wrote title in notes"
    assert running.wait() == 0


def test_who_waits_in_vain_is_told_why(
    ada: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ada.ok("init", "notes")
    monkeypatch.setattr("walstore.cli.waiting.WAIT_S", 0.05)
    for name, value in ada.environment.items():
        monkeypatch.setenv(name, value)
    guard = Guard.acquire(ada.file("notes"))
    for command in (["get", "notes", "title"], ["log", "notes"], ["verify", "notes"]):
        assert main(command) == 1
        assert "close it there and try again" in capsys.readouterr().err
    guard.close()
    assert main(["log", "notes"]) == 0


# Only what was signed counts.


def rewrite(file: Path, table: str, column: str, old: bytes, new: bytes) -> None:
    """Change rows of a local file as somebody would who knows how their checksums are made."""
    with closing(sqlite3.connect(file)) as connection:
        names = [each[1] for each in connection.execute(f"PRAGMA table_info({table})")]
        for row in connection.execute(f"SELECT * FROM {table}").fetchall():
            cells = dict(zip(names, row, strict=True))
            assert old in cells[column]
            cells[column] = cells[column].replace(old, new)
            renewed = checked(*list(cells.values())[:-1])
            marks = ", ".join("?" * len(names))
            connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", renewed)
        connection.commit()


def test_a_forged_element_is_found(ada: Home, forker: Forker, tmp_path: Path) -> None:
    with relay_of(Home(forker, tmp_path / "relay")) as url:
        ada.ok("init", "notes", "--relay", url)
        ada.ok("set", "notes", "title", "Picnic", "--sync")
        ada.ok("init", "vault", "--relay", url)
        ada.ok("set", "vault", "title", "Picnic")
    good = ada.ok("verify", "notes", "--json").json
    assert (good["sound"], good["elements"], good["flaws"]) == (True, 1, [])
    file = ada.file("notes")
    assert ada.ok("verify", str(file), "--json").json["sound"]
    rewrite(file, "elements", "data", b"Picnic", b"Panics")
    rewrite(ada.file("vault"), "bodies", "canonical", b"Picnic", b"Panics")
    for target in ("notes", "vault", str(file)):
        done = ada("verify", target)
        assert done.code == 3
        assert "was not signed by the key that it names" in done.out
        assert "NOT SOUND" in done.out
    report = ada("doctor", "--offline", "--json")
    assert report.code == 3
    wrong = [each["what"] for each in report.json if each["level"] == "wrong"]
    assert wrong == ["document notes", "document vault"]


def test_a_damaged_file_is_found_and_left_where_it_is(ada: Home) -> None:
    ada.ok("init", "notes")
    ada.ok("set", "notes", "title", "Picnic")
    file, raw = ada.file("notes"), damaged(ada.file("notes"), b"Picnic")
    for target in ("notes", str(file)):
        done = ada("verify", target, "--json")
        assert (done.code, done.json["sound"]) == (3, False)
        assert "damaged" in done.json["flaws"][0]
    assert file.read_bytes() == raw
    # A command that opens it says where everything is, and the next one starts afresh.
    done = ada("get", "notes", "title")
    assert done.code == 1
    assert "set aside" in done.err


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE slots SET name = x'ff' || substr(name, 2)"
        " WHERE name = (SELECT max(name) FROM slots)",
        "UPDATE sessions SET crc = crc + 1",
        "INSERT INTO state VALUES (2, 1, 0, x'00', 0)",
    ],
    ids=["a slot", "a session", "what is stranded"],
)
def test_every_row_is_checked(ada: Home, damage: str) -> None:
    ada.ok("init", "notes")
    ada.ok("set", "notes", "title", "Picnic")
    with closing(sqlite3.connect(ada.file("notes"), isolation_level=None)) as connection:
        connection.execute(damage)
        assert connection.total_changes == 1
    for target in ("notes", str(ada.file("notes"))):
        done = ada("verify", target, "--json")
        assert (done.code, done.json["sound"]) == (3, False)
        assert "damaged" in done.json["flaws"][0]


def test_half_a_character_of_anybody_is_shown(ada: Home) -> None:
    ada.ok("init", "notes")
    ada.ok("set", "notes", "name", '"caf\\udce9"', "--type", "json", "-m", "half")
    ada.ok("set", "notes", "caf\udce9", "\udce9")
    for command, place in (("get", "name"), ("blame", "name"), ("show", None), ("log", None)):
        given = [command, "notes", *([] if place is None else [place])]
        assert "\\udce9" in ada.ok(*given).out or command == "blame"
        assert ada.ok(*given, "--json").out.isascii() or command == "blame"
    assert ada.ok("get", "notes", "name", "--json").json == "caf\udce9"
    assert ada.ok("show", "notes", "--json").json["name"] == "caf\udce9"
    assert "\\udce9" in ada.ok("diff", "notes", "+1").out
    assert "\\udce9" in ada.ok("set", "notes", "name", "x", "--dry-run").err


def test_no_number_of_steps_is_too_long(ada: Home) -> None:
    ada.ok("init", "notes")
    done = ada("show", "notes", "--at", "~" + "9" * 5000)
    assert done.code == 2
    assert "has no version" in done.err


def damaged(file: Path, word: bytes) -> bytes:
    """Flip a bit of a word in a file; what the file is then."""
    raw = bytearray(file.read_bytes())
    raw[raw.rindex(word)] ^= 1
    file.write_bytes(raw)
    return bytes(raw)


def test_what_was_saved_of_a_damaged_file_is_brought_back_once(ada: Home) -> None:
    ada.ok("init", "notes")
    assert ada("restore", "notes").code == 1
    for name in ("title", "place", "time"):
        ada.ok("set", "notes", name, f"the {name}")
    damaged(ada.file("notes"), b"the place")
    assert ada("show", "notes").code == 1
    ada.ok("set", "notes", "later", "x")
    assert ada.ok("restore", "notes", "--json").json["restored"] == 2
    found = ada.ok("show", "notes", "--json").json
    assert found == {"later": "x", "time": "the time", "title": "the title"}
    assert ada.ok("verify", "notes", "--json").json["unsent"] == 3
    # Somebody was killed before the file was put away: it does no harm.
    saved = ada.file("notes").with_name("log.db.restored-1.jsonl")
    saved.rename(saved.with_name("log.db.unsent-1.jsonl"))
    assert ada.ok("restore", "notes", "--json").json["restored"] == 0
    assert ada.ok("show", "notes", "--json").json == found


@pytest.mark.parametrize("is_number_taken", [False, True])
def test_what_was_brought_back_before_is_not_replaced(ada: Home, is_number_taken: bool) -> None:
    ada.ok("init", "notes")
    beside = ada.file("notes").parent
    texts: list[str] = []
    for turn in ("one", "two"):
        for name in ("title", "place"):
            ada.ok("set", "notes", name, f"the {name} {turn}")
        damaged(ada.file("notes"), f"the place {turn}".encode())
        assert ada("show", "notes").code == 1
        (saved,) = beside.glob("log.db.unsent-*.jsonl")
        if is_number_taken:
            saved = saved.rename(beside / "log.db.unsent-1.jsonl")
        texts.append(saved.read_text())
        ada.ok("restore", "notes")
        # As is advised, once nothing is missing.
        for each in beside.glob("log.db.damaged-*"):
            each.unlink()
    restored = [beside / f"log.db.restored-{number}.jsonl" for number in (1, 2)]
    assert [each.read_text() for each in restored] == texts


def test_what_is_not_as_it_was_signed_stays_where_it_was_saved(ada: Home) -> None:
    ada.ok("init", "notes")
    for name in ("title", "place", "time"):
        ada.ok("set", "notes", name, f"the {name}")
    damaged(ada.file("notes"), b"the place")
    assert ada("show", "notes").code == 1
    saved = ada.file("notes").with_name("log.db.unsent-1.jsonl")
    lines = [json.loads(line) for line in saved.read_text().splitlines()]
    bodies = [line for line in lines if "signature" in line]
    bodies[0]["signature"] = bodies[1]["signature"]
    saved.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = ada.ok("restore", "notes", "--json")
    assert done.json == {"name": "notes", "restored": 1, "left": 1}
    assert f"1 edit in {saved} cannot be brought back" in done.err
    assert saved.exists()
    assert "walstore restore notes" in ada.ok("show", "notes").err


@pytest.mark.parametrize("words", [("get", "notes", ""), ("show", "notes", "--at", "")])
def test_a_key_that_completes_changes_nothing(ada: Home, words: tuple[str, ...]) -> None:
    ada.ok("init", "notes")
    ada.ok("set", "notes", "title", "Picnic")
    assert ada.ok("completion", "--words", *words).out
    before = damaged(ada.file("notes"), b"Picnic")
    beside = sorted(ada.file("notes").parent.iterdir())
    assert ada.ok("completion", "--words", *words).out == ""
    assert ada.file("notes").read_bytes() == before
    assert sorted(ada.file("notes").parent.iterdir()) == beside


def test_what_was_set_aside_is_told_for_as_long_as_it_lies_there(ada: Home) -> None:
    ada.ok("init", "notes")
    for name in ("title", "place"):
        ada.ok("set", "notes", name, "Picnic")
    damaged(ada.file("notes"), b"Picnic")
    assert ada("show", "notes").code == 1
    for command in ("show", "log"):
        assert ada.ok(command, "notes").err.count("walstore restore notes") == 1
    ada.file("notes").with_name("log.db.unsent-1.jsonl").unlink()
    assert "log.db.damaged-1 was set aside" in ada.ok("show", "notes").err
    ada.file("notes").with_name("log.db.damaged-1").unlink()
    assert "log.db" not in ada.ok("show", "notes").err


def test_an_archive_is_checked_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    asyncio.run(Made(LocalDestination(out)).grow())
    assert main(["verify", str(out), "--prefix", "notes/", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sound"]
    assert main(["verify", str(out)]) == 1
    assert "does it have a prefix, such as notes/?" in capsys.readouterr().err
    (out / "notes" / "manifest.json").write_text("nonsense")
    assert main(["verify", "--prefix", "notes/", str(out)]) == 3


# Keys.


def test_a_private_key_comes_from_anywhere_but_the_command_line(ada: Home) -> None:
    seed = bytes([7]) * 32
    key = Identity.from_seed(seed).public_key
    imported = ada.ok("keygen", "work", "--import", "--json", stdin=seed.hex() + "\n")
    assert imported.json["public_key"] == key
    assert seed.hex() not in imported.out + imported.err
    from_seed = ada.ok("keygen", "--json", WALSTORE_SEED=seed.hex())
    assert from_seed.json["public_key"] == key
    file = str(ada.data / "identities" / "work.json")
    from_file = ada.ok("keygen", "--json", WALSTORE_IDENTITY_FILE=file)
    assert from_file.json["public_key"] == key
    assert [each["name"] for each in ada.ok("keygen", "--list", "--json").json] == ["work"]
    wrong = ada("keygen", WALSTORE_SEED=seed.hex()[:-1])
    assert (wrong.code, wrong.out) == (2, "")
    assert "WALSTORE_SEED" in wrong.err
    assert seed.hex()[:-1] not in wrong.err
    # Nor does an editor get it.
    ada.ok("init", "notes", WALSTORE_SEED=seed.hex())
    editor = ada.root / "editor"
    editor.write_text('#!/bin/sh\necho "seed: $WALSTORE_SEED" > "$1"\n')
    editor.chmod(0o700)
    ada.ok("edit", "notes", "body", WALSTORE_SEED=seed.hex(), VISUAL=str(editor))
    assert ada.ok("get", "notes", "body", WALSTORE_SEED=seed.hex()).out == "seed: \n"


def test_a_key_that_others_can_read_is_refused(ada: Home) -> None:
    ada.ok("init", "notes")
    file = ada.data / "identities" / "default.json"
    file.chmod(0o644)
    done = ada("get", "notes", "title")
    assert (done.code, done.out) == (1, "")
    assert f"chmod 600 {file}" in done.err
    report = ada("doctor", "--json")
    assert report.code == 1
    assert f"chmod 600 {file}" in [each["advice"] for each in report.json]
    file.chmod(0o600)
    assert ada.ok("doctor").code == 0


def test_the_keychain_keeps_a_key_and_no_file_does(ada: Home) -> None:
    pytest.importorskip("keyring")
    chain = {
        "PYTHON_KEYRING_BACKEND": "tests.keychain.FileKeychain",
        "TEST_KEYCHAIN": str(ada.root / "chain.json"),
    }
    made = ada.ok("keygen", "--keychain", "--json", **chain)
    assert made.json["place"] == "the keychain"
    ada.ok("init", "notes", **chain)
    ada.ok("set", "notes", "title", "Picnic", **chain)
    (secret,) = json.loads(Path(chain["TEST_KEYCHAIN"]).read_text()).values()
    assert Identity.from_seed(secret).public_key == made.json["public_key"]
    kept = [each for each in ada.data.rglob("*") if each.is_file()]
    assert not [each for each in kept if secret.encode() in each.read_bytes()]
    Path(chain["TEST_KEYCHAIN"]).unlink()
    done = ada("get", "notes", "title", **chain)
    assert (done.code, done.out) == (1, "")
    assert "unlock it and try again" in done.err


# What is wrong is found.


def test_a_doctor_looks_at_everything(ada: Home, forker: Forker, tmp_path: Path) -> None:
    nothing = ada.ok("doctor")
    assert "walstore init notes" in nothing.out
    with relay_of(Home(forker, tmp_path / "relay")) as url:
        ada.ok("init", "notes", "--relay", url)
        ada.ok("set", "notes", "title", "Picnic")
        well = ada.ok("doctor", "--json").json
        assert {each["level"] for each in well} <= {"ok", "note"}
        found = {each["what"]: each for each in well}
        assert found["document notes"]["advice"] == "walstore sync notes"
        assert found[f"relay {url}"]["found"].startswith("answers within")
        assert found["clock"]["found"].startswith("within")
    away = ada("doctor")
    assert away.code == 4
    assert "everything works offline meanwhile" in away.out
    (ada.data / "documents" / "notes" / "document.json").write_text("{")
    broken = ada("doctor", "--offline")
    assert broken.code == 1
    assert "this is not JSON" in broken.out
    shutil.rmtree(ada.data / "documents" / "notes")
    ada.ok("doctor")
