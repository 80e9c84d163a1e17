"""What pyproject.toml cannot say: the inner modules as C, if `WALSTORE_COMPILE=1` asks for it.

- The same source runs both ways; without the variable, or without a C compiler, the build is pure
  Python and works everywhere.
- `WALSTORE_COMPILE=quick` has the C compiled quickly, and not to be quick: for tests, which need
  the same C and no more.
- `walstore.compiled` tells which of the two is running.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup

# Where profiles say that the time goes. Modules that import each other's classes belong together.
HOT = ["src/walstore/canon.py", "src/walstore/crdt", "src/walstore/reconcile"]

# The compiler, and what the hot modules import: it reads their types.
NEEDED = ["mypy>=1.20,<1.21", "orjson>=3.10,<4", "rapidfuzz>=3.9,<4"]

# For tests: most of the time, by far, goes into making the C faster.
QUICK = "quick"

# What mypyc writes and what the C compiler makes of it, out of the way of the sources.
BUILD = ".cache/compiled/build"


def wants_compiling() -> bool:
    """Whether it is asked for and can be done."""
    if os.environ.get("WALSTORE_COMPILE", "") in ("", "0"):
        return False
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if sys.platform != "win32" and shutil.which(compiler) is None:
        print(f"walstore: {compiler} was not found; building pure Python", file=sys.stderr)
        return False
    return True


def extensions() -> list[Extension]:
    """The hot modules, to be compiled by mypyc."""
    from mypyc.build import mypycify

    paths = [str(path) for name in HOT for path in _modules(Path(name))]
    found: list[Extension] = mypycify(
        ["--strict", f"--cache-dir={BUILD}/types", *paths],
        opt_level="0" if os.environ["WALSTORE_COMPILE"] == QUICK else "2",
        debug_level="0",
        target_dir=BUILD,
    )
    return found


def _modules(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(each for each in path.glob("*.py") if each.name != "__init__.py")


IS_COMPILING = wants_compiling()
HAS_MYPYC = find_spec("mypyc") is not None
# Before it builds, a backend asks what it has to install, and for the metadata.
IS_ASKED = bool({"egg_info", "dist_info"}.intersection(sys.argv))

setup(
    setup_requires=NEEDED if IS_COMPILING and not HAS_MYPYC else [],
    ext_modules=extensions() if IS_COMPILING and HAS_MYPYC and not IS_ASKED else [],
    options={"build": {"build_base": BUILD}},
)
