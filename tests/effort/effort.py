#!/usr/bin/env python3
"""effort.py PEGEN [--print]: what compiling every description costs, counted where it is the same on every machine.

A compilation takes a tenth of a second and some 20 microseconds for each instruction of LLVM IR in the object, most
of them in LLVM's code generator. So the limit of .49 s for a description with its own options is 19500 instructions
(15500 before attention had dot products of bfloat16), all processors' versions and number types together, without
gradients. Each has a ceiling of its own a fifth above what it was at when this was written, so that it does not creep
up. A change that is worth more code raises it here; --print writes the table anew. With gradients, as by default, a
description takes at most 2.5 times what it takes without, a network 3 times. Time is what BEFORE instructions take and
those of the object: of seven descriptions that said what was measured to 5 %. Networks of biases (fire, sandwich) have
lines, too: their sums are loops, and they cost no more than a slope does.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

MOST = 19500
BEFORE = 1800
MOST_TIMES = 2.5
MOST_OF_NETWORKS = 3  # whose gradients have loops of their own
HERE = os.path.dirname(os.path.abspath(__file__))
SPECS = os.path.join(HERE, "..", "..", "specs")
CEILINGS = os.path.join(HERE, "ceilings.txt")
INSTRUCTION = re.compile(r"^  \S")  # labels and the driver's assembly begin otherwise


def most(case):
    return MOST if " " not in case else 2 * MOST


def instructions(pegen, case, gradients=False):
    name, *options = case.split()
    options += [] if gradients else ["--no-grad"]
    command = [pegen, os.path.join(SPECS, name + ".lua"), *options, "--emit", "llvm", "-o", "-"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    inside, count = False, 0
    for line in text.splitlines():
        if line.startswith("define"):
            inside = True
        elif line == "}":
            inside = False
        elif inside and INSTRUCTION.match(line):
            count += 1
    return count


def main():
    pegen = sys.argv[1]
    ceilings = {}
    with open(CEILINGS, encoding="utf-8") as file:
        for line in file:
            ceiling, case = line.split(maxsplit=1)
            ceilings[case.strip()] = int(ceiling)
    described = {name[:-4] for name in os.listdir(SPECS) if name.endswith(".lua")}
    missing = described - {case.split()[0] for case in ceilings}
    with ThreadPoolExecutor(2) as pool:
        counts = dict(zip(ceilings, pool.map(lambda case: instructions(pegen, case), ceilings)))
    if "--print" in sys.argv:
        for case, count in counts.items():
            print(f"{min(most(case), -(-count * 6 // 5 // 100) * 100):6} {case}")
        return 0
    failed = 0
    for case, count in counts.items():
        ceiling = min(ceilings[case], most(case))
        if not 1000 <= count <= ceiling:
            print(f"{case}: {count} instructions, expected 1000 to {ceiling}")
            failed = 1
    own = [case for case in counts if " " not in case]
    with ThreadPoolExecutor(2) as pool:
        with_gradients = dict(zip(own, pool.map(lambda case: instructions(pegen, case, True), own)))
    for case, count in with_gradients.items():
        times = (BEFORE + count) / (BEFORE + counts[case])
        limit = MOST_TIMES if case in described else MOST_OF_NETWORKS
        if not 1 <= times <= limit:
            print(f"{case}: {times:.2f} times as long with gradients ({count} instructions), over {limit}")
            failed = 1
    for name in sorted(missing):
        print(f"{name}: no line in {CEILINGS}")
        failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
