"""What a schema needs of a class: dataclasses as they are, msgspec and pydantic if installed.

- A model says which members it has, makes a value of members, and members of a value.
- Neither msgspec nor pydantic is imported for its own sake: who has such a class has the package.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Mapping
from typing import Any, Protocol

from walstore.errors import UsageError
from walstore.store.typed_values import (
    Invalid,
    Problem,
    fields_of,
    hints_of,
    plain,
    read_object,
    reader,
)

_MSGSPEC_PATH = re.compile(r"^(?P<reason>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_MSGSPEC_MISSING = re.compile(r"missing required field `(?P<name>.*)`$")


class NotAModelError(UsageError):
    """A class that no document can be read as.

    Attributes:
        model: The class.
    """

    def __init__(self, model: type) -> None:
        super().__init__(f"{model!r} is no dataclass, msgspec struct or pydantic model")
        self.model = model


class Model(Protocol):
    """How values of one class and members of a document become each other."""

    def hints(self) -> Mapping[str, Any]:
        """The types of its members by name, annotations included."""
        ...

    def read(self, members: dict[str, Any]) -> Any:
        """The value; raises `Invalid` with what is wrong."""
        ...

    def write(self, value: Any) -> dict[str, Any]:
        """The members as JSON."""
        ...


def model_of(model: type) -> Model:
    """What is known of a class.

    Raises:
        NotAModelError: Nothing is.
        FieldTypeError: A field has a type that no JSON value stands for.
    """
    if hasattr(model, "__struct_fields__"):
        return _StructModel(model)
    if hasattr(model, "model_validate") and hasattr(model, "model_fields"):
        return _PydanticModel(model)
    if isinstance(model, type) and dataclasses.is_dataclass(model):
        return _DataclassModel(model)
    raise NotAModelError(model)


class _DataclassModel:
    def __init__(self, model: type) -> None:
        self._model = model
        self._names = list(fields_of(model))
        for hint in self.hints().values():
            reader(hint)

    def hints(self) -> Mapping[str, Any]:
        hints = hints_of(self._model)
        return {name: hints[name] for name in self._names}

    def read(self, members: dict[str, Any]) -> Any:
        return read_object(self._model, members, "")

    def write(self, value: Any) -> dict[str, Any]:
        return {name: plain(getattr(value, name)) for name in self._names}


class _StructModel:
    def __init__(self, model: type) -> None:
        self._model = model
        self._msgspec: Any = importlib.import_module("msgspec")

    def hints(self) -> Mapping[str, Any]:
        hints = hints_of(self._model)
        fields = self._msgspec.structs.fields(self._model)
        return {field.encode_name: hints[field.name] for field in fields}

    def read(self, members: dict[str, Any]) -> Any:
        try:
            return self._msgspec.convert(members, self._model)
        except self._msgspec.ValidationError as error:
            raise Invalid(_struct_problem(str(error))) from error

    def write(self, value: Any) -> dict[str, Any]:
        members: dict[str, Any] = self._msgspec.to_builtins(value)
        return members


class _PydanticModel:
    def __init__(self, model: type) -> None:
        self._model: Any = model
        self._pydantic: Any = importlib.import_module("pydantic")

    def hints(self) -> Mapping[str, Any]:
        hints = hints_of(self._model)
        fields = self._model.model_fields
        return {field.alias or name: hints[name] for name, field in fields.items()}

    def read(self, members: dict[str, Any]) -> Any:
        try:
            return self._model.model_validate(members)
        except self._pydantic.ValidationError as error:
            problems = error.errors(include_url=False, include_input=False, include_context=False)
            raise Invalid(
                *[Problem(_dotted(each["loc"]), _reason_of(each)) for each in problems]
            ) from error

    def write(self, value: Any) -> dict[str, Any]:
        members: dict[str, Any] = value.model_dump(mode="json", by_alias=True)
        return members


def _struct_problem(message: str) -> Problem:
    found = _MSGSPEC_PATH.match(message)
    assert found is not None
    path, missing = found["path"] or "", _MSGSPEC_MISSING.search(found["reason"])
    if missing is None:
        return Problem(path, found["reason"])
    name = missing["name"]
    return Problem(f"{path}.{name}" if path else name, "missing")


def _dotted(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _reason_of(problem: Mapping[str, Any]) -> str:
    return "missing" if problem["type"] == "missing" else str(problem["msg"])
