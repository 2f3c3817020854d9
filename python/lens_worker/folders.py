"""Writes folders atomically."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from .errors import RequestError, StateError


class Folder:
    """Written beside its final name, flushed to the disk, then renamed.

    Only a folder that holds `marker`, which every folder of its kind has, is ever replaced.
    """

    def __init__(self, directory: str, marker: str) -> None:
        self.final = Path(directory)
        if not self.final.is_absolute():
            raise RequestError(f"field `directory` is {directory!r}, expected an absolute path")
        self.work = self.final.with_name(self.final.name + ".tmp")
        self._old = self.final.with_name(self.final.name + ".old")
        self._marker = marker

    def begin(self) -> None:
        """Makes an empty working folder."""
        if self.final.exists() and not (self.final / self._marker).is_file():
            raise StateError(
                f"{self.final} exists and holds no {self._marker}: it was not written by this call; "
                "remove it or name another directory"
            )
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)

    def commit(self) -> None:
        """Flushes everything and takes the final name."""
        for path in sorted(self.work.rglob("*")):
            _flush(path)
        _flush(self.work)
        shutil.rmtree(self._old, ignore_errors=True)
        if self.final.exists():
            self.final.rename(self._old)
        self.work.rename(self.final)
        _flush(self.final.parent)
        shutil.rmtree(self._old, ignore_errors=True)

    def drop(self) -> None:
        """Removes the working folder."""
        shutil.rmtree(self.work, ignore_errors=True)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def listing(folder: Path) -> list[dict[str, object]]:
    """Name, size and SHA-256 of a folder's files, by name."""
    files: list[dict[str, object]] = []
    for path in sorted(folder.iterdir()):
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files.append({"name": path.name, "bytes": path.stat().st_size, "sha256": digest})
    return files
