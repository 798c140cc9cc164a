#!/usr/bin/env bash
# assemble.sh PEGEN LLVM-MC CHIP DTYPES SPEC[:NAME=VALUE...]...: assembly of every spec for an AMD GPU assembles. By its
# metadata no entry spills a vector register (scalar ones spill into vector registers), and all take blocks of 128
# threads. Gradients of keys alone may spill some, which their loops leave alone; more on gfx1100, which has half as
# many registers. No other entry has an instruction that reads or writes a stack; bytes of one that are reserved and
# that nothing uses (private_segment_fixed_size of lookhere's narrow tiles) do no harm.
set -euo pipefail
pegen=$1 assembler=$2 chip=$3 types=$4
shift 4
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
failed=0
fail() { echo "$*: FAILED" && failed=1; }
count() { grep -cE "$1" "$folder/k.s" || true; }
for spec; do
  IFS=: read -ra part <<<"$spec"
  options=()
  for option in "${part[@]:1}"; do options+=(-D "$option"); done
  name="$(basename "${part[0]}" .lua) ${part[*]:1}"
  "$pegen" "${part[0]}" "${options[@]}" -o "$folder/k.s" --target "$chip" --dtype "$types" ||
    { fail "$name" && continue; }
  "$assembler" -triple=amdgcn-amd-amdhsa -mcpu="$chip" -filetype=obj "$folder/k.s" -o "$folder/k.o" ||
    { fail "$name" && continue; }
  entries=$(count '^\s*\.amdhsa_kernel ')
  [ "$entries" -gt 0 ] || fail "$name has no entries"
  [ "$(count '^ *\.max_flat_workgroup_size: *128$')" = "$entries" ] || fail "$name: not all entries take 128 threads"
  most=32 && [ "$chip" != gfx1100 ] || most=256
  awk -v most=$most '$1 == ".name:" { of = $2; limit = of ~ /_attention_backward_keys/ ? most : 0 }
    $1 == ".vgpr_spill_count:" && $2 > limit { print of, $2 }' "$folder/k.s" |
    grep . && fail "$name: the above spill vector registers"
  [ "$(count '^ *\.vgpr_spill_count: *[0-9]+$')" = "$entries" ] || fail "$name: not all entries say what they spill"
  # float64 only where a gradient is stored as one (the entries that end sums over tokens, pairs and chunks), and where
  # attention subtracts positions, once a token of a tile
  stores='_\(encode_gradient_\(gather\|positions\|matrices\)\|attention_[a-z0-9_]*\)'
  sed "/^[A-Za-z0-9_]*$stores:/,/^\.Lfunc_end/d" "$folder/k.s" >"$folder/most.s"
  sed "/^[A-Za-z0-9_]*_attention_backward_keys[A-Za-z0-9_]*:/,/^\.Lfunc_end/d" "$folder/k.s" >"$folder/others.s"
  grep -nE '^\s*(s_swappc|scratch_|buffer_(load|store))' "$folder/others.s" &&
    fail "$name: the above has no place there"
  grep -nE '^\s*v_[a-z_]*f64' "$folder/most.s" && fail "$name: the above has no place there"
  registers=$(awk '$1 == ".vgpr_count:" && $2 > most { most = $2 } END { print most }' "$folder/k.s")
  echo "$name: $entries entries, most vector registers $registers"
done
exit $failed
