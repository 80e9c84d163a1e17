"""Installs the published JavaScript packages that interoperability is tested with.

- Exact versions, into `.cache/node` of the repository, once; a changed list makes a new folder.
- Two runs may start at once: each installs into a folder of its own, the first to rename it wins.
- Without node, npm or a reachable registry there is nothing to test against; all else is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

VERSION = "3.0.0-alpha.65"
PACKAGES = {
    "@drakkar.software/starfish-client": VERSION,
    "@drakkar.software/starfish-keyring": VERSION,
    "@drakkar.software/starfish-protocol": VERSION,
    "@drakkar.software/starfish-server": VERSION,
    "@drakkar.software/starfish-wal": VERSION,
    "ws": "8.22.2",
}
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "node"
INSTALL_SECONDS_MAX = 300

_UNREACHABLE = (
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "EHOSTUNREACH",
    "ENETUNREACH",
    "ENOTFOUND",
    "ERR_SOCKET_TIMEOUT",
    "ETIMEDOUT",
)


class UnavailableError(Exception):
    """There is no node, no npm or no registry, so nothing can be compared with."""


class InstallError(Exception):
    """npm was there and the registry answered, and still the packages are not installed."""


def install() -> Path:
    """Return the folder that holds `node_modules`, installing it if it is not there yet.

    Raises:
        UnavailableError: node or npm is missing, or the registry cannot be reached.
        InstallError: npm failed for any other reason.
    """
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise UnavailableError(f"{program} is not installed")
    manifest = json.dumps({"private": True, "dependencies": PACKAGES}, sort_keys=True)
    target = CACHE / hashlib.sha256(manifest.encode()).hexdigest()[:16]
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, ignore_cleanup_errors=True) as scratch:
            _install_into(Path(scratch) / "installed", manifest)
            _publish(Path(scratch) / "installed", target)
    return target


def _install_into(folder: Path, manifest: str) -> None:
    folder.mkdir()
    (folder / "package.json").write_text(manifest, encoding="utf-8")
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
    try:
        outcome = subprocess.run(
            [*command, "--prefer-offline", "--fetch-retries=1"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError("the package registry does not answer") from error
    if outcome.returncode == 0:
        return
    if any(code in outcome.stderr for code in _UNREACHABLE):
        raise UnavailableError("the package registry cannot be reached")
    raise InstallError(outcome.stderr)


def _publish(folder: Path, target: Path) -> None:
    try:
        os.rename(folder, target)
    except OSError:
        # A folder that is not empty cannot be replaced: another run was first, with the same.
        if not target.exists():
            raise
