"""The environments that peers live in: made on first use, kept under `.cache/bench`.

- Each peer is installed by itself, so that one that cannot be had does not take others along.
- A peer that cannot be installed is a reason to print, never a silent gap.
- Node resolves an import from the importing file's folder: the Node worker is copied there.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.peers import Peer

SOURCES = Path(__file__).parent
_INSTALL_S_MAX = 600
_VERSIONS = (
    "import importlib.metadata, json;"
    "print(json.dumps({d.name.lower(): d.version for d in importlib.metadata.distributions()}))"
)


class InstallError(Exception):
    """A peer cannot be had here; the message says why."""


class Environments:
    """Both environments, as folders below `home`."""

    def __init__(self, home: Path) -> None:
        # Of the interpreter that runs walstore, so that both are measured on the same Python.
        self._python = home / f"python{sys.version_info[0]}.{sys.version_info[1]}"
        self._node = home / "node"

    def prepare(self, peers: Iterable[Peer], say: Callable[[str], None]) -> dict[str, str]:
        """Install what is missing and return why each peer that failed did."""
        reasons: dict[str, str] = {}
        for peer in peers:
            try:
                self._prepare(peer, say)
            except InstallError as error:
                reasons[peer.name] = str(error)
        if self._node.is_dir():
            for source in (SOURCES / "node").glob("*.mjs"):
                shutil.copy(source, self._node)
        return reasons

    def command(self, peer: Peer) -> list[str]:
        """The command that starts the peer's worker; arguments follow it."""
        if peer.runtime == "node":
            return ["node", "--expose-gc", str(self._node / "worker.mjs")]
        interpreter = sys.executable if peer.runtime == "self" else str(self._interpreter)
        return [interpreter, "-m", "benchmarks.worker"]

    def _prepare(self, peer: Peer, say: Callable[[str], None]) -> None:
        if peer.runtime == "self":
            return
        installed = self._pip_versions if peer.runtime == "python" else self._npm_versions
        install = self._pip_install if peer.runtime == "python" else self._npm_install
        wanted = dict(peer.packages)
        if wanted.items() <= installed(wanted).items():
            return
        say(f"installing {peer.name} {peer.version}")
        install(wanted)

    @property
    def _interpreter(self) -> Path:
        return self._python / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")

    def _pip_versions(self, _wanted: dict[str, str]) -> dict[str, str]:
        if not self._interpreter.exists():
            venv.create(self._python, with_pip=True, clear=self._python.exists())
        answer = json.loads(_call([str(self._interpreter), "-c", _VERSIONS]))
        return {str(name).replace("_", "-"): str(version) for name, version in answer.items()}

    def _pip_install(self, wanted: dict[str, str]) -> None:
        pins = [f"{name}=={version}" for name, version in wanted.items()]
        quiet = ["--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
        _call([str(self._interpreter), "-m", "pip", "install", *quiet, *pins])

    def _npm_versions(self, wanted: dict[str, str]) -> dict[str, str]:
        for tool in ("node", "npm"):
            if shutil.which(tool) is None:
                raise InstallError(f"{tool} was not found")
        manifests = {name: self._node / "node_modules" / name / "package.json" for name in wanted}
        return {
            name: str(json.loads(manifest.read_text())["version"])
            for name, manifest in manifests.items()
            if manifest.exists()
        }

    def _npm_install(self, wanted: dict[str, str]) -> None:
        self._node.mkdir(parents=True, exist_ok=True)
        manifest = self._node / "package.json"
        if not manifest.exists():
            manifest.write_text('{"private": true}\n')
        pins = [f"{name}@{version}" for name, version in wanted.items()]
        options = ["--save-exact", "--no-audit", "--no-fund", "--ignore-scripts"]
        _call(["npm", "install", "--prefix", str(self._node), *options, *pins])


def _call(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S_MAX)
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"no answer within {_INSTALL_S_MAX} s") from error
    if done.returncode:
        raise InstallError(_reason(done.stderr) or f"exit status {done.returncode}")
    return done.stdout


def _reason(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if "err" in line.lower()]
    # Both installers say this in one plain line, among others that do not help.
    return next((line for line in lines if "No matching" in line), lines[0] if lines else "")
