"""What Spark forks its Python workers from: one process that has loaded what all of them need.

- Spark has a worker for each task that runs, ends those that nobody has needed for a minute, and
  forks new ones. What each of them would have to load takes longer than a small task.
- Spark itself loads nothing before it forks, because libraries start threads, and no fork takes
  those along. So libraries are told to start none here.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from importlib import import_module

from pyspark.daemon import manager

# What starts threads when it is loaded, and how it is told not to.
_NO_THREADS = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}

_NEEDED = ("pandas", "pyspark.worker", "walstore.spark.parts", "walstore.spark.source")


def load(environ: MutableMapping[str, str]) -> None:
    """Load what workers need, in a process that has one thread and keeps it at that.

    Args:
        environ: The environment that libraries look at; what it says stays.
    """
    for name, value in _NO_THREADS.items():
        environ.setdefault(name, value)
    for module in _NEEDED:
        import_module(module)


if __name__ == "__main__":
    load(os.environ)
    manager()
