"""Kernels by the names that operators have for them.

A name is a text: the description, its options and the digest of both, so that an exported program that is loaded
elsewhere compiles the same kernel there, or says that it is another one.
"""
from __future__ import annotations

import hashlib
import json
import os
import pathlib
import string
from typing import Any
from urllib.parse import quote, unquote

from .. import kernel as _kernels
from ..errors import ArgumentError, CompileError
from ..kernel import Kernel
from . import extension

_registered: dict[str, Kernel] = {}


def _portable(options: dict[str, Any]) -> dict[str, Any]:
    """Without what is for each process to decide: no program that was loaded from a file runs a description with this
    process's rights, or chooses a folder of kernels."""
    return {key: value for key, value in options.items() if key not in ("trust_spec", "cache", "max_cache")}


def _add(name: str, found: Kernel) -> Kernel:
    kept = _registered.setdefault(name, found)
    if kept is found:
        extension.add(name, found)
    return kept


# JSON with ' and " exchanged, and without backslashes: compilers of graphs write names into C++ as they are.
_SWAPPED = str.maketrans("'\"", "\"'")
_PLAIN = "".join(set(string.punctuation) - set('"\\%')) + " "


def _write(recipe: dict[str, Any]) -> str:
    return quote(json.dumps(recipe, sort_keys=True, default=str).translate(_SWAPPED), safe=_PLAIN)


def _read(name: str) -> dict[str, Any]:
    return json.loads(unquote(name).translate(_SWAPPED))


def _portable_spec(spec: Any, found: Kernel, options: dict[str, Any]) -> str:
    """The text of a file that stands alone, so that a program that names it loads where the file is not."""
    path = pathlib.Path(spec) if "\n" not in str(spec) else None
    if path is None or not path.is_file():
        return str(spec)
    text = path.read_text() + "\n"
    try:
        alone = _kernels.compile(text, **options).digest == found.digest
    except CompileError:  # it has modules beside it
        alone = False
    return text if alone else os.path.abspath(path)


def register(spec: Any, **options: Any) -> str:
    """Compiles a description (arguments of `pegen_kernels.compile`) for the operators; returns its name there. Also
    takes a Kernel, as `pegen_kernels.load` returns it: no process finds such a name that has not registered it too."""
    if isinstance(spec, Kernel):
        if options:
            raise ArgumentError(f"{min(options)}: given with a compiled kernel; expected a description for options")
        name = _write({"object": hashlib.sha256(spec.object).hexdigest()})
        _add(name, spec)
        return name
    found = _kernels.compile(spec, **options)
    spec = _portable_spec(spec, found, options)
    name = _write({"spec": spec, "options": _portable(options), "digest": found.digest})
    _add(name, found)
    return name


def kernel_of(name: str) -> Kernel:
    """The kernel that `register` called so, in this process or another one."""
    found = _registered.get(name)
    if found is not None:
        return found
    try:
        recipe = _read(name)
        is_loaded = "object" in recipe
        spec, options, digest = (None, {}, "") if is_loaded else (recipe[key] for key in ("spec", "options", "digest"))
    except (ValueError, KeyError, TypeError) as e:
        raise ArgumentError(f"kernel: '{name[:80]}' is not what pegen_kernels.torch.register returned") from e
    if is_loaded:
        raise ArgumentError("kernel: it was loaded from a file; expected register(pegen_kernels.load(FILE)) before")
    made = _kernels.compile(spec, **_portable(options))
    if made.digest != digest:
        raise CompileError(
            f"{made.name}: the description here is not the one of the program that names it: its digest is"
            f" {made.digest}, expected {digest}"
        )
    return _add(name, made)
