"""A Java that starts soon, for tests: the classes that Spark loads are at hand in one file.

- Most of a short life Java spends on loading Spark's classes. It can keep them in a file as it
  holds them in memory, and every Java that is told of the file by a variable begins with them.
- The file is made by the first who asks, in `.cache`, by a process that does a little of
  everything. Java refuses a file that does not fit. Without one, everything takes longer.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

CACHE = Path(__file__).parent.parent / ".cache"

VARIABLE = "JAVA_TOOL_OPTIONS"

# It compiles less, and says nothing of a file that does not fit.
_QUICK = "-XX:TieredStopAtLevel=1 -Xshare:auto -Xlog:disable -Xlog:all=off"


def quick_java() -> dict[str, str]:
    """What the environment of a process says so that its Javas start soon.

    Raises:
        JavaMissingError: There is no Java.
    """
    from walstore.spark.java import prepare_java
    from walstore.spark.session import cache_directory

    java = Path(prepare_java(dict(os.environ), cache=cache_directory()), "bin", "java").resolve()
    classes = _made(CACHE / f"spark-{_name(java)}.jsa")
    return {VARIABLE: f"{_QUICK} -XX:SharedArchiveFile={classes}" if classes else _QUICK}


def _name(java: Path) -> str:
    import pyspark

    seen = (pyspark.__version__, pyspark.__file__, str(java), str(java.stat().st_mtime_ns))
    return sha256("\0".join(seen).encode()).hexdigest()[:16]


def _made(classes: Path) -> Path | None:
    """The file, made if it is not there; None if that has failed, now or before."""
    classes.parent.mkdir(exist_ok=True)
    with classes.with_suffix(".lock").open("w") as lock:
        # Tests run beside one another: one of them makes it, the others wait.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not classes.exists():
            beside = classes.with_suffix(".new")
            beside.unlink(missing_ok=True)
            making = [sys.executable, "-m", "tests.spark_java", str(beside)]
            clean = {name: text for name, text in os.environ.items() if name != VARIABLE}
            done = subprocess.run(making, cwd=CACHE.parent, env=clean, capture_output=True)
            if done.returncode or not beside.exists():
                beside.touch()
            beside.replace(classes)
        return classes if classes.stat().st_size else None


def make(classes: Path) -> None:
    """Do a little of everything in a Java that keeps its classes when it ends."""
    from pyspark import SparkContext

    from tests.spark_archives import Bench
    from walstore.spark.session import spark_session
    from walstore.spark.stream import ArchiveStream, StreamOptions

    keeping = f"{_QUICK} -XX:+UseSerialGC -XX:ArchiveClassesAtExit={classes}"
    spark = spark_session(
        "local[2]", is_quick=True, settings={"spark.driver.extraJavaOptions": keeping}
    )
    directory = Path(tempfile.mkdtemp(prefix="walstore-classes-"))
    try:
        bench = Bench(directory, spark)
        bench.write(random.Random(1), 20)
        bench.run_spark()
        bench.write(random.Random(2), 5)
        options = StreamOptions(trigger="available-now")
        ArchiveStream(spark, bench.job(), options).run()
    finally:
        spark.stop()
        shutil.rmtree(directory)
    gateway = SparkContext._gateway
    assert gateway is not None
    java = gateway.proc
    gateway.shutdown()
    # It ends when nobody speaks to it any more, and writes the file before.
    java.stdin.close()
    java.wait()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
