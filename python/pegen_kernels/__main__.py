"""The program pegen, as it is in the package: `pegen SPEC.lua -o kernel.so`, `python -m pegen_kernels --help`; and the
commands that are Python's: `pegen explore`, `pegen plot`, `pegen compare`, `pegen lab`, `pegen conform` and
`pegen specs --config`."""
import importlib
import os
import sys

from . import _native, config

COMMANDS = {
    "explore": "explore",
    "plot": "explore",
    "compare": "explore",
    "lab": "lab",
    "conform": "conform",
}  # what each needs, which is also its folder


def main() -> None:
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        name = sys.argv[1]
        try:
            command = importlib.import_module(f".{COMMANDS[name]}.{name}", __package__)
            sys.exit(command.main(sys.argv[2:]))
        except ModuleNotFoundError as e:
            if not e.name or e.name.startswith(__package__):
                raise
            sys.exit(f"pegen {name}: needs the package '{e.name}': pip install 'pegen-kernels[{COMMANDS[name]}]'")
    if sys.argv[1:3] == ["specs", "--config"]:
        sys.exit(config.main(sys.argv[3:]))
    program = _native.program()
    try:
        os.execv(program, ["pegen", *sys.argv[1:]])
    except OSError as e:
        sys.exit(f"pegen: cannot run '{program}': {e.strerror}")


if __name__ == "__main__":
    main()
