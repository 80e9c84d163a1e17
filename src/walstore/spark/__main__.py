"""`python -m walstore.spark`, and what `spark-submit` is given: `archive …` or `compact …`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from walstore.errors import UsageError, WalStoreError


def main(arguments: Sequence[str]) -> int:
    """Carry out a command; the exit code."""
    # Spark itself is loaded only now: a mistake is told at once.
    from walstore.spark.commands import run

    try:
        return run(arguments)
    except UsageError as error:
        print(f"walstore spark: {error}", file=sys.stderr)
        return 2
    except (WalStoreError, OSError) as error:
        print(f"walstore spark: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
