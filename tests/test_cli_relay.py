"""`walstore relay`, as a real process: it starts, says where it is, serves, and leaves politely."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from walstore.canon import canonical_bytes
from walstore.cli.admin_client import ask_relay
from walstore.cli.main import main
from walstore.errors import TransportError
from walstore.signed import Domain, Identity, sign_bytes, signing_input_of
from walstore.signed.auth import relay_address, sign_auth
from walstore.wire.frames import Append, Auth, Hello, Ok, client_frame, read_relay_frame

TOKEN = "a-token-of-the-operator"
ANNA = Identity.from_seed(bytes([1]) * 32)
WAIT_S = 30


class Running:
    """A relay in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def ask(
        self, method: str, path: str, body: bytes = b"", token: str | None = None
    ) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        parts = urlsplit(self.url)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=WAIT_S)
        try:
            connection.request(method, path, body or None, headers)
            response = connection.getresponse()
            text = response.read()
            is_json = "json" in (response.getheader("content-type") or "")
            return response.status, json.loads(text) if is_json else text.decode()
        finally:
            connection.close()

    def stop(self, by: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Its exit code, and the rest of what it has said."""
        self.process.send_signal(by)
        output, errors = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, output, errors


def environment(**more: str) -> dict[str, str]:
    clean = {name: text for name, text in os.environ.items() if "WALSTORE" not in name}
    return {**clean, **more}


@contextmanager
def running(directory: Path, *arguments: str, **environ: str) -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, "-m", "walstore", "relay", "--port", "0", *arguments],
        cwd=directory,
        env=environment(**environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise AssertionError(process.communicate(timeout=WAIT_S)[1])
        yield Running(process, url)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(directory: Path, *arguments: str, **environ: str) -> tuple[int, str, str]:
    """The exit code, and what a command said that ends by itself."""
    done = subprocess.run(
        [sys.executable, "-m", "walstore", *arguments],
        cwd=directory,
        env=environment(**environ),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


async def said(client: ClientConnection) -> Any:
    async with asyncio.timeout(WAIT_S):
        return read_relay_frame(await client.recv())


async def append(client: ClientConnection, url: str, document: str) -> Ok:
    """Prove a key, and append an element."""
    hello = await said(client)
    assert isinstance(hello, Hello)
    parts = urlsplit(url)
    relay = relay_address(parts.hostname or "", parts.port or 0)
    proof = sign_auth(challenge=hello.challenge, relay=relay, identity=ANNA)
    await client.send(client_frame(Auth("1", ANNA.public_key, proof)).decode())
    assert isinstance(await said(client), Ok)
    data = canonical_bytes({"v": 1})
    signature = sign_bytes(signing_input_of(Domain.APPEND, document, data), ANNA).author_signature
    frame = Append("2", document, None, ANNA.public_key, signature, data)
    await client.send(client_frame(frame).decode())
    answer = await said(client)
    assert isinstance(answer, Ok)
    return answer


# Running.


def test_it_says_where_it_is_and_drains_when_told_to(tmp_path: Path) -> None:
    for by in (signal.SIGTERM, signal.SIGINT):
        with running(tmp_path) as relay:
            assert relay.url.startswith("ws://127.0.0.1:")
            assert relay.ask("GET", "/healthz") == (200, {"status": "alive"})
            assert relay.ask("GET", "/readyz") == (200, {"status": "ready"})
            code, output, errors = relay.stop(by)
        assert (code, output) == (0, "")
        assert relay.url in errors
        assert "http://" in errors
        assert "Traceback" not in errors
    assert (tmp_path / "walstore-relay.db").exists()


def test_a_database_that_takes_long_to_look_through_is_announced(tmp_path: Path) -> None:
    path = tmp_path / "relay.db"
    for is_large, check, told in (
        (False, "full", ""),
        (True, "full", 'relay.db before it is used, 128 MiB; with database_check = "quick" that'),
        (True, "quick", "relay.db before it is used, 128 MiB\n"),
        (True, "none", ""),
    ):
        if is_large:
            os.truncate(path, 128 * 2**20)
        environ = {"WALSTORE_RELAY_DATABASE_CHECK": check}
        with running(tmp_path, "--database", path.name, **environ) as relay:
            code, _, errors = relay.stop()
        assert code == 0
        assert told in errors
        assert ("looking through" in errors) == bool(told), errors


async def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as relay:
        async with connect(relay.url) as client:
            await append(client, relay.url, "notes/a")
            status = relay.ask("GET", "/status")[1]
            assert [each["document"] for each in status["documents"]] == ["notes/a"]
            assert [each["keys"] for each in status["connections"]] == [[ANNA.public_key]]
            assert (status["head_seq"], status["min_seq"]) == (1, 1)
            metrics = relay.ask("GET", "/metrics")[1]
            assert "walstore_relay_connections 1.0" in metrics
            assert "walstore_relay_head_seq 1.0" in metrics
            relay.process.send_signal(signal.SIGTERM)
            with pytest.raises(ConnectionClosed) as caught:
                await said(client)
            assert caught.value.rcvd is not None
            assert (caught.value.rcvd.code, bool(caught.value.rcvd.reason)) == (1012, True)
        assert await asyncio.to_thread(relay.process.wait, WAIT_S) == 0
    with running(tmp_path) as relay:
        assert relay.ask("GET", "/status")[1]["head_seq"] == 1


def test_idle_connections_do_not_hold_it_up(tmp_path: Path) -> None:
    with running(tmp_path) as relay:
        parts = urlsplit(relay.url)
        with socket.create_connection((parts.hostname, parts.port)):
            # Once another request is answered, this one was accepted too.
            assert relay.ask("GET", "/healthz")[0] == 200
            relay.process.send_signal(signal.SIGTERM)
            # Well below the ten seconds that a connection has to say what it wants.
            assert relay.process.wait(5) == 0


def test_a_log_of_json_is_json_on_every_line(tmp_path: Path) -> None:
    with running(tmp_path, "--log-json") as relay:
        _, _, errors = relay.stop()
    lines = [line for line in errors.splitlines() if not line.startswith("The relay is ready")]
    entries = [json.loads(line) for line in lines]
    assert {"at", "level", "logger", "message"} <= entries[0].keys()


# The operator.


def test_the_policy_is_changed_through_the_endpoint_and_survives_a_restart(tmp_path: Path) -> None:
    with running(tmp_path, WALSTORE_RELAY_ADMIN_TOKEN=TOKEN) as relay:
        assert relay.ask("PATCH", "/admin/retention", b'{"recent_count":9}')[0] == 401
        status, answer = relay.ask("PATCH", "/admin/retention", b'{"recent_count":9}', token=TOKEN)
        assert (status, answer["retention"]["recent_count"]) == (200, 9)
        assert answer["removed"] == {"elements": 0, "snapshots": 0, "payload_bytes": 0}
        status, answer = relay.ask("PATCH", "/admin/retention", b'{"recent_count":0}', token=TOKEN)
        assert status == 400
        assert "recent_count" in answer["error"]
        info = relay.ask("GET", "/")[1]
        retention = info["snapshot_sync"]["retention"]["snapshot_retention"]
        assert retention["recent_count"] == 9
        assert relay.stop()[0] == 0
    with running(tmp_path, WALSTORE_RELAY_ADMIN_TOKEN=TOKEN) as relay:
        assert relay.ask("GET", "/admin/retention", token=TOKEN)[1]["recent_count"] == 9


def test_a_running_relay_is_compacted_through_its_endpoint(tmp_path: Path) -> None:
    with running(tmp_path, WALSTORE_RELAY_ADMIN_TOKEN=TOKEN) as relay:
        command = ("relay", "compact", "--dry-run", "--url", relay.url)
        code, output, _ = ended(tmp_path, *command, WALSTORE_RELAY_ADMIN_TOKEN=TOKEN)
        assert (code, json.loads(output)["dry_run"]) == (0, True)
        code, output, errors = ended(tmp_path, *command, WALSTORE_RELAY_ADMIN_TOKEN=TOKEN + "x")
        assert (code, output) == (4, "")
        assert "401" in errors
        code, _, errors = ended(tmp_path, *command)
        assert code == 2
        assert "WALSTORE_RELAY_ADMIN_TOKEN" in errors
        # Its database is its own as long as it runs.
        code, _, errors = ended(tmp_path, "relay", "compact", "--dry-run")
        assert code == 1
        assert "another relay" in errors
        assert "walstore relay compact --url http://127.0.0.1:" in errors
        relay.stop()
    code, _, errors = ended(tmp_path, *command, WALSTORE_RELAY_ADMIN_TOKEN=TOKEN)
    assert code == 4
    assert "no answer" in errors


def test_the_database_of_a_stopped_relay_is_compacted_by_itself(tmp_path: Path) -> None:
    code, output, errors = ended(tmp_path, "relay", "compact", "--dry-run")
    assert (code, output) == (1, "")
    assert "there is no database" in errors
    assert not (tmp_path / "walstore-relay.db").exists()
    with running(tmp_path) as relay:
        relay.stop()
    assert ended(tmp_path, "relay", "compact", "--dry-run")[:2] == (0, "nothing would go\n")
    code, output, _ = ended(tmp_path, "relay", "compact", "--json")
    assert code == 0
    assert json.loads(output)["removed"]["elements"] == 0


@pytest.mark.parametrize(
    "url", ["http://relay.example:3400", "ws://10.0.0.1", "ftp://127.0.0.1", "nonsense", "http://["]
)
def test_the_token_is_not_sent_where_others_can_read_it(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALSTORE_RELAY_ADMIN_TOKEN", TOKEN)
    assert main(["relay", "compact", "--dry-run", "--url", url]) == 2
    assert capsys.readouterr().out == ""


# Mistakes.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "many"], "--port"),
        (["--host", "0.0.0.0"], "--open"),
        (["--roles", "nowhere.toml"], "nowhere.toml"),
        (["--config", "nowhere.toml"], "nowhere.toml"),
        (["--public-url", "relay.example"], "--public-url"),
        (["--database", "mysql://db"], "--database"),
        (["--log-level", "loud"], "--log-level"),
        (["compact", "--url", "http://127.0.0.1", "--database", "x"], "--url"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["relay", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("walstore relay: ")
    assert shown.err.count("\n") == 1
    assert message in shown.err


@pytest.mark.parametrize("arguments", [["relay", "--prot", "1"], ["relay", "compact", "--wet-run"]])
def test_unknown_flags_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: walstore relay" in capsys.readouterr().err


def test_a_mistake_in_the_configuration_ends_the_process_with_2(tmp_path: Path) -> None:
    (tmp_path / "relay.toml").write_text("[limits]\nframes = 1\n")
    code, output, errors = ended(tmp_path, "relay", "--config", "relay.toml")
    assert (code, output) == (2, "")
    assert "[limits] frames" in errors
    assert not (tmp_path / "walstore-relay.db").exists()


def test_a_port_that_is_taken_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, output, errors = ended(tmp_path, "relay", "--port", port)
    assert (code, output) == (1, "")
    assert errors.splitlines()[-1].startswith(
        f"walstore relay: cannot listen on 127.0.0.1, port {port}"
    )
    assert "choose another port" in errors
    assert "Traceback" not in errors


def test_a_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    place = tmp_path / "nowhere"
    code, output, errors = ended(tmp_path, "relay", "--port", "0", "--database", f"{place}/x.db")
    assert (code, output) == (1, "")
    assert f"{place}: there is no such directory" in errors


def test_a_relay_that_says_nothing_is_not_waited_for_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TransportError, match="within 0 s; is it a relay"):
            ask_relay(url, method="GET", path="/status", token="", timeout_s=0.05)
    with pytest.raises(TransportError, match="is the relay running"):
        ask_relay(url, method="GET", path="/status", token="")


def test_who_compacts_says_how_long_to_wait(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALSTORE_RELAY_ADMIN_TOKEN", TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert main(["relay", "compact", "--url", url, "--timeout", "1"]) == 4
    shown = capsys.readouterr()
    assert "waiting for up to 1 s" in shown.err
    assert "within 1 s" in shown.err


def test_a_database_that_is_none_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "walstore-relay.db").write_bytes(b"my diary\n" * 1000)
    code, output, errors = ended(tmp_path, "relay", "--port", "0")
    assert (code, output) == (1, "")
    assert "walstore-relay.db" in errors
    assert "Traceback" not in errors
    assert (tmp_path / "walstore-relay.db").read_bytes() == b"my diary\n" * 1000


# The command line itself.


def test_help_and_version_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "relay" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("walstore ")


@pytest.mark.parametrize("arguments", [[], ["nope"]])
def test_what_is_no_command_is_told_which_there_are(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "walstore --help" in shown.err or "  relay " in shown.err


def _python(directory: Path, code: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("websockets", ["relay"], "relay"),
        ("h11", ["relay"], "relay"),
        ("prometheus_client", ["relay", "compact"], "relay"),
        ("psycopg", ["relay", "--database", "postgresql://nowhere/relay"], "postgres"),
    ],
)
def test_a_missing_package_is_answered_with_how_to_get_it(
    tmp_path: Path, package: str, arguments: list[str], extra: str
) -> None:
    code, output, errors = _python(
        tmp_path,
        f"import sys; sys.modules[{package!r}] = None\n"
        f"from walstore.cli.main import main; sys.exit(main({arguments!r}))",
    )
    assert (code, output) == (1, "")
    assert f"pip install 'walstore[{extra}]'" in errors
    assert "Traceback" not in errors


def test_the_command_line_imports_nothing_of_a_server(tmp_path: Path) -> None:
    code, output, errors = _python(
        tmp_path,
        "import sys, walstore.cli.main\n"
        "print(sorted({'websockets', 'h11', 'prometheus_client', 'psycopg', 'sqlite3', 'argparse'}"
        " & set(sys.modules)))",
    )
    assert (code, output, errors) == (0, "[]\n", "")
