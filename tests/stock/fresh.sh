#!/usr/bin/env bash
# fresh.sh PEGEN SOURCE KERNELS NM: generated/ of SOURCE holds, byte for byte, what PEGEN writes now, and its headers are
# those that were written together with the library's objects (in KERNELS), which need no symbol from outside.
set -euo pipefail
pegen=$1 source=$2 kernels=$3 nm=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$source/scripts/generate" "$pegen" "$work"
if ! diff -rq --exclude CMakeLists.txt --exclude stock_specs.cmake --exclude waiting "$source/generated" "$work"; then
  echo "generated/ is not what this pegen writes: run   cmake --build build --target generated-update   and commit it"
  exit 1
fi
unknown=$("$nm" -u "$kernels"/*.o | awk 'NF && !/:$/')
[ -z "$unknown" ] || { echo "objects need symbols from outside: $unknown"; exit 1; }
for header in "$work"/include/pegen/kernels/*.h; do cmp "$header" "$kernels/$(basename "$header")"; done
while read -r name _; do
  case $name in "#"* | "") continue ;; esac
  spec=$(find "$source/specs" -name "$name.lua")
  [ -n "$spec" ] || { echo "generated/waiting: there is no description '$name'"; exit 1; }
  if "$pegen" "$spec" -o "$work/waiting.o" 2>/dev/null; then echo "'$name' compiles: take it out of generated/waiting"; exit 1; fi
done <"$source/generated/waiting"
echo "$(find "$work" -type f | wc -l) files, $(du -sk "$work" | cut -f1) KiB: as committed"
