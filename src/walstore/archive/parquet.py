"""Artifacts as Parquet files.

- The options of the writer are pinned: the same rows give the same bytes, from the same release of
  pyarrow, whose name is part of every file.
- A file says under `walstore` how it is laid out; one that does not is none of ours.
- Pages have checksums. What is read is a row group at a time.
- pyarrow comes with an extra, and is imported when a format is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, TypeVar

from walstore.archive.extras import needed
from walstore.archive.format import FormatError, RowRefusedError
from walstore.archive.parquet_cells import FORMAT_ID, Cell
from walstore.archive.parquet_layout import BaseLayout, DiffLayout, Layout
from walstore.archive.rows import Column, Row, RowChange
from walstore.archive.shape import changes_read, changes_to_write, rows_read, rows_to_write

# A row group is what a reader has to hold at once. Its texts, at four bytes a character, must
# stay below the 2 GiB that an array of them can have; so must one row alone.
GROUP_ROWS_MAX = 2**16
GROUP_CHARS_MAX = 2**24

# What the footer may hold: names of columns, and a few numbers for each row group.
_THRIFT_BYTES_MAX = 64 * 2**20
_THRIFT_ITEMS_MAX = 2**20

_WRITER_OPTIONS: dict[str, Any] = {
    "version": "2.6",
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": True,
    "dictionary_pagesize_limit": 2**20,
    "data_page_version": "1.0",
    "write_batch_size": 1024,
    "write_statistics": True,
    "write_page_checksum": True,
    "write_page_index": False,
    "store_schema": False,
}

_NOTE = b"walstore"

_Item = TypeVar("_Item")
_Raw = TypeVar("_Raw")


class ParquetFormat:
    """Artifacts as Parquet files."""

    id = FORMAT_ID
    extension = ".parquet"

    def __init__(self) -> None:
        """Import pyarrow.

        Raises:
            ExtraMissingError: It is not installed.
        """
        self._pa = needed("pyarrow", what="the format parquet", extra="parquet")
        self._pq = needed("pyarrow.parquet", what="the format parquet", extra="parquet")

    def write_base(self, rows: Iterable[Row], columns: Sequence[Column]) -> bytes:
        """The rows, in the order given; raises as `Format.write_base` does."""
        return self._write(BaseLayout(columns), rows_to_write(rows, columns))

    def read_base(self, body: bytes, columns: Sequence[Column]) -> Iterator[Row]:
        """The rows, in the order written; raises as `Format.read_base` does."""
        return rows_read(FORMAT_ID, self._read(BaseLayout, body), columns)

    def write_diff(self, changes: Iterable[RowChange], columns: Sequence[Column]) -> bytes:
        """The changes, in the order given; raises as `Format.write_diff` does."""
        return self._write(DiffLayout(columns), changes_to_write(changes, columns))

    def read_diff(self, body: bytes, columns: Sequence[Column]) -> Iterator[RowChange]:
        """The changes, in the order written; raises as `Format.read_diff` does."""
        return changes_read(FORMAT_ID, self._read(DiffLayout, body), columns)

    def _write(self, layout: Layout[_Item, _Raw], items: Iterable[_Item]) -> bytes:
        schema, out = layout.schema(self._pa), BytesIO()
        with self._pq.ParquetWriter(out, schema, **_WRITER_OPTIONS) as writer:
            writer.add_key_value_metadata({_NOTE: layout.note})
            for group in _groups(map(layout.cells, items)):
                arrays = layout.arrays(self._pa, group)
                writer.write_batch(
                    self._pa.RecordBatch.from_arrays(arrays, schema=schema),
                    row_group_size=GROUP_ROWS_MAX,
                )
        return out.getvalue()

    def _read(self, kind: type[Layout[_Item, _Raw]], body: bytes) -> Iterator[_Raw]:
        with self._refusing():
            file, layout = self._open(kind, body)
            count = 0
            for batch in self._batches(file):
                batch.validate(full=True)
                count += batch.num_rows
                yield from layout.items(batch.columns)
            if count != file.metadata.num_rows:
                raise FormatError(FORMAT_ID, "it has not as many rows as it says")

    def _open(self, kind: type[Layout[_Item, _Raw]], body: bytes) -> tuple[Any, Any]:
        """A file that is laid out as it says."""
        options = {
            "thrift_string_size_limit": _THRIFT_BYTES_MAX,
            "thrift_container_size_limit": _THRIFT_ITEMS_MAX,
            "page_checksum_verification": True,
            "pre_buffer": False,
        }
        file = self._pq.ParquetFile(self._pa.BufferReader(body), **options)
        note = (file.metadata.metadata or {}).get(_NOTE)
        if note is None:
            raise FormatError(FORMAT_ID, "it is no artifact of an archive")
        layout = kind(kind.read_note(note))
        if not file.schema_arrow.equals(layout.schema(self._pa)):
            raise FormatError(FORMAT_ID, "its columns are not those that it says it has")
        again = self._pq.ParquetFile(
            self._pa.BufferReader(body),
            metadata=file.metadata,
            read_dictionary=layout.text_names,
            **options,
        )
        return again, layout

    def _batches(self, file: Any) -> Iterator[Any]:
        # Older releases cannot go through a file without row groups.
        if file.num_row_groups:
            yield from file.iter_batches(batch_size=GROUP_ROWS_MAX, use_threads=False)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Whatever pyarrow says of a body is about the body."""
        try:
            yield
        except FormatError:
            raise
        except (
            self._pa.ArrowException,
            MemoryError,
            OSError,
            OverflowError,
            RowRefusedError,
            ValueError,
        ) as error:
            raise FormatError(FORMAT_ID, f"{type(error).__name__}: {error}") from error


def _groups(rows: Iterable[list[Cell]]) -> Iterator[list[list[Cell]]]:
    """Rows of cells in groups that a reader can hold."""
    group: list[list[Cell]] = []
    chars = 0
    for cells in rows:
        size = sum(len(cell) for cell in cells if type(cell) is str)
        if group and (len(group) == GROUP_ROWS_MAX or chars + size > GROUP_CHARS_MAX):
            yield group
            group, chars = [], 0
        group.append(cells)
        chars += size
    if group:
        yield group
