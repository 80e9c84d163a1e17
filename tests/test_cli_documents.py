"""What one person does with documents, by real commands: make, write, read, edit, look back."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli_process import Forker, Home, forking
from walstore.local.guard import Guard


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    with forking() as started:
        yield started


@pytest.fixture
def ada(forker: Forker, tmp_path: Path) -> Home:
    return Home(forker, tmp_path / "ada")


@pytest.fixture(scope="module")
def mistaken(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Somebody who has a document, and makes mistakes that change nothing."""
    home = Home(forker, tmp_path_factory.mktemp("home") / "mo")
    home.ok("init", "notes")
    home.ok("set", "notes", "title", "Picnic")
    home.ok("set", "notes", "body", "Meet at the lake.\n", "--type", "text")
    (home.root / "diary.txt").write_text("Dear diary")
    return home


def editor(home: Home, script: str) -> dict[str, str]:
    """The environment of somebody whose editor is a script, given the file as $1."""
    path = home.root / "editor"
    path.write_text(f"#!/bin/sh\nset -e\n{script}\n")
    path.chmod(0o700)
    return {"EDITOR": str(path), "VISUAL": ""}


# What is written is there.


def test_what_was_deleted_makes_room_for_something_else(ada: Home) -> None:
    ada.ok("init", "notes")
    ada.ok("set", "notes", "bring", '["bread"]', "--type", "list")
    refused = ada("set", "notes", "bring", "5", "--type", "json")
    assert refused.code == 2
    assert "delete it first: walstore set notes bring --delete" in refused.err
    ada.ok("set", "notes", "bring", "--delete")
    ada.ok("set", "notes", "bring", "5", "--type", "json")
    assert ada.ok("get", "notes", "bring").out == "5\n"
    ada.ok("set", "notes", "who", '{"ada": 1}', "--type", "map")
    ada.ok("set", "notes", "who", "--delete")
    ada.ok("set", "notes", "who", "nobody", "--type", "text")
    assert ada.ok("get", "notes", "who").out == "nobody"
    refused = ada("set", "notes", "who", '{"ada": 1}', "--type", "map")
    assert refused.code == 2
    assert refused.err.endswith("use another name\n")


def test_a_map_is_written_as_given_and_its_keys_have_one_value(ada: Home) -> None:
    ada.ok("init", "notes")
    ada.ok("set", "notes", "done", '{"ada": 1, "bo": 0}', "--type", "map")
    ada.ok("set", "notes", "done", '{"ada": true, "bo": 0}', "--type", "map")
    assert ada.ok("get", "notes", "done", "--json").json == {"ada": True, "bo": 0}
    assert ada.ok("get", "notes", "done/ada").out == "true\n"
    refused = ada("set", "notes", "done/ada", "cheese", "--append")
    assert (refused.code, ada.ok("get", "notes", "done/ada").out) == (2, "true\n")
    assert "key of a map" in refused.err


def test_half_a_character_is_refused_where_it_would_end_a_text(ada: Home) -> None:
    ada.ok("init", "notes")
    refused = ada("set", "notes", "body", "caf\udce9", "--type", "text")
    assert (refused.code, ada.ok("show", "notes").out) == (2, "")
    assert "half a character" in refused.err
    refused = ada("sync", "notes", "--relay", "ws://relay.example/caf\udce9")
    assert refused.code == 2
    assert "is not the address of a relay" in refused.err


def test_what_was_emptied_is_empty_and_written_by_nobody(ada: Home) -> None:
    ada.ok("init", "notes")
    for kind, value, nothing in [("text", "abc", ""), ("list", '["bread"]', "[]")]:
        ada.ok("set", "notes", kind, value, "--type", kind)
        ada.ok("set", "notes", kind, nothing, "--type", kind)
        assert ada.ok("get", "notes", kind).out == ""
        assert ada.ok("get", "notes", kind, "--json").out == "[]\n"
        assert ada.ok("blame", "notes", kind).out == ""
        assert ada.ok("blame", "notes", kind, "--json").json == []
    ada.ok("set", "notes", "map", '{"a": 1}', "--type", "map")
    ada.ok("set", "notes", "map/a", "--delete")
    assert "Traceback" not in ada("blame", "notes", "map").err


def test_who_wrote_a_key_of_a_map_is_told_and_joined_emoji_stay_whole(ada: Home) -> None:
    ada.ok("init", "notes")
    ada.ok("set", "notes", "people", '{"ada": "👩\u200d👧", "b/c": 2}', "--type", "map")
    assert ada.ok("blame", "notes", "people/ada").out.endswith('ada: "👩\u200d👧"\n')
    (line,) = ada.ok("blame", "notes", "people/b/c", "--json").json
    assert line["text"] == "b/c: 2"


def test_a_document_is_made_written_and_read(ada: Home) -> None:
    made = ada.ok("init", "notes")
    assert made.out.startswith("notes-")
    assert "walstore set notes" in made.err
    key = ada.data / "identities" / "default.json"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(ada.data.stat().st_mode) == 0o700

    done = ada.ok("set", "notes", "title", "Picnic")
    assert (done.out, done.err) == ("", "wrote title in notes\n")
    assert ada.ok("get", "notes", "title").out == "Picnic\n"
    assert ada.ok("get", "notes", "title", "--json").out == '"Picnic"\n'

    ada.ok("set", "notes", "body", "-", "--type", "text", stdin="Meet at the lake")
    assert ada.ok("get", "notes", "body").out == "Meet at the lake"
    ada.ok("set", "notes", "body", ".", "--append")
    ada.ok("set", "notes", "count", "--type", "json", "12")
    ada.ok("set", "notes", "bring", '["bread"]', "--type", "list")
    ada.ok("set", "notes", "bring", "wine", "--append")
    ada.ok("set", "notes", "who/ada", "salad")
    ada.ok("set", "notes", "who/bo", "cheese")
    assert ada.ok("get", "notes", "who/bo").out == "cheese\n"
    would = ada.ok("set", "notes", "who/bo", "--delete", "--dry-run")
    assert 'now it is "cheese"' in would.err
    ada.ok("set", "notes", "who/bo", "--delete")
    said = ada.ok("set", "notes", "count", "13", "--type", "json", "--json").json
    assert said == {"name": "count", "value": 13, "unsent": 10}
    assert ada.ok("show", "notes", "--json").json == {
        "body": "Meet at the lake.",
        "bring": ["bread", "wine"],
        "count": 13,
        "title": "Picnic",
        "who": {"ada": "salad"},
    }
    assert "title: Picnic\n" in ada.ok("show", "notes").out
    listed = ada.ok("show", "--json").json
    assert [(each["name"], each["relay"]) for each in listed] == [("notes", None)]


def test_the_past_is_told_version_by_version(ada: Home) -> None:
    ada.ok("init", "notes")
    ada.ok("set", "notes", "body", "one\ntwo\n", "--type", "text", "-m", "a draft")
    ada.ok("set", "notes", "body", "one\nTWO\n")
    ada.ok("set", "notes", "title", "\x1b[31mred")
    log = [json.loads(line) for line in ada.ok("log", "notes", "--json").out.splitlines()]
    assert [each["version"] for each in log] == ["+3", "+2", "+1"]
    assert [each["names"] for each in log] == [["title"], ["body"], ["body"]]
    assert log[2]["message"] == "a draft"
    shown = ada.ok("log", "notes", "-n", "2").out.splitlines()
    assert [line.split()[0] for line in shown] == ["+3", "+2"]

    assert ada.ok("show", "notes", "--at", "+1", "--json").json == {"body": "one\ntwo\n"}
    named = ada.ok("show", "notes", "--at", "a draft", "--json")
    assert named.json == ada.ok("show", "notes", "--at", "~2", "--json").json
    difference = ada.ok("diff", "notes", "+1", "+2").out.splitlines()
    assert difference[2:] == ["@@ -1,2 +1,2 @@", " one", "-two", "+TWO"]
    changes = ada.ok("diff", "notes", "~1", "--json").json
    assert [(each["name"], each["change"]) for each in changes] == [("title", "added")]
    assert ada.ok("diff", "notes", "now", "now").out == ""

    blamed = ada.ok("blame", "notes", "body", "--json").json
    assert [(each["text"], each["ts"]) for each in blamed] == [("one\n", None), ("TWO\n", None)]
    assert "unsent  you  TWO" in ada.ok("blame", "notes", "body").out
    assert "\x1b" not in ada.ok("blame", "notes", "title").out


def test_undo_takes_back_step_by_step_and_a_dry_run_nothing(ada: Home) -> None:
    ada.ok("init", "notes")
    ada.ok("set", "notes", "title", "Picnic")
    ada.ok("set", "notes", "body", "lake", "--type", "text")
    would = ada.ok("undo", "notes", "--dry-run")
    assert "-lake" in would.out
    assert "nothing was changed" in would.err
    assert len(ada.ok("log", "notes", "--json").out.splitlines()) == 2
    assert ada.ok("get", "notes", "body").out == "lake"

    undone = ada.ok("undo", "notes", "--json").json
    assert undone == [{"name": "body", "change": "changed", "before": "lake", "after": ""}]
    ada.ok("undo", "notes", "--redo")
    assert ada.ok("get", "notes", "body").out == "lake"
    assert "only 2 steps" in ada.ok("undo", "notes", "--steps", "5").err
    done = ada("undo", "notes")
    assert (done.code, done.out) == (1, "")
    assert "nothing of yours to undo" in done.err


def test_an_editor_leaves_what_was_not_touched_as_it_was(ada: Home) -> None:
    ada.ok("init", "notes")
    name, text = "☃" * 80, "one\r\ntwo\rthree\n"
    ada.ok("set", "notes", name, text, "--type", "text")
    ada.ok("edit", "notes", name, **editor(ada, 'printf "four\\r\\n" >> "$1"'))
    assert ada.ok("get", "notes", name, "--json").json == f"{text}four\r\n"


def test_the_keys_that_interrupt_are_the_editors_while_it_runs(ada: Home) -> None:
    ada.ok("init", "notes")
    script = 'kill -INT $PPID; kill -QUIT $PPID; printf "typed" > "$1"; kill -INT $PPID'
    ada.ok("edit", "notes", "body", **editor(ada, script))
    assert ada.ok("get", "notes", "body").out == "typed"


def test_whoever_interrupts_after_the_editor_is_told_where_it_is(ada: Home) -> None:
    ada.ok("init", "notes")
    ready = ada.root / "ready"
    os.mkfifo(ready)
    ada.environment |= editor(ada, f'printf "typed" > "$1"; cat "{ready}"')
    running = ada.start("edit", "notes", "body")
    while not (line := running.err.line() or "").startswith("notes has nothing"):
        assert line
    with ready.open("w"):
        guard = Guard.acquire(ada.file("notes"))
    try:
        assert "waiting for another program" in (running.err.line() or "")
        os.kill(running.number, signal.SIGINT)
        told = running.err.line() or ""
        assert Path(told.removeprefix("what you typed is in ")).read_text() == "typed"
        assert running.err.line() == "walstore edit: interrupted"
        assert running.wait() == 1
    finally:
        guard.close()


def test_an_editor_edits_a_text_and_what_came_meanwhile_is_merged(ada: Home) -> None:
    ada.ok("init", "notes")
    first = editor(ada, "printf 'one\\ntwo\\n' > \"$1\"")
    assert "wrote body" in ada.ok("edit", "notes", "body", **first).err
    assert ada.ok("get", "notes", "body").out == "one\ntwo\n"
    # The document is free while the editor is open: whoever it is could write.
    walstore = f"'{sys.executable}' -m walstore"
    script = (
        f"{walstore} set notes body 'one\ntwo\nthree\n' --type text 2>/dev/null\n"
        'sed s/one/ONE/ "$1" > "$1.new"; mv "$1.new" "$1"'
    )
    merged = ada.ok("edit", "notes", "body", "-m", "in capitals", **editor(ada, script))
    assert "merged with what was written meanwhile" in merged.err
    assert ada.ok("get", "notes", "body").out == "ONE\ntwo\nthree\n"
    assert "in capitals" in ada.ok("log", "notes", "-n", "1").out

    same = ada.ok("edit", "notes", "body", **editor(ada, "true"))
    assert "nothing was changed" in same.err
    assert not list(ada.root.glob("walstore-*"))


def test_what_was_typed_is_kept_when_it_cannot_be_written(ada: Home) -> None:
    ada.ok("init", "notes")
    settings = ada.file("notes").with_name("document.json")
    script = f"printf 'much work\\n' > \"$1\"; chmod 644 {ada.data}/identities/default.json"
    done = ada("edit", "notes", "body", **editor(ada, script))
    assert done.code == 1
    assert settings.exists()
    kept = Path(done.err.strip().rpartition(" ")[2])
    assert kept.read_text() == "much work\n"


def test_options_may_stand_anywhere_and_names_may_look_odd(ada: Home) -> None:
    ada.ok("init", "notes", "--key", "team/notes")
    assert ada.ok("show", "--json").json[0]["key"] == "team/notes"
    ada.ok("set", "--type", "text", "notes", "a/b", "--json", "lake")
    assert ada.ok("get", "--json", "notes", "a/b").json == "lake"
    ada.ok("set", "notes", "--", "-x", "-1")
    assert ada.ok("get", "notes", "--", "-x").out == "-1\n"


def test_configuration_and_environment_say_what_to_assume(ada: Home) -> None:
    config = ada.root / "config" / "walstore" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('relay = "ws://127.0.0.1:1"\nidentity = "work"\n')
    assert ada.ok("init", "notes", "--json").json["relay"] == "ws://127.0.0.1:1"
    other = ada.ok("init", "more", "--json", WALSTORE_RELAY="wss://relay.example").json
    assert other["relay"] == "wss://relay.example"
    assert (ada.data / "identities" / "work.json").exists()
    config.write_text('rely = "ws://127.0.0.1:1"\n')
    done = ada("init", "third")
    assert (done.code, done.out) == (2, "")
    assert "'rely' is none of identity, relay" in done.err


# Mistakes, the most likely ones of each command: what is said, and how it ends.


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("init notes", 2, "there is a document called notes already"),
        ("init my/notes", 2, "cannot be a name here"),
        ("init other --relay localhost:3400", 2, "did you mean ws://localhost:3400?"),
        ("init other --relay relay.example:80", 2, "did you mean wss://relay.example:80?"),
        ("init other --relay nonsense", 2, "one is like ws://127.0.0.1:3400"),
        ("init other --key x__snapshot", 2, "__snapshot names snapshots"),
        (f"init other --key {'x' * 600}", 2, "not 1 to 512 characters long"),
        ("init other --identity ../key", 2, "cannot be a name here"),
        ("get nots title", 2, "did you mean notes?"),
        ("get title notes", 2, "notes is one: the document comes first"),
        ("get notes titel", 1, "it has: body, title"),
        ("get notes", 2, "the following arguments are required: name"),
        ("set notes title", 2, "give a value, or --delete"),
        ("set notes title {a} --type json", 2, "one is like '{\"a\": [1]}'"),
        ("set notes title [1] --type list", 2, "walstore set notes title --delete"),
        ("set notes nothing --delete", 1, "nothing called 'nothing'"),
        ("set notes nothing [] --type list", 2, "nothing was written"),
        ("set notes nothing {} --type map --json", 2, "nothing was written"),
        (f"set notes title x -m {'y' * 3000}", 2, "a message of 3000 characters is too large"),
        ("set nots title x", 2, "did you mean notes?"),
        ("set notes title x --sync", 2, "--relay ws://host:port"),
        ("show nots", 2, "`walstore show` lists all"),
        ("show notes --at yesterday", 2, "`walstore log notes` lists them"),
        ("show --at +1", 2, "say of which document"),
        ("edit notes title", 2, "walstore set notes title"),
        ("edit notes body", 2, "there is no terminal"),
        ("edit nots body", 2, "did you mean notes?"),
        ("edit notes", 2, "the following arguments are required: name"),
        ("undo nots", 2, "did you mean notes?"),
        ("undo notes --steps 0", 2, "'0' is not a number of 1 or more"),
        ("undo notes --steps", 2, "expected one argument"),
        ("log nots", 2, "did you mean notes?"),
        ("log", 2, "the following arguments are required: document"),
        ("log notes -n many", 2, "'many' is not a number of 1 or more"),
        ("diff notes", 2, "the following arguments are required: VERSION"),
        ("diff notes 17", 2, "the oldest here is +1"),
        ("diff +1 notes", 2, "notes is one: the document comes first"),
        ("diff nots +1", 2, "did you mean notes?"),
        ("blame notes titel", 1, "it has: body, title"),
        ("blame notes body --at +2", 2, "not sent yet"),
        ("blame notes", 2, "the following arguments are required: name"),
        ("sync notes", 2, "`walstore relay` runs one"),
        ("sync --follow", 2, "say which document"),
        ("sync notes --relay http://x", 2, "did you mean ws://x?"),
        ("share notes walstore-card.x", 2, "begins with walstore-card."),
        ("share notes --role king", 2, "invalid choice: 'king'"),
        ("share walstore-card.x notes", 2, "notes is one: the document comes first"),
        ("share notes walstore-invitation.x", 2, "this is an invitation; ask for the line"),
        ("join walstore-card.x", 2, "this is a card; hand it to the owner"),
        ("join walstore-invitation.x", 2, "begins with walstore-invitation."),
        ("join", 2, "the following arguments are required: invitation"),
        ("revoke notes bo", 2, "--relay ws://host:port"),
        ("revoke notes", 2, "the following arguments are required: member"),
        ("verify nots", 2, "did you mean notes?"),
        ("verify diary.txt", 1, "walstore inspect diary.txt"),
        ("verify missing.db", 2, "missing.db: there is no such file"),
        ("verify no/such/file", 2, "no/such/file: there is no such file"),
        ("verify", 2, "the following arguments are required"),
        ("compact notes", 2, "--relay ws://host:port"),
        ("compact nots", 2, "did you mean notes?"),
        ("compact notes --wet-run", 2, "unrecognized arguments: --wet-run"),
        ("keygen --import default", 2, "there is an identity called default already"),
        ("keygen --import other", 2, "64 lower-case hex digits"),
        ("keygen ../other", 2, "cannot be a name here"),
        ("doctor notes", 2, "unrecognized arguments: notes"),
        ("completion", 2, "bash, zsh or fish"),
        ("completion csh", 2, "invalid choice: 'csh'"),
        ("inti notes", 2, "did you mean init?"),
    ],
)
def test_a_mistake_is_told_with_what_to_do(
    mistaken: Home, line: str, code: int, message: str
) -> None:
    done = mistaken(*line.split(), stdin="no key\n")
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_file_of_somebody_else_gets_no_lock_beside_it(mistaken: Home) -> None:
    before = sorted(mistaken.root.iterdir())
    done = mistaken("verify", "diary.txt")
    assert done.code == 1
    assert done.err.startswith("walstore verify: diary.txt: ")
    assert sorted(mistaken.root.iterdir()) == before


def test_a_new_text_is_said_to_be_new(mistaken: Home) -> None:
    done = mistaken.ok("edit", "notes", "bdoy", EDITOR="true", VISUAL="")
    assert "notes has nothing called bdoy yet" in done.err
    assert "nothing was changed" in done.err
    done = mistaken.ok("edit", "notes", "body", EDITOR="true", VISUAL="")
    assert done.err == "nothing was changed\n"


def test_who_is_made_an_identity_is_told_so(ada: Home) -> None:
    first = ada.ok("init", "notes")
    assert str(ada.data / "identities" / "default.json") in first.err
    again = ada.ok("init", "others")
    assert "identities" not in again.err
    mistyped = ada.ok("init", "third", WALSTORE_IDENTITY="defualt")
    assert "made the identity defualt" in mistyped.err


def test_an_editor_that_fails_changes_nothing(mistaken: Home) -> None:
    for command, reason in (("/no/such/editor", "does not run"), ("false", "ended with 1")):
        done = mistaken("edit", "notes", "body", VISUAL="", EDITOR=command)
        assert (done.code, done.out) == (1, "")
        assert reason in done.err
        assert "EDITOR or VISUAL names another" in done.err
        assert "What you typed" not in done.err
    done = mistaken("edit", "notes", "body", **editor(mistaken, 'echo work >> "$1"; exit 3'))
    assert done.code == 1
    kept = Path(done.err.strip().rpartition(" ")[2])
    assert kept.read_text() == "Meet at the lake.\nwork\n"
    assert mistaken.ok("get", "notes", "body").out == "Meet at the lake.\n"
