"""Errors, with the HTTP status and the kind that the driver sees."""

from __future__ import annotations

import json
from typing import ClassVar


class WorkerError(Exception):
    """An answer other than 200."""

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "internal"

    def body(self) -> bytes:
        """The JSON body of the answer."""
        return json.dumps({"error": {"kind": self.kind, "message": str(self)}}).encode()


class RequestError(WorkerError):
    """The request cannot be carried out as it is written."""

    status = 400
    kind = "request"


class AuthError(RequestError):
    """The request does not carry the worker's token."""

    status = 401


class NoSuchCallError(RequestError):
    """The path is not one of the protocol's."""

    status = 404


class TooLargeError(RequestError):
    """The body is larger than the worker reads."""

    status = 413


class StateError(WorkerError):
    """The worker is not in the state the request expects."""

    status = 409
    kind = "state"


class BusyError(WorkerError):
    """One command at a time; this one may be sent again."""

    status = 503
    kind = "state"


class HalfDoneError(WorkerError):
    """A command failed when it had changed part of the state; only `load` helps."""


class MemoryExhaustedError(WorkerError):
    """The device's memory did not suffice; nothing was changed."""

    kind = "oom"


_KINDS: dict[int, type[WorkerError]] = {
    400: RequestError,
    409: StateError,
    503: BusyError,
}


def packed(error: WorkerError) -> bytes:
    """An error as it travels between ranks."""
    return json.dumps([error.status, error.kind, str(error)]).encode()


def unpacked(data: bytes) -> WorkerError:
    """The error another rank reported."""
    status, kind, message = json.loads(data)
    if kind == MemoryExhaustedError.kind:
        return MemoryExhaustedError(message)
    return _KINDS.get(status, WorkerError)(message)
