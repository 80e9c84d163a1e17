"""`python -m tests.fuzzing.coverage_led envelope`: input that takes a reader where none has been.

It uses atheris, which is not among the packages that tests need: `pip install atheris`, where there
is a wheel. Without it, this fails. What breaks a reader is kept in `tests/vectors/crashers`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

try:
    import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]
except ModuleNotFoundError:
    print("there is no atheris: nothing was tried")
    sys.exit(1)

# It follows only what is imported here.
with atheris.instrument_imports(include=["walstore"]):
    from tests.fuzzing.run import READERS, broken, keep

from tests.fuzzing.mutations import mutated


def fuzz(name: str, cases: int, corpus: Path) -> None:
    """Try a reader on so many cases; ends the process.

    Half of what is tried is made by the grammar, the other half by atheris itself.
    """
    reader = READERS[name]
    for number, specimen in enumerate(reader.specimens):
        (corpus / str(number)).write_bytes(specimen)

    tried = 0

    def try_one(text: bytes) -> None:
        nonlocal tried
        tried += 1
        # Nothing of ours runs after the last one.
        if tried % (cases // 10 or 1) == 0:
            print(f"{cases // 10 or 1} cases led by coverage", flush=True)
        reason = broken(reader, text)
        if reason is not None:
            raise AssertionError(f"kept as {keep(name, text)}\n{reason}")

    def change(text: bytes, size_max: int, seed: int) -> bytes:
        chance = Random(seed)
        if chance.random() < 0.5:
            return bytes(atheris.Mutate(text, size_max))
        return mutated(chance, [text, *reader.specimens])[:size_max]

    flags = [f"-runs={cases}", "-max_len=65536", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], try_one, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing.coverage_led")
    parser.add_argument("reader", choices=READERS)
    parser.add_argument("--cases", type=int, default=100_000)
    options = parser.parse_args()
    with TemporaryDirectory() as place:
        fuzz(options.reader, options.cases, Path(place))
