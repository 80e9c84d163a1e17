"""The formats that artifacts can be written in, by their ids."""

from __future__ import annotations

from typing import TypeAlias

from walstore.archive.format import Format
from walstore.archive.jsonl import JsonlFormat
from walstore.archive.parquet import ParquetFormat
from walstore.archive.protobuf import ProtobufFormat
from walstore.errors import UsageError

_Made: TypeAlias = type[JsonlFormat] | type[ParquetFormat] | type[ProtobufFormat]

_FORMATS: dict[str, _Made] = {
    each.id: each for each in (JsonlFormat, ParquetFormat, ProtobufFormat)
}

FORMAT_IDS = tuple(_FORMATS)


class UnknownFormatError(UsageError):
    """There is no format with an id.

    Attributes:
        format_id: The id.
    """

    def __init__(self, format_id: str) -> None:
        super().__init__(f"there is no format {format_id!r}; there are {', '.join(FORMAT_IDS)}")
        self.format_id = format_id


def open_format(format_id: str) -> Format:
    """The format with an id.

    Raises:
        UnknownFormatError: There is none.
        ExtraMissingError: It needs an extra that is not installed.
    """
    made = _FORMATS.get(format_id)
    if made is None:
        raise UnknownFormatError(format_id)
    return made()
