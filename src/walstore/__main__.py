"""`python -m walstore` is the command line."""

from walstore.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
