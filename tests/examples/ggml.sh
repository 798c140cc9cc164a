#!/usr/bin/env bash
# ggml.sh PEGEN SOURCE CC PYTHON: examples/ggml.c with the ggml that a package of Python brings (libggml-python); 77
# where there is none.
set -eu
pegen=$1 source=$2 compiler=$3 python=$4
find="import importlib.util as u; print((u.find_spec('libggml') or exit(77)).submodule_search_locations[0])"
ggml=$("$python" -c "$find") || {
  echo "libggml-python is not installed: not tested"
  exit 77
}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
"$pegen" "$source/specs/rope.lua" -o "$folder/rope.o" --header "$folder/rope.h"
"$compiler" -O2 -Wall -Wextra -Werror "$source/examples/ggml.c" "$folder/rope.o" -I "$folder" \
  -I "$source/runtime/include" -isystem "$ggml/include" -L "$ggml/lib64" -Wl,-rpath,"$ggml/lib64" -lggml-cpu -lggml-base -lm -o "$folder/ggml"
"$folder/ggml" 1
"$folder/ggml" 2
"$folder/ggml" 3 7 5
