"""Looking at documents: whole logs, read and verified by whoever wants to know what happened.

- `places` says what a log that is looked at has to offer; `local_log` and `relay_log` are two.
- `trust` says whose elements count, `subject` is a document under inspection.
- `summary` puts it into words, `lanes` and `diffs` are what a screen draws.
- Nothing here writes to what it looks at.
"""
