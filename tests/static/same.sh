#!/usr/bin/env bash
# same.sh SHARED STATIC: two builds of pegen. The second writes the same bytes, of every kind of kernel and machine, runs
# what it writes (check), and needs glibc of 2018 alone.
set -euo pipefail
shared=$(realpath "$1") static=$(realpath "$2")
here=$(realpath "$(dirname "$0")")
cd "$here/../../specs"
"$here/needs.sh" "$static"

same() { # ARGUMENTS...
  local digests
  digests=$(for pegen in "$shared" "$static"; do "$pegen" "$@" -o - | sha256sum; done | uniq | wc -l)
  [ "$digests" = 1 ] || { echo "differs: pegen $*"; exit 1; }
}
for spec in geope3d liere pape attention sincos string_cayley; do
  same $spec.lua --emit obj --dtype bf16
  same $spec.lua --emit obj --target aarch64 --dtype f32
done
for spec in geope3d liere pape attention string_cayley; do same $spec.lua --emit ptx --dtype bf16; done
same geope3d.lua --emit obj --target x86-64-v3,sm_90
same geope3d.lua --emit shared --target x86-64-v3,sm_90
same care.lua --emit shared --target aarch64
"$static" check rope.lua --target native,sm_80 >/dev/null
