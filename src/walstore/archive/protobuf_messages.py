"""The messages of `artifact.proto`, made as the package is imported, and JSON values as theirs.

- A Struct's numbers are doubles: a whole one within ±(2^53 − 1) is read as an integer.
- Its texts are UTF-8, and its depth is limited by readers; not every row fits.
- Importing this needs the extra `protobuf`.
"""

from __future__ import annotations

import math
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2

from walstore.archive.format import FormatError
from walstore.canon import INTEGER_MAX, Json, find_flaw

FORMAT_ID = "protobuf"

# Readers of messages follow a hundred levels; an object in a Struct takes three of them.
DEPTH_MAX = 30

_PACKAGE = "walstore.archive"
_FILE = "walstore/archive/artifact.proto"
_STRUCT = ".google.protobuf.Struct"
_TEXT = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_MESSAGE = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
_ONE = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL

_MESSAGES: dict[str, dict[str, tuple[int, bool]]] = {
    "SnapshotRow": {"row": (1, True), "json": (15, False)},
    "DiffChange": {
        "action": (1, False),
        "key": (2, False),
        "old": (3, True),
        "new": (4, True),
        "json": (15, False),
    },
}


class UnfitError(Exception):
    """A value has no Struct. It never leaves the format."""


def fill(struct: Any, row: Json) -> None:
    """Put a row into a Struct.

    Raises:
        UnfitError: It nests too deep, or holds a lone surrogate.
    """
    if find_flaw(row, depth_max=DEPTH_MAX) is not None:
        raise UnfitError
    # An empty row must be there too.
    struct.SetInParent()
    try:
        struct.update(row)
    except UnicodeEncodeError as error:
        raise UnfitError from error


def row_of(struct: Any) -> dict[str, Json]:
    """The row that a Struct holds.

    Raises:
        FormatError: It holds what no JSON value is.
    """
    return {name: _value_of(value) for name, value in struct.fields.items()}


def _value_of(value: Any) -> Json:
    # A message nests a hundred levels at most, so this cannot exhaust the stack.
    match value.WhichOneof("kind"):
        case "string_value":
            return value.string_value  # type: ignore[no-any-return]
        case "number_value":
            return _number_of(value.number_value)
        case "bool_value":
            return value.bool_value  # type: ignore[no-any-return]
        case "null_value":
            return None
        case "struct_value":
            return row_of(value.struct_value)
        case "list_value":
            return [_value_of(item) for item in value.list_value.values]
        case _:
            raise FormatError(FORMAT_ID, "a value is of no kind")


def _number_of(number: float) -> Json:
    if not math.isfinite(number):
        raise FormatError(FORMAT_ID, "a number is not finite")
    if number.is_integer() and -INTEGER_MAX <= number <= INTEGER_MAX:
        return int(number)
    return number


def _described() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name=_FILE, package=_PACKAGE, syntax="proto3", dependency=[struct_pb2.DESCRIPTOR.name]
    )
    for name, members in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for member, (number, is_struct) in members.items():
            message.field.add(
                name=member,
                number=number,
                label=_ONE,
                type=_MESSAGE if is_struct else _TEXT,
                type_name=_STRUCT if is_struct else None,
            )
    return file


def _made(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


# A pool of our own: what else the process has described cannot clash with it.
_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
_POOL.AddSerializedFile(_described().SerializeToString())

SnapshotRow: Any = _made("SnapshotRow")
DiffChange: Any = _made("DiffChange")
