#!/usr/bin/env bash
# without.sh WITHOUT PEGEN SPEC WORK: where a description cannot be confined it is refused before its first line runs,
# outputs stay, and the way out is named; with --trust-spec it compiles.
set -euo pipefail
without=$1 pegen=$2 spec=$3 work=$4
fail() { echo "without.sh: $*" >&2; exit 1; }
rm -rf "$work"
mkdir -p "$work"
cd "$work"

# refused TEXT COMMAND...: the command runs pegen where something lacks, which the text names.
refused() {
  local text=$1 status=0
  shift
  echo "old k.o" >k.o
  "$@" "$spec" -o k.o >out 2>log || status=$?
  [ "$status" = 1 ] && [ "$(wc -l <log)" = 1 ] && [ ! -s out ] || fail "exit code $status: $(cat log out)"
  grep -q "error: refused: this system cannot confine .*($text); --trust-spec" log || fail "$(cat log)"
  [ "$(cat k.o)" = "old k.o" ] || fail "the output was written"
}
refused "its kernel has no seccomp" "$without" seccomp "$pegen"
refused "its resources cannot be limited" "$without" limits "$pegen"
# Where a user may have a /proc of its own, there is none.
if unshare -rm mount -t tmpfs none /proc 2>unshare.log; then
  refused "there is no /proc to see by how much memory it has" \
    unshare -rm sh -c 'mount -t tmpfs none /proc && exec "$0" "$@"' "$pegen"
else
  echo "no namespaces: $(cat unshare.log)"
fi
"$without" seccomp "$pegen" "$spec" --trust-spec -o k.o --target x86-64-v3 --dtype f32
"$pegen" "$spec" -o usual.o --target x86-64-v3 --dtype f32
cmp -s k.o usual.o || fail "--trust-spec makes another object"
# A bound of the caller's own that is lower than ours stays, and is no reason to refuse.
(ulimit -t 5 && ulimit -n 64 && "$pegen" "$spec" -o k.o --target x86-64-v3 --dtype f32) || fail "lower limits"
echo ok
