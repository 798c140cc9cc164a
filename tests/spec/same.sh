#!/usr/bin/env bash
# same.sh PEGEN SOURCE WORK MEMORY: the same description gives the same bytes. Five runs of specs that look for what
# differs between runs; every shipped spec in its process and in this one; and what -MD names. MEMORY: KiB of addresses that
# a description in search of memory may make pegen use.
set -euo pipefail
pegen=$1 source=$2 work=$3 memory=$4
fail() { echo "same.sh: $*" >&2; exit 1; }
rm -rf "$work"
mkdir -p "$work"
cd "$work"
for spec in tries hostile; do
  for run in 1 2 3 4 5; do
    "$pegen" "$source/tests/spec/good/$spec.lua" -o "$run.ll" --header "$run.h" --target x86-64-v3 --dtype f32 -O0
    cmp "$run.ll" 1.ll && cmp "$run.h" 1.h || fail "$spec: run $run differs"
  done
done
for spec in "$source"/specs/*.lua; do
  "$pegen" "$spec" --emit expr -o isolated.expr -MF isolated.d
  "$pegen" "$spec" --trust-spec --emit expr -o isolated.expr.trusted -MF trusted.d
  cmp isolated.expr isolated.expr.trusted || fail "$spec: expressions differ"
  diff <(sed 1d isolated.d) <(sed 1d trusted.d) || fail "$spec: -MD differs"
  grep -qF "$(basename "$spec")" isolated.d && grep -q pegen.lua isolated.d || fail "$spec: -MD lacks files"
done
cp "$source/specs/rope.lua" spec.lua
"$pegen" spec.lua --emit llvm --target x86-64-v3 --dtype f32 -o isolated.ll
"$pegen" spec.lua --emit llvm --target x86-64-v3 --dtype f32 -o trusted.ll --trust-spec
cmp isolated.ll trusted.ll
# Limits that need large files: each asked for again and again, in a row that pcall hides.
head -c 1100000 /dev/zero | tr '\0' 'x' >large.lua
{ echo '--[['; head -c 1000000 /dev/zero | tr '\0' 'x'; echo ']] error "x"'; } >full.lua
for name in large full; do
  echo "for _ = 1, 1e6 do pcall(require, '$name') end" >again.lua
  (ulimit -v "$memory"; "$pegen" again.lua --emit expr -o again.expr 2>log && fail "$name: accepted") || true
  grep -Eq "^again.lua:1: error: (out of memory: a spec may use|the spec must return)" log || fail "$name: $(cat log)"
done
echo ok
