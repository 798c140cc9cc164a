"""Exceptions. All of them are PegenError."""
from __future__ import annotations

import re


class PegenError(Exception):
    """Anything that this package refuses."""


class CompileError(PegenError, ValueError):
    """A description that does not compile, or a compiler that cannot be run. `file` and `line` are where the text says
    so; None elsewhere."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        place = re.match(r"(.*?):(\d+): error:", message)
        self.file: str | None = place[1] if place else None
        self.line: int | None = int(place[2]) if place else None


class ArgumentError(PegenError, ValueError):
    """An array that a kernel cannot take; the sentence begins with the argument's name."""


class CheckFailed(PegenError):
    """`check` found a deviation from the reference; the message is the report."""
