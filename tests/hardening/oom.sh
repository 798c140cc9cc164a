#!/usr/bin/env bash
# oom.sh PROGRAM WORK COMMAND...: the whole program when memory runs out. For every allocation of pegen's own (but Lua's): it
# fails, then it and all that follow. The program must say so and end with 1 or 3, and both outputs stay as they were, until
# a number is not reached any more.
set -euo pipefail
program=$1 work=$2
shift 2
fail() { echo "oom.sh: $*: $(cat "$work/log")" >&2; exit 1; }
rm -rf "$work"
mkdir -p "$work"
for rest in "" 1; do
  for ((n = 1; ; n++)); do
    echo old >"$work/k.o"
    echo old >"$work/k.h"
    status=0
    env PEGEN_FAIL_ALLOC=$n ${rest:+PEGEN_FAIL_REST=1} "$program" "$@" -o "$work/k.o" --header "$work/k.h" -MF "$work/k.d" \
      >"$work/out" 2>"$work/log" || status=$?
    [ "$status" -lt 128 ] || fail "allocation $n${rest:+ and the rest}: ended by a signal ($status)"
    grep -q reached "$work/out" || break
    [ "$status" = 1 ] || [ "$status" = 3 ] || fail "allocation $n${rest:+ and the rest}: exit code $status"
    grep -qi "memory" "$work/log" || fail "allocation $n${rest:+ and the rest}: nothing about memory"
    [ "$(cat "$work/k.o" "$work/k.h")" = $'old\nold' ] || fail "allocation $n: an output was written"
    [ "$(ls "$work")" = $'k.h\nk.o\nlog\nout' ] || fail "allocation $n: left behind: $(ls "$work")"
  done
  [ "$status" = 0 ] || fail "without a failure: exit code $status"
  [ "$n" -gt 5 ] || fail "only $n allocations"
  rm -f "$work/k.d"
  echo "$((n - 1)) allocations${rest:+, each with all that follow}"
done
