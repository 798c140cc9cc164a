"""The program pegen, as it is in the package: `pegen SPEC.lua -o kernel.so`, `python -m pegen_kernels --help`."""
import os
import sys

from . import _native


def main() -> None:
    program = _native.program()
    try:
        os.execv(program, ["pegen", *sys.argv[1:]])
    except OSError as e:
        sys.exit(f"pegen: cannot run '{program}': {e.strerror}")


if __name__ == "__main__":
    main()
