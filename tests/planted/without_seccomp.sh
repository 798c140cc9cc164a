#!/usr/bin/env bash
# without_seccomp.sh WITHOUT_SECCOMP PEGEN SPEC WORK: where a description cannot be confined it is refused before its first
# line runs, outputs stay, and the way out is named; with --trust-spec it compiles.
set -euo pipefail
without=$1 pegen=$2 spec=$3 work=$4
fail() { echo "without_seccomp.sh: $*" >&2; exit 1; }
rm -rf "$work"
mkdir -p "$work"
cd "$work"
echo "old k.o" >k.o
status=0
"$without" "$pegen" "$spec" -o k.o >out 2>log || status=$?
[ "$status" = 1 ] && [ "$(wc -l <log)" = 1 ] && [ ! -s out ] || fail "exit code $status: $(cat log out)"
grep -q 'error: refused: this system cannot confine .*(its kernel has no seccomp); --trust-spec' log || fail "$(cat log)"
[ "$(cat k.o)" = "old k.o" ] || fail "the output was written"
"$without" "$pegen" "$spec" --trust-spec -o k.o --target x86-64-v3 --dtype f32
"$pegen" "$spec" -o usual.o --target x86-64-v3 --dtype f32
cmp -s k.o usual.o || fail "--trust-spec makes another object"
echo ok
