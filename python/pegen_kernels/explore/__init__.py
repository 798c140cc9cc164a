"""Pictures of encodings: `pegen plot SPEC... -o report.html`. Needs pegen-kernels[explore], but for `explain`."""
from __future__ import annotations

import os
from typing import Sequence

from .facts import Facts, explain

__all__ = ["Facts", "explain", "write"]


def write(path: str | os.PathLike[str], facts: Sequence[Facts], only: Sequence[str] = ()) -> None:
    """Writes a report: .html, one page with everything in it that needs no network; .svg or .png, its pictures. only:
    some of them, by their names in the page's links. An old file stays until the new one is complete.

    Raises ArgumentError for another ending, an unknown picture or two descriptions of one label; ImportError where the
    plotting library is not installed.
    """
    from .report import write as report

    report(path, facts, only)
