"""Reads and writes request and reply bodies: safetensors for bulk data, JSON for control."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from .errors import RequestError

SAFETENSORS = "application/octet-stream"
JSON = "application/json"


def write_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """A safetensors body."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(whole, dict(metadata))


def read_tensors(body: bytes) -> Fields:
    """A safetensors body with its metadata."""
    try:
        tensors = safetensors.torch.load(body)
    except (SafetensorError, KeyError, ValueError) as error:
        raise RequestError(f"the body is not a safetensors file: {error}") from error
    size = int.from_bytes(body[:8], "little")
    metadata = json.loads(body[8 : 8 + size]).get("__metadata__", {})
    return Fields(tensors, metadata)


def number(value: float) -> float | None:
    """A number as JSON can say it: what is not finite is null."""
    return value if math.isfinite(value) else None


class Fields:
    """The tensors and metadata of a body. Each read removes a field; `finish` refuses what is left."""

    def __init__(self, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
        self._tensors = tensors
        self._metadata = metadata

    def tensor(self, name: str, dtype: torch.dtype, *shape: int | None) -> Tensor:
        """A tensor; `None` in the shape stands for any size."""
        found = self.optional_tensor(name, dtype, *shape)
        if found is None:
            raise RequestError(f"tensor `{name}` is missing")
        return found

    def optional_tensor(self, name: str, dtype: torch.dtype, *shape: int | None) -> Tensor | None:
        """A tensor that may be left out."""
        tensor = self._tensors.pop(name, None)
        if tensor is None:
            return None
        if tensor.dtype != dtype:
            raise RequestError(f"tensor `{name}` holds {tensor.dtype}, expected {dtype}")
        fits = tensor.dim() == len(shape) and all(
            want is None or want == have for want, have in zip(shape, tensor.shape, strict=True)
        )
        if not fits:
            wanted = "[" + ", ".join("any" if size is None else str(size) for size in shape) + "]"
            raise RequestError(f"tensor `{name}` has the shape {list(tensor.shape)}, expected {wanted}")
        return tensor

    def text(self, key: str) -> str:
        """A setting."""
        value = self._metadata.pop(key, None)
        if not value:
            raise RequestError(f"metadata `{key}` is missing")
        return value

    def integer(self, key: str, default: int | None = None, least: int = 0) -> int:
        """A whole number of at least `least`; required if there is no default."""
        if default is not None and key not in self._metadata:
            return default
        text = self.text(key)
        if not text.isascii() or not text.isdecimal() or int(text) < least:
            raise RequestError(f"metadata `{key}` is {text!r}, expected a whole number of at least {least}")
        return int(text)

    def optional_integer(self, key: str) -> int | None:
        """A whole number that may be left out."""
        return self.integer(key) if key in self._metadata else None

    def number(self, key: str, holds: Rule) -> float:
        """A number that a rule allows."""
        text = self.text(key)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not holds.test(value):
            raise RequestError(f"metadata `{key}` is {text!r}, expected {holds.words}")
        return value

    def all(self) -> dict[str, Tensor]:
        """Every tensor: for messages between ranks."""
        return self._tensors

    def finish(self) -> None:
        """Refuses fields that were not read, so that a misspelled name is an error."""
        for what, names in (("tensor", self._tensors), ("metadata", self._metadata)):
            if names:
                raise RequestError(f"{what} `{sorted(names)[0]}` is not known to this call")


class Rule:
    """A range of numbers, in words and as a test that NaN fails."""

    def __init__(
        self, words: str, least: float = -math.inf, most: float = math.inf, *, open_ends: bool = False
    ) -> None:
        self.words = words
        self._least, self._most, self._open = least, most, open_ends

    def test(self, value: float) -> bool:
        """Whether the number is in the range."""
        if self._open:
            return self._least < value < self._most
        return self._least <= value <= self._most


LARGEST = 1.7976931348623157e308
NOT_NEGATIVE = Rule("a finite number of at least 0", 0.0, LARGEST)
POSITIVE = Rule("a finite number above 0", 0.0, open_ends=True)
POSITIVE_OR_INF = Rule("a number above 0, or inf", 5e-324)
BETA = Rule("a number of at least 0 and below 1", 0.0, 1.0 - 1e-16)
SHARE = Rule("a number between 0 and 1", 0.0, 1.0, open_ends=True)
ABOVE_ONE = Rule("a finite number above 1", 1.0, open_ends=True)


def read_json(body: bytes) -> dict[str, Any]:
    """A JSON object; an empty body is an empty object."""
    try:
        value = json.loads(body) if body.strip() else {}
    except ValueError as error:
        raise RequestError(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RequestError("the body must be a JSON object")
    return value


def take(values: dict[str, Any], key: str, kind: type, default: object = None) -> Any:  # noqa: ANN401
    """A field of a JSON object, of one type; required if there is no default."""
    value = values.pop(key, default)
    if value is None:
        raise RequestError(f"field `{key}` is missing")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise RequestError(f"field `{key}` is {value!r}, expected {kind.__name__}")
    return value


def nothing_left(values: dict[str, Any]) -> None:
    """Refuses unknown fields."""
    if values:
        raise RequestError(f"field `{sorted(values)[0]}` is not known to this call")
