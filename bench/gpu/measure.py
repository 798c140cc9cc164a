"""Measures cases of kernels.py on a device: time, and error against float64. The functions that run in a worker."""
from __future__ import annotations

import contextlib
import functools
import math
import statistics
import time
from typing import Any, Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import pegen_kernels as pk
from pegen_kernels.torch import Attention, Encoding
from pegen_kernels.torch.initial import draw

import formulas
from kernels import Case

CYCLED_BYTES, MOST_SETS = 200 << 20, 16  # more than a last cache holds
GRAPH_SECONDS, MOST_REPEATS, ROUNDS = 4e-3, 100, 11
CHECKED_QUERIES = 256
WRONG_RATIO, WRONG_ERROR = 8, 0.05  # times the error of the yardstick; where there is none, of the largest value
Call = Callable[[], Any]


class Device:
    """A GPU, or the processor on which the script itself is tried."""

    def __init__(self, kind: str, has_graphs: bool = True) -> None:
        self.kind, self.is_gpu = kind, kind == "cuda"
        self.has_graphs = self.is_gpu and has_graphs

    def wait(self) -> None:
        if self.is_gpu:
            torch.cuda.synchronize()

    def stream(self) -> int:
        return torch.cuda.current_stream().cuda_stream if self.is_gpu else 0

    def elapsed(self, run: Call) -> float:
        if not self.is_gpu:
            before = time.perf_counter()
            run()
            return time.perf_counter() - before
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3

    def fitted(self, case: Case) -> Case:
        """The case itself, or one that a processor does at once."""
        if self.is_gpu:
            return case
        small = {name: min(getattr(case, name), 64) for name in ("queries", "keys")}
        return case._replace(batches=min(case.batches, 2), **small)


def _graph_of(calls: list[Call], repeats: int) -> Call:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            for call in calls:
                call()
    return graph.replay


def seconds_of(device: Device, calls: list[Call], budget: float, is_captured: bool = True) -> dict[str, Any]:
    """Median time of one of the calls, which are run in turn: replayed from a graph, or, where they cannot be captured,
    between events."""

    def once() -> None:
        for call in calls:
            call()

    once()
    device.wait()
    run, result = once, {"way": "events" if device.is_gpu else "clock"}
    first, repeats = device.elapsed(once), 1
    if device.has_graphs and is_captured:
        try:
            run = _graph_of(calls, 1)
            run()
            first = device.elapsed(run)  # without the host's time
            repeats = max(1, min(MOST_REPEATS, int(GRAPH_SECONDS / max(first, 1e-7))))
            run = _graph_of(calls, repeats)
            result["way"] = "graph"
        except Exception as error:
            run, repeats, result["graph_error"] = once, 1, one_line(error)
        device.wait()  # raises where the failure was more than the capture's
    run()
    device.wait()
    rounds = max(3, min(ROUNDS, int(budget / max(first * repeats, 1e-7))))
    times = [device.elapsed(run) / (len(calls) * repeats) for _ in range(rounds)]
    return {**result, "seconds": statistics.median(times), "fastest": min(times), "slowest": max(times)}


def one_line(error: BaseException | str) -> str:
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:300]


# ---- what a case works on ----


class Loaded:
    """The kernels of a folder, and what its index says of them."""

    def __init__(self, folder: str, index: dict[str, Any]) -> None:
        self.folder, self._index = folder, index["kernels"]

    def described(self, key: str) -> dict[str, Any]:
        """What the index says of a kernel; raises with the compiler's message where it did not compile."""
        found = self._index.get(key, {"error": "the folder has no such kernel"})
        if "error" in found:
            raise RuntimeError(f"{key}: {found['error']}")
        return found

    def axes(self, key: str) -> int:
        return len(self.described(key)["axes"]) if key else 1

    @functools.lru_cache(maxsize=None)
    def kernel(self, key: str) -> pk.Kernel:
        return pk.load(f"{self.folder}/{key}.so")

    @functools.lru_cache(maxsize=None)
    def operands(self, key: str, device: str) -> dict[str, Tensor]:
        """First values as the description states them; normal ones where it states none, or zeros."""
        torch.manual_seed(5)
        values = {}
        for info in self.described(key)["operands"] if key else ():
            value = draw(info["initial"], tuple(info["shape"])) if info.get("initial") else None
            values[info["name"]] = (0.3 * torch.randn(info["shape"]) if value is None or not value.any() else value).to(
                device
            )
        return values

    def inputs(self, key: str, case: Case, device: str) -> dict[str, Tensor]:
        """Inputs of queries, [batches, heads, queries, size]; equal for equal shapes."""
        source = torch.Generator(device).manual_seed(7)
        shape = [case.batches, case.heads, case.queries]
        return {
            info["name"]: 0.5 * torch.rand(shape + [info["size"]] * bool(info["size"]), generator=source, device=device)
            for info in (self.described(key)["inputs"] if key else ())
        }


def side_of(tokens: int) -> int:
    return 14 if tokens % 14 == 0 else math.isqrt(tokens)


def positions_of(axes: int, tokens: int, device: str) -> Tensor:
    """Along a sequence, an image in rows, or a video; [tokens, axes]."""
    at, side = torch.arange(tokens, device=device), side_of(tokens)
    columns = {1: [at], 2: [at // side, at % side], 3: [at // side**2, at // side % side, at % side]}[axes]
    return torch.stack(columns, -1).float()


class Problem:
    """Tensors of an attention case: sets of rows that are cycled, and what all of them share. Equal for all contenders
    of a shape."""

    def __init__(self, case: Case, loaded: Loaded, device: Device) -> None:
        self.case, self.device = case, device
        self.dtype = getattr(torch, case.dtype)
        self.source = torch.Generator(device.kind).manual_seed(11)
        rows = case.heads * case.queries + case.key_heads * case.keys
        count = max(2, min(MOST_SETS, CYCLED_BYTES // (2 * case.batches * rows * case.head_dim * self.dtype.itemsize)))
        self.sets = [self._rows() for _ in range(count)]
        self.k_positions = positions_of(loaded.axes(case.kernel), case.keys, device.kind)
        self.positions = self.k_positions[case.keys - case.queries :].contiguous()
        self.operands = loaded.operands(case.kernel, device.kind)
        self.inputs = loaded.inputs(case.kernel, case, device.kind)

    def random(self, heads: int, tokens: int) -> Tensor:
        shape = self.case.batches, heads, tokens, self.case.head_dim
        return torch.randn(shape, generator=self.source, device=self.device.kind).to(self.dtype)

    def _rows(self) -> tuple[Tensor, Tensor, Tensor]:
        c = self.case
        return self.random(c.heads, c.queries), self.random(c.key_heads, c.keys), self.random(c.key_heads, c.keys)

    @property
    def scale(self) -> float:
        return self.case.head_dim**-0.5

    def known(self, like: Tensor) -> formulas.Known:
        tensors = {**self.operands, **self.inputs}
        return formulas.Known(tensors, self.case.heads, self.scale, side_of(self.case.keys), like)


# ---- errors ----


class Checked:
    """Which part of a result is compared, and what it should be. tensors: float64, each with where it is taken from."""

    def __init__(self, tensors: list[Tensor], taken: Callable[[list[Tensor]], list[Tensor]]) -> None:
        self.tensors, self.taken = tensors, taken

    def errors(self, results: list[Tensor]) -> tuple[float, float]:
        """The largest error, of the largest value, and the mean one, of the mean value; of the worst tensor. NaN where
        anything of the results is no finite number."""
        if not all(bool(torch.isfinite(x).all()) for x in results):
            return math.nan, math.nan
        worst = [0.0, 0.0]
        for x, right in zip(self.taken(results), self.tensors, strict=True):
            wrong, size = (x.to(right.device).double() - right).abs(), right.abs()
            for i, share in enumerate((wrong.max() / size.max(), wrong.mean() / size.mean())):
                worst[i] = max(worst[i], float(share)) if math.isfinite(share) else math.nan
        return worst[0], worst[1]


def _places(problem: Problem) -> tuple[int, Tensor, Tensor, Tensor]:
    """What is compared: a batch, heads of queries, the heads of their keys, and queries."""
    c = problem.case
    heads = torch.tensor(sorted({0, c.heads - 1}), device=problem.device.kind)
    count = min(CHECKED_QUERIES, c.queries)
    queries = torch.linspace(0, c.queries - 1, count, device=problem.device.kind, dtype=torch.float64).round().long()
    return c.batches - 1, heads, heads // (c.heads // c.key_heads), queries


def reference(problem: Problem, formula: str, grad: Tensor | None) -> Checked:
    """Attention in float64, of two heads of the last batch: of some queries, or with grad the gradients of all rows."""
    c = problem.case
    batch, heads, key_heads, queries = _places(problem)
    if grad is not None:
        queries = torch.arange(c.queries, device=problem.device.kind)
    q, k, v = problem.sets[0]
    rows = [x.double() for x in (q[batch, heads][:, queries], k[batch, key_heads], v[batch, key_heads])]
    for x in rows:
        x.requires_grad_(grad is not None)
    known, places = problem.known(rows[0].detach()), queries + c.keys - c.queries
    out = formulas.attend(formula, known, (rows[0], rows[1], rows[2]), batch, heads, places, c.causal)
    if grad is None:
        return Checked([out], lambda results: [results[0][batch, heads][:, queries]])
    found = torch.autograd.grad(out, rows, grad[batch, heads].double())
    return Checked([x.detach() for x in found], lambda results: [x[batch, heads] for x in results])


def host_reference(problem: Problem, attention: Attention, grad: Tensor | None) -> Checked:
    """For encodings without a formula: the processor's kernel on the same rows in float32, which tests hold to a
    reference in long double. Gradients of queries alone, since those of keys sum over all queries."""
    batch, heads, _, queries = _places(problem)
    part = slice(batch, batch + 1)
    q, k, v = (x[part].float().cpu() for x in problem.sets[0])
    q = q[:, :, queries.cpu()]
    positions, k_positions = problem.positions[queries].cpu(), problem.k_positions.cpu()
    operands = [x.cpu() for x in problem.operands.values()]
    inputs = [x[part][:, :, queries].cpu() for x in problem.inputs.values()]
    places = (positions, k_positions, operands, inputs, False, 0.0, attention.kernel_name)
    operators = torch.ops.pegen_kernels
    out, lse = operators.attention_with_lse.kernel(q, k, v, *places)
    if grad is not None:
        gains = grad[part][:, :, queries].float().cpu()
        out = operators.attention_backward.kernel(gains, None, q, k, v, out, lse, *places)[0]
    at = heads.cpu()
    return Checked([out[0, at].double()], lambda results: [results[0][batch, heads][:, queries]])


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Memory that PyTorch hands out holds NaN."""
    was = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was)


# ---- attention: what contends ----


def module_of(loaded: Loaded, problem: Problem) -> Attention:
    case = problem.case
    attention = Attention(loaded.kernel(case.kernel), causal=case.causal, init=problem.operands)
    return attention.to(problem.device.kind).requires_grad_(False)


def sdpa(backend: str, problem: Problem, rows: tuple[Tensor, ...]) -> Tensor:
    c = problem.case
    with contextlib.nullcontext() if backend == "SDPA" else sdpa_kernel(getattr(SDPBackend, backend)):
        return F.scaled_dot_product_attention(*rows, is_causal=c.causal, enable_gqa=c.heads != c.key_heads)


@functools.lru_cache(maxsize=None)
def _compiled_flex() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


def flex(problem: Problem) -> Callable[[tuple[Tensor, ...]], Tensor]:
    q = problem.sets[0][0]
    score = formulas.FORMULAS[problem.case.formula](problem.known(q.new_empty(0, dtype=torch.float32)))
    is_plain = problem.case.formula == "plain"
    torch._dynamo.reset()  # which gives up compiling where a function was compiled for many scores
    return lambda rows: _compiled_flex()(*rows, score_mod=None if is_plain else score)


def peer_forward(problem: Problem) -> Callable[[tuple[Tensor, ...]], Tensor]:
    peer = problem.case.peer
    return flex(problem) if peer == "FlexAttention" else lambda rows: sdpa(peer, problem, rows)


class Forward:
    """Calls of the forward pass, one a set of rows, and the result of the first one."""

    def __init__(self, problem: Problem, loaded: Loaded) -> None:
        self.attention = None if problem.case.peer else module_of(loaded, problem)
        if self.attention is None:
            run = peer_forward(problem)
            self.calls = [functools.partial(self._run_without_gradient, run, rows) for rows in problem.sets]
            return
        kernel, case, device = self.attention.kernel, problem.case, problem.device
        places = dict(operands=[*problem.operands.values()], inputs=[*problem.inputs.values()],
                      k_positions=problem.k_positions, causal=case.causal)  # fmt: skip
        outs = [torch.empty_like(rows[0]) for rows in problem.sets]
        self.first_out = outs[0]
        self.calls = [
            lambda rows=rows, out=out: kernel.attention(
                *rows, problem.positions, out=out, stream=device.stream(), **places
            )
            for rows, out in zip(problem.sets, outs)
        ]

    @staticmethod
    def _run_without_gradient(run: Any, rows: tuple[Tensor, ...]) -> Tensor:
        with torch.no_grad():
            return run(rows)

    is_captured = True

    def results(self) -> list[Tensor]:
        if self.attention is not None:
            self.first_out.fill_(math.nan)
        return [self.calls[0]()]


class Backward:
    """Calls of the gradients of q, k and v alone; the forward pass runs once, before."""

    def __init__(self, problem: Problem, loaded: Loaded, grad: Tensor) -> None:
        case = problem.case
        self.attention = None if case.peer else module_of(loaded, problem)
        self.is_captured = self.attention is not None
        self.calls: list[Call] = []
        for rows in problem.sets[:2]:
            if self.attention is None:
                rows = tuple(x.detach().requires_grad_() for x in rows)
                out = peer_forward(problem)(rows)
                self.calls.append(
                    lambda out=out, rows=rows: torch.autograd.grad(out, rows, grad, retain_graph=True)  # type: ignore
                )
                continue
            operands, inputs = [*problem.operands.values()], [*problem.inputs.values()]
            places = (problem.positions, problem.k_positions, operands, inputs, case.causal, 0.0,
                      self.attention.kernel_name)  # fmt: skip
            operators = torch.ops.pegen_kernels
            out, lse = operators.attention_with_lse.kernel(*rows, *places)
            self.calls.append(
                lambda rows=rows, out=out, lse=lse, places=places: operators.attention_backward.kernel(
                    grad, None, *rows, out, lse, *places
                )
            )

    def results(self) -> list[Tensor]:
        with poisoned() if self.attention is not None else contextlib.nullcontext():
            return list(self.calls[0]())


_yardsticks: dict[Any, tuple[str, tuple[float, float]]] = {}


def yardstick(problem: Problem, loaded: Loaded, grad: Tensor | None) -> tuple[str, tuple[float, float]]:
    """Errors of attention without positions in PyTorch on the same rows, of the first backend that takes them; NaN
    where none does."""
    case = problem.case
    key = (case.part, case.shape, case.dtype, case.causal)
    if key not in _yardsticks:
        _yardsticks[key] = ("", (math.nan, math.nan))
        for peer in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION"):
            plain = Problem(case._replace(peer=peer, kernel="", formula="plain"), loaded, problem.device)
            plain.sets = problem.sets
            try:
                contender = Forward(plain, loaded) if grad is None else Backward(plain, loaded, grad)
                _yardsticks[key] = (peer, reference(plain, "plain", grad).errors(contender.results()))
                break
            except Exception:  # a backend may lack the number type or the width
                problem.device.wait()
    return _yardsticks[key]


def is_wrong(errors: tuple[float, float], measured: tuple[float, float]) -> bool:
    """Whether errors are too large, or no numbers."""
    if not math.isfinite(errors[0]):
        return True
    if not math.isfinite(measured[0]):
        return errors[0] > WRONG_ERROR
    return errors[0] > max(WRONG_RATIO * measured[0], 1e-6) or errors[1] > max(WRONG_RATIO * measured[1], 1e-6)


def measure_attention(case: Case, loaded: Loaded, device: Device, budget: float) -> dict[str, Any]:
    problem = Problem(case, loaded, device)
    grad = problem.random(case.heads, case.queries) if case.part == "backward" else None
    began = time.perf_counter()
    contender = Forward(problem, loaded) if grad is None else Backward(problem, loaded, grad)
    before = contender.results()
    device.wait()
    result: dict[str, Any] = {"first_call_seconds": time.perf_counter() - began}
    before = [x.clone() for x in before]
    if case.formula:
        checked = reference(problem, case.formula, grad)
    else:
        assert contender.attention is not None
        checked = host_reference(problem, contender.attention, grad)
    errors, (name, measured) = checked.errors(before), yardstick(problem, loaded, grad)
    del checked
    result |= {"max_error": errors[0], "mean_error": errors[1], "wrong": is_wrong(errors, measured)}
    result |= {"yardstick": name, "max_ratio": errors[0] / measured[0], "mean_ratio": errors[1] / measured[1]}
    result |= seconds_of(device, contender.calls, budget, contender.is_captured)
    if contender.attention is not None:
        after = contender.results()
        result["same_bits"] = all(torch.equal(x, y) for x, y in zip(before, after))
    pairs = case.batches * case.heads * case.queries * case.keys * case.seen / (2 if case.causal else 1)
    flops = 4 * pairs * case.head_dim * (2.5 if grad is not None else 1)
    bytes_ = 2 * case.batches * case.key_heads * case.keys * case.head_dim * problem.dtype.itemsize
    return {**result, "tflops": flops / result["seconds"] / 1e12, "gbs": bytes_ / result["seconds"] / 1e9}


# ---- rows ----


class RowProblem:
    """Tensors of an encoding's case, in memory [batches, tokens, heads, channels]."""

    def __init__(self, case: Case, loaded: Loaded, device: Device) -> None:
        self.case, self.device, self.dtype = case, device, getattr(torch, case.dtype)
        self.source = torch.Generator(device.kind).manual_seed(11)
        each = case.batches * case.queries * (case.heads + case.key_heads) * case.head_dim * self.dtype.itemsize
        count = max(2, min(MOST_SETS, CYCLED_BYTES // (2 * each)))
        self.sets = [(self.random(case.heads), self.random(case.key_heads)) for _ in range(count)]
        self.operands = loaded.operands(case.kernel, device.kind)
        self.inputs = loaded.inputs(case.kernel, case, device.kind)
        self.positions = positions_of(loaded.axes(case.kernel), case.queries, device.kind)

    def random(self, heads: int, width: int = 0) -> Tensor:
        shape = self.case.batches, self.case.queries, heads, width or self.case.head_dim
        made = torch.randn(shape, generator=self.source, device=self.device.kind).to(self.dtype)
        return made.transpose(1, 2)


def copied(device: Device, size: int, budget: float) -> float:
    """Seconds of a copy that reads and writes `size` bytes together."""
    count = max(2, min(MOST_SETS, 2 * CYCLED_BYTES // size))
    pairs = [[torch.empty(size // 2, dtype=torch.uint8, device=device.kind) for _ in range(2)] for _ in range(count)]
    for source, _ in pairs:
        source.random_(0, 255)
    return seconds_of(device, [functools.partial(y.copy_, x) for x, y in pairs], budget)["seconds"]


def _last_batch_on_host(x: Tensor) -> Tensor:
    return x[-1:].cpu()


def row_errors(got: list[Tensor], right: list[Tensor]) -> dict[str, Any]:
    errors = Checked([x.double() for x in right], lambda results: results).errors(got)
    bound = 3e-5 if right[0].dtype == torch.float32 else 2e-2  # of 16 bits, of the largest value
    return {"max_error": errors[0], "mean_error": errors[1], "wrong": not errors[0] <= bound}


def measure_rows(case: Case, loaded: Loaded, device: Device, budget: float) -> dict[str, Any]:
    """A call that encodes q and k in place, or elsewhere where columns are appended; checked against the processor's
    kernel on the last batch."""
    problem = RowProblem(case, loaded, device)
    if case.peer:
        return _time_rope_peer(problem, budget)
    kernel = loaded.kernel(case.kernel)
    places = dict(operands=[*problem.operands.values()])
    width = kernel.out_dim
    in_place = width == case.head_dim

    def encode(q: Tensor, k: Tensor, out: Any) -> None:
        kernel.encode(q, k, problem.positions, inputs=[*problem.inputs.values()], out=out, in_place=out is None,
                      stream=device.stream(), **places)  # fmt: skip

    outs = [torch.full((*x.shape[:3], width), math.nan, dtype=x.dtype, device=x.device) for x in problem.sets[0]]
    began = time.perf_counter()
    encode(*problem.sets[0], tuple(outs))
    device.wait()
    result: dict[str, Any] = {"first_call_seconds": time.perf_counter() - began}
    right = kernel.encode(*(_last_batch_on_host(x) for x in problem.sets[0]), problem.positions.cpu(),
                          operands=[x.cpu() for x in problem.operands.values()],
                          inputs=[_last_batch_on_host(x) for x in problem.inputs.values()])  # fmt: skip
    result |= row_errors([_last_batch_on_host(x) for x in outs], list(right))
    targets = [None if in_place else tuple(torch.empty_like(x) for x in outs) for _ in problem.sets]
    del outs
    calls = [functools.partial(encode, *rows, out) for rows, out in zip(problem.sets, targets)]
    result |= seconds_of(device, calls, budget)
    moved = sum(x.numel() // case.head_dim for x in problem.sets[0]) * (case.head_dim + width) * problem.dtype.itemsize
    del calls, targets, problem.sets
    result["copy_seconds"] = copied(device, moved, budget / 2)
    share = result["copy_seconds"] / result["seconds"]
    return {**result, "gbs": moved / result["seconds"] / 1e9, "of_copy": share}


def _time_rope_peer(problem: RowProblem, budget: float) -> dict[str, Any]:
    case, half = problem.case, problem.case.head_dim // 2
    angle = problem.positions * 10000.0 ** (-torch.arange(half, device=problem.device.kind) / half)
    cos, sin = (torch.cat([x] * 2, -1).to(problem.dtype) for x in (angle.cos(), angle.sin()))

    def eager(q: Tensor, k: Tensor) -> tuple[Tensor, ...]:
        return tuple(x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin for x in (q, k))

    if case.peer == "Triton":
        import rope_triton

        run: Any = functools.partial(rope_triton.rotate, cos=cos, sin=sin)
    else:
        run = torch.compile(eager, dynamic=False) if case.peer == "torch.compile" else eager
    calls = [functools.partial(run, *rows) for rows in problem.sets]
    result = seconds_of(problem.device, calls, budget)
    moved = 2 * sum(x.numel() for x in problem.sets[0]) * problem.dtype.itemsize
    del calls, problem.sets
    result["copy_seconds"] = copied(problem.device, moved, budget / 2)
    share = result["copy_seconds"] / result["seconds"]
    return {**result, "gbs": moved / result["seconds"] / 1e9, "of_copy": share}


def measure_row_gradients(case: Case, loaded: Loaded, device: Device, budget: float) -> dict[str, Any]:
    """Gradients of q and k, and of operands where the case says so."""
    problem = RowProblem(case, loaded, device)
    kernel = loaded.kernel(case.kernel)
    encoding = Encoding(kernel, init=problem.operands).to(device.kind)
    operators, name = torch.ops.pegen_kernels, encoding.kernel_name
    gains = problem.random(case.heads, kernel.out_dim), problem.random(case.key_heads, kernel.out_dim)

    def gradients(grads: Any, rows: Any, positions: Tensor, operands: list[Tensor]) -> list[Tensor]:
        if not case.operands:
            return list(operators.encode_backward.kernel(*grads, positions, operands, name))
        return operators.encode_all_backward.kernel(
            list(grads), list(rows), positions, operands, True, True, False, name
        )

    operands = [*problem.operands.values()]
    part = [x[-1:] for x in gains], [x[-1:] for x in problem.sets[0]]
    with poisoned():
        began = time.perf_counter()
        got = gradients(*part, problem.positions, operands)
        device.wait()
        first = time.perf_counter() - began
    right = gradients(*([x.cpu() for x in xs] for xs in part), problem.positions.cpu(), [x.cpu() for x in operands])
    calls = [functools.partial(gradients, gains, rows, problem.positions, operands) for rows in problem.sets]
    errors = row_errors([x.cpu() for x in got], right)
    return {"first_call_seconds": first, **errors, **seconds_of(device, calls, budget)}


# ---- the host's time, the machine ----


def measure_calls(case: Case, loaded: Loaded, device: Device, budget: float) -> dict[str, Any]:
    """Seconds of the host for one call on one row."""
    x, y = (torch.randn(1, 1, 1, case.head_dim, device=device.kind).bfloat16() for _ in range(2))
    positions, stream = torch.zeros(1, 1, device=device.kind), device.stream()
    if case.kernel:
        encoding = Encoding(loaded.kernel(case.kernel)).to(device.kind)
        kernel = encoding.kernel
    q = x.clone().requires_grad_()

    def both() -> None:
        torch.autograd.grad(encoding(q, y, positions)[0], q, x)

    run = {
        "kernel.encode in place": lambda: kernel.encode(x, y, positions, in_place=True, stream=stream),
        "module": lambda: encoding(x, y, positions),
        "module, forward and backward": both,
        "torch: x * 2": lambda: x * 2,
    }[case.label]
    for _ in range(20):
        run()
    times = []
    for _ in range(5):
        device.wait()
        before = time.perf_counter()
        for _ in range(200):
            run()
        times.append((time.perf_counter() - before) / 200)
    device.wait()
    return {"seconds": statistics.median(times), "way": "host"}


def measure_machine(case: Case, loaded: Loaded, device: Device, budget: float) -> dict[str, Any]:
    if case.peer == "copy":
        size = 1 << 30 if device.is_gpu else 1 << 24
        seconds = copied(device, 2 * size, budget)
        return {"seconds": seconds, "gbs": 2 * size / seconds / 1e9}
    size = 8192 if device.is_gpu else 256
    a, b = (torch.randn(size, size, device=device.kind).bfloat16() for _ in range(2))
    out = torch.empty_like(a)
    result = seconds_of(device, [functools.partial(torch.mm, a, b, out=out)], budget)
    return {**result, "tflops": 2 * size**3 / result["seconds"] / 1e12}


MEASURES = {
    "machine": measure_machine, "attention": measure_attention, "backward": measure_attention,
    "decode": measure_attention, "rows": measure_rows, "row gradients": measure_row_gradients, "calls": measure_calls,
}  # fmt: skip
