"""Engines that are functions of C or of TVM-FFI in a shared object, by the signatures of examples/conform.c and
tests/python/conform_tvm_ffi.cc. What belongs out is written to arrays that they are given, found_q, found_k, found_out.
"""
from __future__ import annotations

import ctypes
import importlib
import math
from typing import Any, Callable, Mapping

import numpy
from numpy import ndarray

from ..errors import ArgumentError

NO_SUCH_CASE = 1


class _Array(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_char_p), ("rank", ctypes.c_int64),
                ("shape", ctypes.c_int64 * 4), ("data", ctypes.c_void_p)]  # fmt: skip


class _Option(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("text", ctypes.c_char_p), ("number", ctypes.c_double)]


def _with_found(arrays: Mapping[str, Any], asked: Mapping[str, Any]) -> tuple[dict[str, ndarray], list[ndarray]]:
    """What is given as whole arrays, and zeros that are like what belongs out."""
    given = {name: numpy.ascontiguousarray(x) for name, x in arrays.items()}
    rows = given["x" if asked["kind"] == "add" else "q"]
    names = ("q", "k") if asked["kind"] == "encode" else ("out",)
    last = given["v"].shape[-1] if "v" in given else rows.shape[-1]
    like = {"out": (*rows.shape[:-1], last), **{name: given[name].shape for name in names if name in given}}
    found = {f"found_{name}": numpy.zeros(like[name], rows.dtype) for name in names}
    return {**given, **found}, list(found.values())


def _text(value: Any) -> str:
    return ",".join(map(_text, value)) if isinstance(value, (tuple, list)) else str(value)


def load_c(path: str, name: str) -> Callable[..., Any]:
    function = getattr(ctypes.CDLL(path), name)
    function.restype = ctypes.c_int

    def engine(arrays: Mapping[str, Any], asked: Mapping[str, Any]) -> Any:
        given, found = _with_found(arrays, asked)
        rows = [_Array(name.encode(), str(x.dtype).encode(), x.ndim, (ctypes.c_int64 * 4)(*x.shape), x.ctypes.data)
                for name, x in given.items()]  # fmt: skip
        told = [_Option(name.encode(), _text(x).encode(), float(x) if isinstance(x, (bool, int, float)) else math.nan)
                for name, x in asked.items()]  # fmt: skip
        status = function(len(rows), (_Array * len(rows))(*rows), len(told), (_Option * len(told))(*told))
        if status == NO_SUCH_CASE:
            raise NotImplementedError(f"{name} returned {NO_SUCH_CASE}")
        if status:
            raise ArgumentError(f"{name} returned {status}")
        return found

    return engine


def load_tvm_ffi(path: str, name: str) -> Callable[..., Any]:
    tvm_ffi = importlib.import_module("tvm_ffi")
    tvm_ffi.register_error("NotImplementedError", NotImplementedError)
    function = tvm_ffi.load_module(path)[name]

    def engine(arrays: Mapping[str, Any], asked: Mapping[str, Any]) -> Any:
        given, found = _with_found(arrays, asked)
        function({name: tvm_ffi.from_dlpack(x) for name, x in given.items()}, dict(asked))
        return found

    return engine
