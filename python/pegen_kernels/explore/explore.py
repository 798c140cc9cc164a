"""`pegen explore`: the workbench, a page that a server of this machine shows in a browser."""
from __future__ import annotations

import argparse
import os
import pathlib
import secrets
import socket
import sys
import tempfile
import webbrowser
from typing import Sequence

import uvicorn

from ..errors import PegenError
from ..request import request_of
from .words import described


def _folder(variable: str, otherwise: str) -> pathlib.Path:
    return pathlib.Path(os.environ.get(variable) or pathlib.Path.home() / otherwise) / "pegen"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pegen explore",
        description="Opens the workbench in a browser: a description as it is typed, its options as controls, pictures"
        " of what it does, several side by side; check, bench and a small study in the background. The server is on"
        " 127.0.0.1 alone and answers only to the address that it prints. Ctrl-C ends it.",
    )
    help = "a description, or the name of a stock one, with options behind it: rope_axial,base=10; without one, the"
    parser.add_argument("spec", nargs="*", metavar="SPEC", help=f"{help} gallery; or an address of an earlier state")
    parser.add_argument("--port", type=int, default=0, help="default: one that is free")
    parser.add_argument("--no-browser", action="store_true", help="print the address alone")
    parser.add_argument("--state", metavar="FILE", help="default: explore.json in $XDG_STATE_HOME/pegen")
    return parser


def _opened(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[dict[str, str], str]:
    """Files of the command line by the names of their panes, and what follows the address."""
    files: dict[str, str] = {}
    wanted = []
    for word in words:
        if word.startswith("http://127.0.0.1:") and "#" in word:
            return {}, "#" + word.partition("#")[2]
        spec, own, _ = described(parser, word)
        file = request_of(spec, {}).file
        name = pathlib.Path(str(file)).stem
        if os.path.exists(spec):
            while name in files and files[name] != os.path.abspath(spec):
                name += "_"
            files[name] = os.path.abspath(spec)
        wanted.append(",".join([name, *own]))
    return files, "#open=" + ";".join(wanted) if wanted else ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        files, fragment = _opened(parser, given.spec)
    except PegenError as e:
        print(f"pegen explore: {e}", file=sys.stderr)
        return 1
    from .server import Workbench, application  # what follows takes a second

    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind(("127.0.0.1", given.port))
        door.listen()  # before the address is told: who asks at once waits
    except (OSError, OverflowError) as e:
        print(f"pegen explore: --port {given.port}: {e}", file=sys.stderr)
        return 1
    port, token = door.getsockname()[1], secrets.token_urlsafe(24)
    state = pathlib.Path(given.state) if given.state else _folder("XDG_STATE_HOME", ".local/state") / "explore.json"
    address = f"http://127.0.0.1:{port}/{token}/{fragment}"
    with tempfile.TemporaryDirectory(prefix="pegen-explore-") as folder:
        bench = Workbench(pathlib.Path(folder), files, state, _folder("XDG_CACHE_HOME", ".cache") / "cards")
        config = uvicorn.Config(
            application(bench, token, port), log_level="critical", access_log=False, server_header=False, ws="none",
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        print(f"pegen explore: {address}\nCtrl-C ends it.", flush=True)
        if not given.no_browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            webbrowser.open(address)
        try:
            uvicorn.Server(config).run(sockets=[door])
        except KeyboardInterrupt:
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
