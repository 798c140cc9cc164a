#!/bin/sh
# assemble.sh PEGEN PTXAS CHIP SPEC[:NAME=VALUE...] ...: every spec's PTX through ptxas. Exit 77: there is no ptxas, or it
# does not know the chip. A spec that is refused has failed. In the environment, DTYPES: of --dtype; PTXAS_LEVEL: of -O.
# At a level below 3 the text must assemble, no more: registers are not assigned as they will be.
pegen=$1 ptxas=$2 chip=$3
shift 3
[ -x "$ptxas" ] || { echo "skipped: no ptxas on this machine"; exit 77; }
"$ptxas" --help | grep -q "'$chip'" || { echo "skipped: this ptxas does not know $chip"; exit 77; }
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
failed=0
fail() { echo "$name: FAILED$1"; failed=1; }
for spec; do
  options=$(echo "$spec" | cut -s -d: -f2- | sed 's/\([^:]*\):*/ -D \1/g')
  name=$(basename "${spec%%:*}" .lua)$options
  "$pegen" "${spec%%:*}" $options ${DTYPES:+--dtype "$DTYPES"} -o "$folder/k.ptx" --target "$chip" 2>"$folder/log" ||
    { cat "$folder/log"; fail; continue; }
  "$ptxas" -arch="$chip" -O${PTXAS_LEVEL:=3} -v "$folder/k.ptx" -o "$folder/k.cubin" 2>"$folder/log" || { cat "$folder/log"; fail; continue; }
  entries=$(grep -c '^\.visible \.entry' "$folder/k.ptx")
  # Gradients of attention whose rows are so long that a thread has all registers may spill the last few, and so
  # may those of exponentials of 8 and 16 channels that differ by head: tiles of three matrices, and all that is the item's.
  # On chips of 10.0 and later gradients behind a change of basis may keep there what is known before the loop over
  # tokens and read once in a pass of it (not in the loops inside).
  # Attention over three axes may spill a few, since a coordinate has three parts.
  # On tensor cores sums and weights take all registers that a thread may have. What each entry spills today is a row by
  # its work and head_dim, so that more is noticed; a head_dim that is not there may spill nothing.
  clean=$(awk -v name="$name" -v chip="$chip" '
    BEGIN {
      tensor["forward 64"] = 152; tensor["queries 64"] = 264; tensor["keys 64"] = 468
      tensor["keys 64 gains"] = 900 # beside rows, what operands and coordinates gain
      tensor["keys 24 gains"] = 512; tensor["queries 24 gains"] = 56
      tensor["keys 33 gains"] = 224
      tensor["keys 256 gains"] = 288; tensor["queries 256 gains"] = 96
      tensor["queries 256"] = 48; tensor["keys 256"] = 48
      tensor["forward 128"] = 96; tensor["queries 128"] = 1040; tensor["keys 128"] = 544
      # In float32 the walk over rows, where sums are not finite, keeps some of a long row there.
      simt["keys 24"] = 104; simt["keys 33"] = 88; simt["keys 64"] = 176; simt["queries 80"] = 256; simt["keys 80"] = 72
      simt["queries 128"] = 880; simt["keys 128"] = 280
      simt["forward 256"] = 192; simt["queries 256"] = 2320; simt["keys 256"] = 2240
      # More where a bias is a polynomial, whose columns are made beside the products.
      columns["keys 24"] = 48; columns["forward 33"] = 16
      columns["forward 80"] = 124; columns["queries 80"] = 148; columns["keys 80"] = 328; columns["forward 128"] = 256
      head_dim = match(name, /head_dim=[0-9]+/) ? substr(name, RSTART + 9, RLENGTH - 9) : 64 }
    /Function properties for/ {
      few = /_attention_backward_/ ? 64 : /_attention_/ ? 32 : 0
      if (/_(mma|simt)$/)
        work = (/_backward_queries_/ ? "queries " : /_backward_keys_/ ? "keys " : "forward ") head_dim
      if (/_simt/ && simt[work] > few) few = simt[work]
      if (/_mma$/) {
        few = tensor[work] + 0
        if (/_gains_/ && tensor[work " gains"] > few) few = tensor[work " gains"]
        if (name ~ /role=pairwise/ && columns[work] > few) few = columns[work] }
      if (/_encode_gradient_/ && name ~ /block=(8|16) .*heads=/) few = 16
      if (/_encode_gradient_/ && name ~ /string_cayley .*inverse/ && chip ~ /^sm_1/) few = 256 }
    /bytes spill stores/ { clean += $1 <= few && $5 <= few && $9 <= few + few / 8 } END { print clean + 0 }' "$folder/log")
  [ "$PTXAS_LEVEL" = 3 ] || clean=$entries
  [ "$entries" -gt 0 ] && [ "$entries" -eq "$clean" ] ||
    { cat "$folder/log"; fail ": $clean of $entries entries without stack and spills"; }
  # float64 only where a gradient is stored as one, and where attention subtracts positions, once a token of a tile;
  # approximations only for 16-bit rows of attention, whose weights or rotated rows are rounded
  sed '/entry [A-Za-z0-9_]*_\(encode_gradient_\(gather\|positions\|matrices\)\|attention_[a-z0-9_]*\)(/,/^}/d' "$folder/k.ptx" > "$folder/most.ptx"
  grep -nE '\.f64' "$folder/most.ptx" && fail ": the above has no place there"
  sed '/entry [A-Za-z0-9_]*_attention_\([a-z0-9_]*_mma\|[a-z_]*f16_simt\|finish_[a-z0-9]*\)(/,/^}/d' "$folder/k.ptx" > "$folder/most.ptx"
  grep -nE '\.approx' "$folder/most.ptx" && fail ": the above has no place there"
  sed '/^\/\//d' "$folder/k.ptx" > "$folder/most.ptx"
  grep -nE '\.local|call' "$folder/most.ptx" && fail ": the above has no place there"
  registers=$(grep -o 'Used [0-9]* registers' "$folder/log" | sort -k2 -n | tail -1 | cut -d' ' -f2)
  echo "$name: $entries entries, most registers $registers"
done
exit $failed
