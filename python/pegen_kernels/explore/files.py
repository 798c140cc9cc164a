"""Output files: an old one stays until the new one is complete."""
from __future__ import annotations

import os
import pathlib
import tempfile

from ..errors import ArgumentError


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def replace(path: pathlib.Path, content: bytes) -> None:
    """Raises ArgumentError where it cannot be written."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                file.write(content)
                file.flush()
                os.chmod(file.name, 0o666 & ~_umask())
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as e:
        raise ArgumentError(f"-o {path}: cannot be written: {e.strerror}") from e


def ending(path: pathlib.Path, endings: tuple[str, ...]) -> None:
    """Raises ArgumentError where the file's ending says nothing."""
    if path.suffix not in endings:
        raise ArgumentError(f"-o {path}: the ending decides what is written; expected one of {', '.join(endings)}")
    if not path.parent.is_dir():
        raise ArgumentError(f"-o {path}: there is no folder '{path.parent}'")
