"""A throw-away PostgreSQL server for tests: its own directory, its own socket, gone afterwards.

- The server is the real one, with `fsync` on; it listens on a unix socket only.
- It refuses to run as root, so root hands it to an unprivileged user.
- Each database is made new; nothing outlives the cluster.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

_BINARIES = "/usr/lib/postgresql/*/bin/postgres"
_USERS = ("postgres", "nobody")
_STOP_S_MAX = 60.0
_SYNCFS_VERSION = 14

_SETTINGS = {
    "fsync": "on",
    "listen_addresses": "",
    "max_connections": "60",
    "shared_buffers": "32MB",
    # A backend that was killed brings all of them down; the server then starts again by itself.
    "restart_after_crash": "on",
}


def binaries() -> Path | None:
    """Where the newest installed server is; None if there is none."""
    found = sorted(Path("/").glob(_BINARIES[1:]), key=_version)
    return found[-1].parent if found else None


def _version(path: Path) -> float:
    try:
        return float(path.parent.parent.name)
    except ValueError:
        return 0.0


@dataclass(frozen=True)
class Cluster:
    """A server that can be stopped and started again."""

    binaries: Path
    directory: Path
    user: str | None

    @property
    def dsn(self) -> str:
        """Reaches the database that every server has."""
        return self.dsn_of("postgres")

    def dsn_of(self, database: str) -> str:
        """Reaches one database."""
        return f"host={self.directory} dbname={database} user=relay"

    def new_database(self) -> str:
        """Makes an empty database and returns its DSN."""
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.dsn_of(name)

    def new_schema(self) -> str:
        """Makes an empty schema and returns its DSN; a database would take longer."""
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return f"{self.dsn} options=-csearch_path={name}"

    def start(self) -> None:
        """Starts the server and returns when it takes connections."""
        self._run("pg_ctl", "start", "-w", "-D", self.data, "-l", self.directory / "log")

    def stop(self, mode: str = "fast") -> None:
        """Stops the server: `fast`, or `immediate` as a power cut would."""
        self._run("pg_ctl", "stop", "-w", "-D", self.data, "-m", mode)

    def initialise(self) -> None:
        """Makes the server's files."""
        self._run(
            "initdb",
            "-D",
            self.data,
            "-U",
            "relay",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
        )
        settings = _SETTINGS | {"unix_socket_directories": str(self.directory)}
        if _version(self.binaries / "postgres") >= _SYNCFS_VERSION:
            # After a crash every file is synced; one by one that takes longer than the test.
            settings["recovery_init_sync_method"] = "syncfs"
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def kill(self) -> None:
        """Makes sure that no process is left, whatever state the server is in."""
        try:
            self.stop("immediate")
        except subprocess.SubprocessError:
            pid = self._postmaster()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)

    def _postmaster(self) -> int | None:
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            return None
        # The number may be another process's by now.
        return pid if str(self.data).encode() in arguments else None

    @property
    def data(self) -> Path:
        """Where the server keeps its files."""
        return self.directory / "data"

    def _run(self, program: str, *arguments: object) -> None:
        subprocess.run(
            [self.binaries / program, *map(str, arguments)],
            check=True,
            user=self.user,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_STOP_S_MAX,
        )


@contextmanager
def running_cluster(found: Path) -> Iterator[Cluster]:
    """A server for the time of a block."""
    # The path of a unix socket is short, so it does not go below pytest's directories.
    directory = Path(tempfile.mkdtemp(prefix="walpg-"))
    cluster = Cluster(found, directory, _unprivileged())
    try:
        if cluster.user is not None:
            shutil.chown(directory, cluster.user)
        cluster.initialise()
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _unprivileged() -> str | None:
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(user for user in _USERS if user in known)
