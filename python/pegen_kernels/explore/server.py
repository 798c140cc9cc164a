"""The workbench's server: answers the page that has its token, and nothing else."""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import hmac
import inspect
import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
from typing import Any, AsyncIterator, Awaitable, Callable, MutableMapping, Sequence

import anyio.to_thread
import vl_convert
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from .. import _native
from ..errors import ArgumentError, PegenError
from ..kernel import compile
from . import pictures, report
from .facts import Facts, explain
from .files import replace
from .jobs import Jobs
from .live import Descriptions, Pane, Watch, pane_of, vocabulary
from .words import Operands

_STATIC = pathlib.Path(__file__).with_name("static")
_STATE = 1 << 22  # bytes
_OPERAND = 1 << 28
_PANES = 12
_TABS = 12  # whose states are kept
_CARD_GRID = {1: (24,), 2: (9, 9), 3: (4, 4, 4)}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


_PARAMETERS = {*inspect.signature(compile).parameters, *inspect.signature(explain).parameters}


def _literal(value: str) -> str:
    """An option's value as Python has it."""
    if value in ("true", "false"):
        return value.title()
    return value if re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", value) else repr(value)


class Guard:
    """Lets through what bears the token, in its address, and comes from this server's own page or from a person."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    def _refusal(self, scope: Scope) -> str | None:
        heads = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if heads.get("host") not in self.hosts:
            return "this server has another name"
        if not hmac.compare_digest(scope["path"].split("/")[1].encode(), self.token.encode()):
            return "the token in the address is missing or another server's: pegen explore prints its address"
        if "origin" in heads and heads["origin"] != f"http://{heads['host']}":
            return "another origin asks"
        if heads.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "another site asks"
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        app: ASGIApp = PlainTextResponse(f"pegen explore: {refusal}\n", 403) if refusal else self.app

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in _HEADERS.items())]
            await send(message)

        await app(scope, receive, send_with_headers)


async def _body(request: Request, most: int) -> bytes:
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > most:
            raise ArgumentError(f"what was sent has more than {most} bytes")
    return bytes(found)


async def _json(request: Request) -> dict[str, Any]:
    try:
        found = json.loads(await _body(request, _STATE))
    except ValueError as e:
        raise ArgumentError(f"what was sent is no JSON: {e}") from e
    if not isinstance(found, dict):
        raise ArgumentError("what was sent is no JSON object")
    return found


def _panes(given: dict[str, Any]) -> list[Pane]:
    found = given.get("panes")
    if not isinstance(found, list) or not 0 < len(found) <= _PANES:
        raise ArgumentError(f"panes: expected one to {_PANES} descriptions")
    panes = [pane_of(pane) for pane in found]
    if len({pane.label for pane in panes}) < len(panes):
        raise ArgumentError("panes: two have one label")
    return panes


def _keys(given: dict[str, Any]) -> list[str]:
    found = given.get("pictures", [])
    if not isinstance(found, list) or not all(key in pictures.PICTURES for key in found):
        raise ArgumentError(f"pictures: expected some of {', '.join(pictures.PICTURES)}")
    return found


def _told(facts: Facts, everything: Facts) -> dict[str, Any]:
    """What the page's controls are made of. everything: of all heads and blocks."""
    data = facts.data
    heads = max((len(x) for x in (everything.equal, everything.bias, everything.phases) if x is not None), default=1)
    blocks = everything.phases.shape[1] if everything.phases is not None else 0
    return {"name": data["name"], "doc": data["doc"], "settings": data["settings"], "options": data["options"],
            "axes": facts.axes, "grid": facts.grid, "heads": heads, "blocks": blocks, "role": data["role"],
            "operands": [{**{key: operand[key] for key in ("name", "doc", "units", "shape")},
                          "from": facts.operands.get(operand["name"], "")}
                         for operand in data["operands"]]}  # fmt: skip


class Workbench:
    """state: a file that the states of tabs are kept in. cards: a folder that keeps the gallery's pictures, and
    Vega."""

    def __init__(self, folder: pathlib.Path, files: dict[str, str], state: pathlib.Path, cards: pathlib.Path) -> None:
        self.descriptions = Descriptions(folder, files)
        self.folder, self.state, self.cards = folder, state, cards
        self.jobs: Jobs | None = None
        self.watches: dict[str, Watch] = {}  # of tabs, and of the gallery's cards

    # ---- what is seen ----

    def _draw(self, panes: Sequence[Pane], keys: Sequence[str], watch: Watch) -> dict[str, Any]:
        found: list[Any] = []
        rotors = not pictures.OF_ROTORS.isdisjoint(keys)
        for pane in panes:
            try:
                found.append(self.descriptions.facts(pane, watch, rotors))
            except PegenError as e:
                found.append(e)
        good = [f for f in found if isinstance(f, Facts)]
        answers = []
        for pane, f in zip(panes, found):
            if isinstance(f, Facts):
                whole = self.descriptions.facts(dataclasses.replace(pane, head=None, block=None), watch, rotors)
                warnings = [self.descriptions.message_of(pane, text) for text in f.warnings]
                answers.append({"label": pane.label, "facts": _told(f, whole), "warnings": warnings})
            else:
                answers.append({"label": pane.label, "error": self.descriptions.message_of(pane, f)})
        drawn = []
        for picture in pictures.all_pictures(good, keys) if good else ():
            if watch.cancelled:
                break
            charts = {label: vars(chart) for label, chart in picture.charts.items()}
            drawn.append({"key": picture.key, "title": picture.title, "text": picture.text, "charts": charts,
                          "missing": picture.missing})  # fmt: skip
        return {"panes": answers, "pictures": drawn, "table": report.table_of(good) if good else [],
                "labels": [f.label for f in good]}  # fmt: skip

    async def draw(self, request: Request) -> Response:
        given = await _json(request)
        panes, keys, tab = _panes(given), _keys(given), str(given.get("tab", ""))
        watch = Watch(given["asked"] if isinstance(given.get("asked"), int) else 0)
        other = self.watches.get(tab)
        if other and other.number > watch.number:  # a question may come in before an older one
            return JSONResponse({"dropped": True})
        self.watches[tab] = watch
        if other:
            other.cancel()
        try:
            answer = await run_in_threadpool(self._draw, panes, keys, watch)
        finally:
            if self.watches.get(tab) is watch:
                del self.watches[tab]
        return JSONResponse({"dropped": True} if watch.cancelled else answer)

    # ---- the start page ----

    @functools.cached_property
    def _gallery(self) -> list[dict[str, Any]]:
        done = subprocess.run([_native.program(), "specs", "--json"], capture_output=True, text=True)
        found = json.loads(done.stdout) if done.returncode == 0 else []
        return [{key: spec[key] for key in ("name", "doc", "axes", "models")} for spec in found]

    def _start(self, tab: str) -> dict[str, Any]:
        tabs = self._tabs()
        mine = tabs.get(tab) or max(tabs.values(), key=lambda kept: kept["at"], default=None)
        return {"gallery": self._gallery, "given": list(self.descriptions.files), "vocabulary": vocabulary(),
                "pictures": list(pictures.PICTURES), "state": mine and mine["state"], "own": tab in tabs}  # fmt: skip

    async def start(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._start, request.query_params.get("tab", "")))

    async def source(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        path = self.descriptions.source(name)
        text = path.read_text()
        return JSONResponse({"name": path.stem, "origin": name, "text": text})

    def _card(self, name: str) -> dict[str, Any]:
        """Drawn once for each version of the description and of the package."""
        path = self.descriptions.source(name)
        digest = f"{path.stem}-{hash_of(path)}"
        kept = self.cards / f"{digest}.json"
        if kept.is_file():
            return json.loads(kept.read_text())
        axes = {spec["name"]: len(spec["axes"]) for spec in self._gallery}.get(name)
        watch = self.watches.setdefault(" cards", Watch())
        facts = explain(path, grid=_CARD_GRID.get(axes or 0), label=name, watch=watch)
        drawn = next(iter(pictures.all_pictures([facts], ("map", "bias", "decay"))), None)
        properties = {key: facts.data["properties"][key]["holds"] for key in report.PROPERTIES}
        card = {"group": facts.data["group"], "properties": properties,
                "chart": drawn and vars(drawn.charts[name])}  # fmt: skip
        self._cache(kept, json.dumps(card))
        return card

    @staticmethod
    def _cache(kept: pathlib.Path, text: str) -> None:
        with contextlib.suppress(PegenError, OSError):  # a cache that cannot be written is none
            kept.parent.mkdir(parents=True, exist_ok=True)
            replace(kept, text.encode())

    async def card(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        return JSONResponse(await run_in_threadpool(self._card, name))

    def _vega(self) -> str:
        """Made once for each version of the library: that takes longer than all else of a page."""
        kept = self.cards / f"vega-{vl_convert.__version__}.js"
        if kept.is_file():
            return kept.read_text()
        text = vl_convert.javascript_bundle()
        self._cache(kept, text)
        return text

    async def vega(self, request: Request) -> Response:
        return Response(await run_in_threadpool(self._vega), media_type="text/javascript; charset=utf-8")

    # ---- states ----

    def _tabs(self) -> dict[str, Any]:
        try:
            tabs = json.loads(self.state.read_text())["tabs"]
            return {tab: kept for tab, kept in tabs.items() if isinstance(kept["at"], (int, float))}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    async def keep(self, request: Request) -> Response:
        given = await _json(request)
        tabs = self._tabs()
        at = max((kept["at"] for kept in tabs.values()), default=0) + 1
        tabs[str(given.get("tab", ""))[:40]] = {"at": at, "state": given.get("state")}
        kept = dict(sorted(tabs.items(), key=lambda pair: pair[1]["at"])[-_TABS:])
        self.state.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace(self.state, json.dumps({"tabs": kept}).encode())
        os.chmod(self.state, 0o600)
        return JSONResponse({})

    async def operand(self, request: Request) -> Response:
        ending = pathlib.PurePath(request.query_params.get("name", "")).suffix
        content = await _body(request, _OPERAND)
        return JSONResponse({"file": self.descriptions.keep_operand(ending, content)})

    # ---- what is taken away ----

    def _words(self, pane: Pane) -> str:
        unchanged = self.descriptions.is_unchanged(pane)
        spec = self.descriptions.files.get(pane.origin, pane.origin) if unchanged else f"{pane.name}.lua"
        return ",".join([spec, *(f"{name}={value}" for name, value in pane.options)])

    def _operands(self, panes: Sequence[Pane]) -> tuple[Operands, list[str]]:
        """As the command line has them, and lines of Python that write the files of those with a deviation."""
        files, tensors, drawn, checkpoint = {}, {}, [], None
        for pane, (name, (kind, word, called)) in ((pane, given) for pane in panes for given in pane.operands):
            if kind.endswith(".safetensors"):
                checkpoint, tensors[name] = called, word or name
                continue
            files[name] = called
            if kind == "deviation":
                shape = next(o["shape"] for o in self.descriptions.facts(pane).data["operands"] if o["name"] == name)
                drawn.append(
                    f"numpy.save({called!r}, numpy.random.default_rng({pane.seed or 0}).normal(0, {word}, {shape}))"
                )
        return Operands(files, checkpoint, tensors, panes[0].seed), drawn

    def commands(self, panes: Sequence[Pane], keys: Sequence[str]) -> dict[str, str]:
        """The command line and the lines of Python that do the same."""
        first = panes[0]
        operands, drawn = self._operands(panes)
        grid = ["--grid", ",".join(map(str, first.grid))] if first.grid else []
        only = ["--only", ",".join(keys)] if keys else []
        plot = ["pegen", "plot", *map(self._words, panes), *grid, *operands.words(), *only, "-o", "report.html"]
        spec = self._words(first).split(",")[0]
        define = [word for name, value in first.options for word in ("-D", f"{name}={value}")]
        lines = [shlex.join(["python3", "-c", f"import numpy; {line}"]) for line in drawn]
        lines += [shlex.join(plot), shlex.join(["pegen", spec, *define, "-o", f"{first.name}.so"])]
        options = dict(first.options)
        plain = {name: value for name, value in options.items() if name not in _PARAMETERS}
        given = "".join(f", {name}={_literal(value)}" for name, value in plain.items())
        if len(plain) < len(options):
            given += f", defines={dict(options.items() - plain.items())!r}"
        operands, drawn = self._operands(panes[:1])
        shown = {"grid": first.grid, "operands": operands.files, "checkpoint": operands.checkpoint,
                 "tensors": operands.tensors, "seed": operands.seed}  # fmt: skip
        facts = "".join(f", {name}={value!r}" for name, value in shown.items() if value not in (None, {}))
        python = (
            f"{'import numpy' if drawn else ''}\n"
            "import pegen_kernels as pk\n"
            "from pegen_kernels.explore import explain\n\n"
            f"{''.join(line + chr(10) for line in drawn)}"
            f"kernel = pk.compile({spec!r}{given})\n"
            "q, k = kernel.encode(q, k, positions)  # [B,H,N,D], positions [N,axes]\n"
            f"facts = explain({spec!r}{given}{facts})  # the pictures' numbers\n"
        )
        return {"command": "\n".join(lines) + "\n", "python": python.lstrip()}

    def _export(self, kind: str, panes: Sequence[Pane], keys: Sequence[str]) -> bytes:
        if kind in ("command", "python"):
            return self.commands(panes, keys)[kind].encode()
        if kind not in ("html", "svg", "png"):
            raise ArgumentError(f"export '{kind}': expected command, python, html, svg or png")
        facts = [self.descriptions.facts(pane) for pane in panes]
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            file = pathlib.Path(folder) / f"report.{kind}"
            report.write(file, facts, keys)
            return file.read_bytes()

    async def export(self, request: Request) -> Response:
        given = await _json(request)
        content = await run_in_threadpool(self._export, str(given.get("kind")), _panes(given), _keys(given))
        return Response(content, media_type="application/octet-stream")

    # ---- jobs ----

    async def list_jobs(self, request: Request) -> Response:
        assert self.jobs
        return JSONResponse({"jobs": [job.told() for job in self.jobs.all.values()]})

    async def start_job(self, request: Request) -> Response:
        assert self.jobs
        given = await _json(request)
        panes = _panes(given)
        facts = [await run_in_threadpool(self.descriptions.facts, pane) for pane in panes[:2]]
        return JSONResponse(self.jobs.start(str(given.get("kind")), panes, facts, str(given.get("place"))[:80]).told())

    async def stop_job(self, request: Request) -> Response:
        assert self.jobs
        self.jobs.stop(int(request.path_params["number"]))
        return JSONResponse({})


def hash_of(path: pathlib.Path) -> str:
    """The description and the program that reads it, as one word."""
    program = os.stat(_native.program())
    text = [path.read_bytes(), repr((program.st_size, program.st_mtime_ns)).encode()]
    return hashlib.sha256(b"\0".join(text)).hexdigest()[:24]


def _refused(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400)


async def _page(request: Request) -> Response:
    return FileResponse(_STATIC / "index.html", media_type="text/html; charset=utf-8")


def application(bench: Workbench, token: str, port: int) -> ASGIApp:
    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = 8
        bench.jobs = Jobs(bench.descriptions)
        try:
            yield
        finally:
            for watch in bench.watches.values():
                watch.cancel()
            bench.descriptions.ahead.close()
            await bench.jobs.close()

    Handler = Callable[[Request], Awaitable[Response]]
    posts: dict[str, Handler] = {
        "draw": bench.draw, "state": bench.keep, "operand": bench.operand, "export": bench.export,
        "jobs": bench.start_job,
    }  # fmt: skip
    gets: dict[str, Handler] = {
        "": _page, "vega.js": bench.vega, "start": bench.start, "source": bench.source, "card": bench.card,
        "jobs": bench.list_jobs,
    }  # fmt: skip
    routes = [Route(f"/{name}", answer) for name, answer in gets.items()]
    routes += [Route(f"/{name}", answer, methods=["POST"]) for name, answer in posts.items()]
    routes.append(Route("/jobs/{number:int}", bench.stop_job, methods=["DELETE"]))
    app = Starlette(
        routes=[Mount(f"/{token}", routes=[*routes, Mount("/static", app=StaticFiles(directory=_STATIC))])],
        exception_handlers={PegenError: _refused},
        lifespan=life,
    )
    return Guard(app, token, port)
