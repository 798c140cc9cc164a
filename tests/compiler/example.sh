#!/usr/bin/env bash
# example.sh JIT FOLDER: examples/jit.c compiles, finds what it compiled, and says what is wrong.
set -euo pipefail
jit=$1 folder=$2 specs=$(realpath "$(dirname "$0")/../../specs")
rm -rf "$folder" && mkdir -p "$folder"
export XDG_CACHE_HOME=$folder
unset PEGEN
fail() { echo "$1"; exit 1; }
first=$("$jit" "$specs/geope3d.lua" head_dim=24 grid=2,3,4)
second=$("$jit" "$specs/geope3d.lua" head_dim=24 grid=2,3,4)
grep -q '^geope3d: .*, compiled in' <<<"$first" || fail "$first"
grep -q '^geope3d: .*, found in' <<<"$second" || fail "$second"
[ "$(sed 1d <<<"$first")" = "$(sed 1d <<<"$second")" ] || fail "not the same kernel: $first, $second"
read -r before after < <(sed -nE 's/length of all rows: ([0-9.]+) before, ([0-9.]+) after/\1 \2/p' <<<"$first")
awk -v a="$before" -v b="$after" 'BEGIN { exit !(a > 1 && (a - b) ^ 2 < 1e-8 * a * a) }' || fail "$first"
wrong=$("$jit" "$specs/geope3d.lua" head_dimm=24 2>&1) && fail "accepted: $wrong"
grep -q "no option 'head_dimm', did you mean 'head_dim'" <<<"$wrong" || fail "$wrong"
missing=$(PEGEN=$folder/none "$jit" "$specs/geope3d.lua" 2>&1) && fail "compiled by nothing: $missing"
grep -q "cannot run the compiler '$folder/none'" <<<"$missing" || fail "$missing"
