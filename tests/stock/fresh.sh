#!/usr/bin/env bash
# fresh.sh PEGEN SOURCE KERNELS: generated/ of SOURCE holds, byte for byte, what PEGEN writes now, and its headers are those
# that were written together with the library's objects (in KERNELS).
set -euo pipefail
pegen=$1 source=$2 kernels=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$source/scripts/generate" "$pegen" "$work"
if ! diff -rq --exclude CMakeLists.txt "$source/generated" "$work"; then
  echo "generated/ is not what this pegen writes: run   cmake --build build --target generated-update   and commit it"
  exit 1
fi
for header in "$work"/include/pegen/kernels/*.h; do cmp "$header" "$kernels/$(basename "$header")"; done
echo "$(find "$work" -type f | wc -l) files, $(du -sk "$work" | cut -f1) KiB: as committed"
