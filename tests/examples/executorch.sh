#!/usr/bin/env bash
# executorch.sh PEGEN SOURCE CXX PYTHON: examples/executorch.cpp with the ExecuTorch that a package of Python brings; 77
# where there is none, or not what writes its programs (PyTorch, ruamel.yaml, flatbuffers, tabulate).
set -eu
pegen=$1 source=$2 compiler=$3 python=$4
find="import importlib.util as u, sys
if not all(map(u.find_spec, ('executorch', 'torch', 'ruamel.yaml', 'flatbuffers', 'tabulate'))): sys.exit(1)
print(u.find_spec('executorch').submodule_search_locations[0])"
executorch=$("$python" -c "$find" 2> /dev/null) || {
  echo "executorch is not installed: not tested"
  exit 77
}
[ -f "$executorch/lib/libexecutorch.so" ] || {
  echo "executorch is installed without its library for C++: not tested"
  exit 77
}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
"$pegen" "$source/specs/rope.lua" -o "$folder/rope.o" --header "$folder/rope.h"
# What executorch-config.cmake says of it, whose targets ask for CMake 3.28.
"$compiler" -std=c++17 -O2 -Wall -Wextra -Werror -DC10_USING_CUSTOM_GENERATED_MACROS -DET_EVENT_TRACER_ENABLED \
  -DET_USE_THREADPOOL "$source/examples/executorch.cpp" "$folder/rope.o" -I "$folder" -I "$source/runtime/include" \
  -isystem "$executorch/include" -isystem "$executorch/include/executorch/runtime/core/portable_type/c10" \
  -L "$executorch/lib" -Wl,-rpath,"$executorch/lib" -Wl,--no-as-needed -lexecutorch_kernels_optimized \
  -lexecutorch_threadpool -lexecutorch -o "$folder/executorch"
"$python" -W ignore "$source/examples/executorch_graph.py" 1021 32 "$folder/rope.pte"
"$folder/executorch" "$folder/rope.pte" 1021 32
