"""What the compiler is asked for: a description with its options."""
from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import subprocess
import threading
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from . import _native
from .errors import CompileError


Watch = Callable[["subprocess.Popen[str]"], None]


class Ahead:
    """A process of the compiler that was started before it is asked: who asks waits for its answer alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: subprocess.Popen[str] | None = None
        self._closed = False

    def take(self) -> subprocess.Popen[str]:
        """It reads its words from its standard input, a NUL after each."""
        with self._lock:
            found, self._waiting = self._waiting, None
        return found if found and found.poll() is None else self._start()

    def refill(self) -> None:
        with self._lock, contextlib.suppress(OSError):  # who asks next is told
            if not self._waiting and not self._closed:
                self._waiting = self._start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._waiting:
                self._waiting.communicate()  # nothing to do: it ends

    @staticmethod
    def _start() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen([_native.program(), "@-"], text=True, stdin=pipe, stdout=pipe, stderr=pipe)


class Request(NamedTuple):
    """A description with its options: what to compile, explain, check and time."""

    file: str | None
    text: str | None
    defines: tuple[str, ...]
    targets: str | None
    dtypes: str | None
    label: str | None = None
    name: str | None = None
    cache: str | None = None
    trust_spec: bool = False
    max_seconds: float = 0
    max_memory: int = 0
    max_cache: int = 0
    tangents: bool = False

    def native(self) -> _native.CompileRequest:
        for name, word in (*zip(self._fields, self), *(("defines", word) for word in self.defines)):
            if isinstance(word, str) and "\0" in word:  # where C's texts end
                raise CompileError(f"{name}: {word!r} has a NUL in it")
        encode = lambda text: None if text is None else os.fsencode(text)  # noqa: E731
        defines = (ctypes.c_char_p * (len(self.defines) + 1))(*(os.fsencode(word) for word in self.defines))
        return _native.CompileRequest(
            struct_size=ctypes.sizeof(_native.CompileRequest), n_defines=len(self.defines), file=encode(self.file),
            text=encode(self.text), label=encode(self.label), defines=defines, targets=encode(self.targets),
            dtypes=encode(self.dtypes), name=encode(self.name), program=encode(_native.program()),
            cache=encode(self.cache), max_seconds=self.max_seconds, max_memory=self.max_memory,
            trust_spec=self.trust_spec, max_cache=self.max_cache, tangents=self.tangents,
        )  # fmt: skip

    def words(self, command: str, *options: str) -> list[str]:
        """One of the program's other commands, but for the description, which is its last word."""
        words = [_native.program(), command, *options]
        for define in self.defines:
            words += ["-D", define]
        for option, value in (("--target", self.targets), ("--dtype", self.dtypes)):
            if value:
                words += [option, value]
        return [*words, "--trust-spec", "--"] if self.trust_spec else [*words, "--"]

    def run(
        self, command: str, *options: str, watch: Watch | None = None, ahead: Ahead | None = None
    ) -> subprocess.CompletedProcess[str]:
        """watch: is given the process, which it may end from another thread. ahead: has the process, of a file."""
        text, words, given = None, self.words(command, *options), None
        try:
            if self.text is not None:
                text = os.memfd_create("description")
                os.write(text, self.text.encode())
            file = self.file if text is None else f"/proc/self/fd/{text}"
            if ahead and text is None:
                process, given = ahead.take(), "".join(word + "\0" for word in [*words[1:], str(file)])
            else:
                process = subprocess.Popen(
                    [*words, str(file)], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, pass_fds=() if text is None else (text,),
                )  # fmt: skip
            with process:
                try:
                    if watch:
                        watch(process)
                    out, err = process.communicate(given)
                except BaseException:
                    process.kill()
                    raise
            return subprocess.CompletedProcess(words, process.returncode, out, err)
        except OSError as e:
            raise CompileError(f"cannot run the compiler '{_native.program()}': {e.strerror}") from e
        finally:
            if text is not None:
                os.close(text)
            if ahead:
                ahead.refill()


@functools.lru_cache(maxsize=None)
def _chips(program: str) -> list[int]:
    """Chips of NVIDIA that the compiler has PTX for."""
    told = subprocess.run([program, "--target", "help"], capture_output=True, text=True)
    words = (line.partition(" ")[0] for line in told.stdout.splitlines())
    return [int(word[3:]) for word in words if word.startswith("sm_") and word[3:].isdigit()]


def target_of(device: int) -> str | None:
    """The target whose PTX runs best on a CUDA device: its own, or the last before it; None: there is none."""
    chip = _native.library.pegen_cuda_chip(device)
    known = [x for x in _chips(_native.program()) if x <= chip]
    return f"sm_{max(known)}" if known else None


def stock() -> list[str]:
    """Names of the descriptions that come with the package."""
    return sorted(path.stem for folder in _native.spec_folders() for path in folder.glob("*.lua"))


def word_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(word_of(item) for item in value)
    return repr(value) if isinstance(value, float) else str(value)


def _listed(name: str, value: str | Sequence[str] | None) -> str | None:
    words = [value] if isinstance(value, str) or not hasattr(value, "__iter__") else list(value)
    for word in words:
        if not isinstance(word, str) and value is not None:
            raise CompileError(f"{name}: {word!r} is a {type(word).__name__}; expected a text or a list of texts")
    return None if value is None else ",".join(words)


_SHORT = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def _source(spec: str | os.PathLike[str]) -> tuple[str | None, str | None]:
    """File, or text."""
    if isinstance(spec, str) and "\n" in spec:
        return None, spec
    if not isinstance(spec, (str, os.PathLike)):
        raise CompileError(f"spec is a {type(spec).__name__}; expected a text or a path")
    path = os.fspath(spec)
    if isinstance(spec, str) and spec.isidentifier() and not os.path.exists(path):
        for folder in _native.spec_folders():
            if (folder / f"{path}.lua").is_file():
                return str(folder / f"{path}.lua"), None
    if not os.path.isfile(path):
        raise CompileError(f"spec: no description '{path}'; expected a file, Lua text, or one of {', '.join(stock())}")
    return path, None


def request_of(
    spec: str | os.PathLike[str],
    defines: Mapping[str, Any],
    targets: str | Sequence[str] | None = None,
    dtypes: str | Sequence[str] | None = None,
    **more: Any,
) -> Request:
    """What `compile` is asked for, as it has them; more: other fields of a Request."""
    file, text = _source(spec)
    words = tuple(f"{key}={word_of(value)}" for key, value in defines.items())
    types = _listed("dtypes", dtypes)
    for long, short in _SHORT.items():
        types = types and types.replace(long, short)
    return Request(file, text, words, _listed("targets", targets), types, **more)
