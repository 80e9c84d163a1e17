"""What is asked of the tables, and how a filter is said in SQL.

- Every query takes named parameters; nothing is ever pasted into a text.
- A page is cut by the server, so that what is not sent is not read either.
"""

from __future__ import annotations

from typing import Any, Final, LiteralString, NamedTuple

from walstore.relay.log import Filter
from walstore.relay.postgres_rows import DOCUMENT_COLUMNS, EVENT_COLUMNS, EVENT_COLUMNS_BARE


class Query(NamedTuple):
    """A text and its parameters."""

    text: LiteralString
    parameters: dict[str, Any]


HEAD: Final = "SELECT relay_id, seq, min_seq, checksum FROM walstore_head"
LOCK_HEAD: Final = "SELECT relay_id, seq, min_seq, checksum FROM walstore_head FOR UPDATE"
SET_HEAD: Final = "UPDATE walstore_head SET relay_id = %s, seq = %s, min_seq = %s, checksum = %s"
ANNOUNCE: Final = "SELECT pg_notify(%(channel)s, %(seq)s::bigint::text)"

DOCUMENT: Final[LiteralString] = (
    f"SELECT {DOCUMENT_COLUMNS} FROM walstore_documents WHERE document = ANY(%(documents)s)"
)
DOCUMENTS: Final[LiteralString] = f"""
SELECT {DOCUMENT_COLUMNS} FROM walstore_documents WHERE starts_with(document, %(prefix)s)
ORDER BY last_accepted_ms DESC, document LIMIT %(count_max)s
"""
DOCUMENTS_AFTER: Final[LiteralString] = f"""
SELECT {DOCUMENT_COLUMNS} FROM walstore_documents
WHERE document COLLATE "C" > %(document)s COLLATE "C"
ORDER BY document COLLATE "C" LIMIT %(count_max)s
"""
DOCUMENTS_COUNT: Final[LiteralString] = "SELECT count(*) FROM walstore_documents"
PUT_DOCUMENTS: Final[LiteralString] = f"""
INSERT INTO walstore_documents ({DOCUMENT_COLUMNS})
SELECT * FROM unnest(
    %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[],
    %b::bigint[], %b::bigint[], %b::bytea[]
)
ON CONFLICT (document) DO UPDATE SET
    elements = excluded.elements, payload_bytes = excluded.payload_bytes,
    head = excluded.head, floor = excluded.floor, snapshots = excluded.snapshots,
    snapshot_upto = excluded.snapshot_upto, last_accepted_ms = excluded.last_accepted_ms,
    checksum = excluded.checksum
"""

PUT_EVENTS: Final[LiteralString] = f"""
INSERT INTO walstore_events ({EVENT_COLUMNS})
SELECT * FROM unnest(
    %b::bigint[], %b::text[], %b::text[], %b::text[], %b::text[], %b::bigint[], %b::bigint[],
    %b::bigint[], %b::text[], %b::bytea[], %b::boolean[], %b::bytea[], %b::bytea[], %b::bytea[]
)
"""
# One look into the index for each of them, whatever the planner knows of the table.
KNOWN: Final[LiteralString] = f"""
SELECT known.* FROM unnest(%(documents)s::text[], %(ids)s::text[]) AS wanted (document, id),
LATERAL (
    SELECT {EVENT_COLUMNS_BARE} FROM walstore_events AS events
    WHERE events.id = wanted.id AND events.document = wanted.document LIMIT 1
) AS known
"""
COUNT_STORED: Final = """
SELECT count(*) FROM unnest(
    %(seqs)s::bigint[], %(documents)s::text[], %(ids)s::text[], %(tss)s::bigint[]
) AS mine (seq, document, id, ts)
JOIN walstore_events AS events USING (seq, document, id, ts)
"""

PAGE: Final[LiteralString] = f"""
SELECT {EVENT_COLUMNS}, is_last FROM (
    SELECT *,
           sum(octet_length(payload)) OVER (ORDER BY ts) - octet_length(payload) AS bytes_before,
           row_number() OVER (ORDER BY ts) AS number,
           lead(ts) OVER (ORDER BY ts) IS NULL AS is_last
    FROM (
        SELECT * FROM walstore_events
        WHERE kind = 'element' AND document = %(document)s AND ts > %(after)s
          AND %(after)s >= coalesce(
              (SELECT floor FROM walstore_documents WHERE document = %(document)s), 0)
        ORDER BY ts LIMIT %(count_max)s::bigint + 1
    ) AS above
) AS measured
WHERE number <= %(count_max)s AND coalesce(bytes_before, 0) < %(bytes_max)s
ORDER BY ts
"""
TAIL: Final[LiteralString] = f"""
SELECT {EVENT_COLUMNS} FROM walstore_events
WHERE kind = 'element' AND document = %(document)s AND ts <= %(upto)s
  AND ts > coalesce((SELECT floor FROM walstore_documents WHERE document = %(document)s), 0)
ORDER BY ts DESC LIMIT %(count)s
"""

# The current snapshot is the one that reaches furthest, and of several the newest.
CURRENT: Final[LiteralString] = f"""
SELECT {EVENT_COLUMNS} FROM walstore_events
WHERE kind = 'snapshot' AND document = %(document)s AND payload IS NOT NULL
ORDER BY ts DESC, seq DESC LIMIT 1
"""
CURRENT_BARE: Final[LiteralString] = f"""
SELECT {EVENT_COLUMNS_BARE} FROM walstore_events
WHERE kind = 'snapshot' AND document = %(document)s AND payload IS NOT NULL
ORDER BY ts DESC, seq DESC LIMIT 1
"""
SNAPSHOT_PART: Final[LiteralString] = """
SELECT substring(payload FROM %(start)s::int + 1 FOR %(size)s::int) FROM walstore_events
WHERE id = %(id)s AND document = %(document)s AND kind = 'snapshot' AND payload IS NOT NULL
"""
SNAPSHOTS: Final[LiteralString] = f"""
SELECT {EVENT_COLUMNS_BARE} FROM walstore_events
WHERE kind = 'snapshot' AND document = %(document)s AND payload IS NOT NULL
ORDER BY ts DESC, seq DESC
"""

_WANTED: Final = """
    starts_with(document, %(prefix)s)
    AND (%(documents)s::text[] IS NULL OR document = ANY(%(documents)s))
    AND (%(authors)s::text[] IS NULL OR author = ANY(%(authors)s))
    AND (%(kinds)s::text[] IS NULL OR kind = ANY(%(kinds)s))
"""
_IS_LARGE: Final = "coalesce(octet_length(payload) > %(payload_bytes_max)s::bigint, false)"
FIND: Final[LiteralString] = f"""
SELECT {EVENT_COLUMNS} FROM walstore_events
WHERE id = ANY(%(ids)s) AND NOT {_IS_LARGE} AND {_WANTED}
"""
FIND_BARE: Final[LiteralString] = f"""
SELECT {EVENT_COLUMNS_BARE} FROM walstore_events
WHERE id = ANY(%(ids)s) AND {_IS_LARGE} AND {_WANTED}
"""
FEED: Final[LiteralString] = f"""
SELECT {EVENT_COLUMNS}, is_last FROM (
    SELECT *,
           sum(coalesce(octet_length(payload), 0) + octet_length(vc)) OVER (ORDER BY seq)
               - coalesce(octet_length(payload), 0) - octet_length(vc) AS bytes_before,
           row_number() OVER (ORDER BY seq) AS number,
           lead(seq) OVER (ORDER BY seq) IS NULL AS is_last
    FROM (
        SELECT * FROM walstore_events
        WHERE seq > %(since)s AND (%(until)s::bigint IS NULL OR seq <= %(until)s)
          AND %(since)s >= (SELECT min_seq FROM walstore_head) - 1
          AND {_WANTED}
        ORDER BY seq LIMIT %(count_max)s::bigint + 1
    ) AS above
) AS measured
WHERE number <= %(count_max)s AND bytes_before < %(bytes_max)s
ORDER BY seq
"""
SNAPSHOTS_PICKED: Final[LiteralString] = f"""
SELECT seq, document FROM walstore_events
WHERE kind = 'snapshot' AND payload IS NOT NULL
  AND seq > %(since)s AND (%(until)s::bigint IS NULL OR seq <= %(until)s)
  AND {_WANTED}
ORDER BY seq
"""
SNAPSHOTS_OF: Final[LiteralString] = f"""
SELECT {EVENT_COLUMNS_BARE} FROM walstore_events
WHERE kind = 'snapshot' AND payload IS NOT NULL AND document = ANY(%(documents)s)
ORDER BY document
"""
BY_SEQ: Final[LiteralString] = (
    f"SELECT {EVENT_COLUMNS} FROM walstore_events WHERE seq = ANY(%(seqs)s) ORDER BY seq"
)

COMPACTION_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended(%(channel)s, 0))"
REMOVE_ELEMENTS: Final = """
WITH gone AS (
    SELECT events.seq, octet_length(events.payload) AS size
    FROM unnest(%(documents)s::text[], %(below)s::bigint[]) AS wanted (document, below)
    JOIN walstore_documents AS known USING (document)
    JOIN walstore_events AS events USING (document)
    WHERE events.kind = 'element' AND events.ts <= wanted.below AND events.ts > known.floor
      AND events.payload IS NOT NULL
), removed AS (
    UPDATE walstore_events AS events SET payload = NULL, payload_checksum = NULL
    FROM gone WHERE events.seq = gone.seq RETURNING events.document, gone.size
)
SELECT document, count(*), sum(size)::bigint FROM removed GROUP BY document
"""
REMOVE_SNAPSHOTS: Final = """
WITH gone AS (
    SELECT events.seq, octet_length(events.payload) AS size
    FROM unnest(%(documents)s::text[], %(ids)s::text[]) AS wanted (document, id)
    JOIN walstore_events AS events USING (document, id)
    WHERE events.kind = 'snapshot' AND events.payload IS NOT NULL
), removed AS (
    UPDATE walstore_events AS events SET payload = NULL, payload_checksum = NULL
    FROM gone WHERE events.seq = gone.seq RETURNING events.document, gone.size
)
SELECT document, count(*), sum(size)::bigint FROM removed GROUP BY document
"""
UPTO: Final = """
SELECT document, max(ts) FROM walstore_events
WHERE kind = 'snapshot' AND payload IS NOT NULL AND document = ANY(%(documents)s)
GROUP BY document
"""

# Sorted, so that two processes that note the same readers wait for each other in one order.
PUT_READERS: Final = """
INSERT INTO walstore_readers (document, key, checkpoint, seen_ms, checksum)
SELECT marks.* FROM unnest(%b::text[], %b::text[], %b::bigint[], %b::bigint[], %b::bytea[])
    AS marks (document, key, checkpoint, seen_ms, checksum)
WHERE EXISTS (
    SELECT 1 FROM walstore_documents AS documents WHERE documents.document = marks.document
)
ORDER BY marks.document COLLATE "C", marks.key COLLATE "C"
ON CONFLICT (document, key) DO UPDATE SET
    checkpoint = excluded.checkpoint, seen_ms = excluded.seen_ms, checksum = excluded.checksum
"""
FORGET_READERS: Final = """
DELETE FROM walstore_readers AS readers USING (
    SELECT document, key, row_number() OVER (
        PARTITION BY document ORDER BY seen_ms DESC, key COLLATE "C"
    ) AS place
    FROM walstore_readers WHERE document = ANY(%b::text[])
) AS ranked
WHERE ranked.place > %b AND (readers.document, readers.key) = (ranked.document, ranked.key)
"""
READERS: Final = """
SELECT document, key, checkpoint, seen_ms, checksum FROM walstore_readers
WHERE document = %(document)s ORDER BY key
"""
PUT_GRANT: Final = """
INSERT INTO walstore_grants (place, issued_ms, accepted_ms, body, checksum)
VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (place) DO UPDATE SET
    issued_ms = excluded.issued_ms, accepted_ms = excluded.accepted_ms, body = excluded.body,
    checksum = excluded.checksum
WHERE walstore_grants.issued_ms < excluded.issued_ms
"""
GRANTS: Final = """
SELECT place, issued_ms, accepted_ms, body, checksum FROM walstore_grants
ORDER BY issued_ms, place
"""
RECORD: Final = """
SELECT document, name, revision, body, checksum FROM walstore_records
WHERE document = %(document)s AND name = %(name)s
"""
# A row comes back, and is announced, if something has changed.
ADD_RECORD: Final = """
WITH changed AS (
    INSERT INTO walstore_records (document, name, revision, body, checksum)
    VALUES (%(document)s, %(name)s, %(revision)s, %(body)s, %(checksum)s)
    ON CONFLICT (document, name) DO NOTHING RETURNING 1
)
SELECT pg_notify(%(channel)s, %(news)s) FROM changed
"""
REPLACE_RECORD: Final = """
WITH changed AS (
    UPDATE walstore_records SET revision = %(revision)s, body = %(body)s, checksum = %(checksum)s
    WHERE document = %(document)s AND name = %(name)s AND revision = %(replaced)s RETURNING 1
)
SELECT pg_notify(%(channel)s, %(news)s) FROM changed
"""
PUT_SETTING: Final = """
INSERT INTO walstore_settings (name, value, checksum) VALUES (%s, %s, %s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, checksum = excluded.checksum
"""
SETTINGS: Final = "SELECT name, value, checksum FROM walstore_settings ORDER BY name"


def filter_parameters(wanted: Filter) -> dict[str, Any]:
    """What the filtered queries take.

    A key never holds NUL, which the server does not take either: a filter that asks for it asks
    for nothing.
    """
    documents = _texts(wanted.documents)
    return {
        "prefix": wanted.prefix.replace("\0", ""),
        "documents": [] if "\0" in wanted.prefix else documents,
        "authors": _texts(wanted.authors),
        "kinds": _texts(wanted.kinds),
    }


def storable(texts: frozenset[str] | set[str]) -> list[str]:
    """The texts that can stand in a table at all."""
    return [text for text in texts if "\0" not in text]


def _texts(texts: frozenset[str] | None) -> list[str] | None:
    return None if texts is None else storable(texts)
