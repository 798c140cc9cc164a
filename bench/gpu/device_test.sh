#!/bin/bash
# Tests of kernels on a GPU, then the short bench, with one command where there is no compiler:
#
#   bench/gpu/device_test.sh FOLDER [SECONDS [SPEC[:NAME=VALUE...] ...]]
#
# FOLDER is what bench/gpu/prepare wrote with gpu_test in it. The tests end after SECONDS (default 150), eight at once
# (JOBS); without SPECs they are all stock ones. What a test printed stands in FOLDER/out or in $OUT, beside bench.json
# and bench.md. Exit status 1: a test failed or ran out of time, or the bench found something wrong. BENCH=0: no bench.
set -u
cd "$(dirname "$0")/../.." || exit 2 # gpu_test reads specs/ and dsl/ here
[ $# -ge 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
folder=$(realpath "$1") seconds=${2:-150}
shift $(($# < 2 ? $# : 2))
out=${OUT:-$folder/out} jobs=${JOBS:-8}
mkdir -p "$out" || exit 2
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
[ -f "$folder/gpu_test.xz" ] || { echo "there is no $folder/gpu_test.xz; build gpu_test_static, then bench/gpu/prepare"; exit 2; }
python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), open(sys.argv[2], "wb"))' \
  "$folder/gpu_test.xz" "$scratch/gpu_test" || exit 2
chmod +x "$scratch/gpu_test"

if [ $# = 0 ]; then # attention and what attention scores by first: what is most likely to be new
  set -- attention attention:head_dim=128 alibi relative_bias_table lookhere lingeope pape:role=pairwise \
    pape_ri:role=pairwise polynomial:role=pairwise
  for spec in specs/*.lua; do
    name=$(basename "$spec" .lua)
    case " $* " in *" $name "*) ;; *) set -- "$@" "$name" ;; esac
  done
  set -- "$@" liere:block=8 comrope_ap:block=8 comrope_ld:block=8
fi

# one PROGRAM OUT END CASE: one test, which ends at second END of the clock.
one() {
  local left=$(($3 - $(date +%s))) log=$2/${4//[:=]/_}.log begun=$SECONDS
  [ "$left" -gt 0 ] || { echo "not run  $4: no time was left"; return 1; }
  timeout -k 5 "$left" "$1" ${4//:/ } >"$log" 2>&1 </dev/null
  local status=$?
  case $status in
  0) echo "right    $4 ($((SECONDS - begun)) s): $(tail -1 "$log")" ;;
  77) echo "skipped  $4: $(tail -1 "$log")" ;;
  124 | 137) echo "time     $4: stopped after $((SECONDS - begun)) s" ;;
  *) echo "failed   $4 (exit $status): $(tail -1 "$log")" ;;
  esac
  [ $status = 0 ]
}
export -f one
printf '%s\n' "$@" |
  xargs -P "$jobs" -I CASE bash -c 'one "$@"' one "$scratch/gpu_test" "$out" $(($(date +%s) + seconds)) CASE |
  tee "$out/tests.txt"
bad=$(grep -vc '^right' "$out/tests.txt")
echo "$bad of $# tests not right; their output is in $out"
[ "${BENCH:-1}" = 0 ] && exit $((bad > 0))
python3 bench/gpu/bench.py "$folder" --short --json "$out/bench.json" | tee "$out/bench.md"
bench=${PIPESTATUS[0]}
[ "$bad" = 0 ] && [ "$bench" = 0 ]
