#!/usr/bin/env bash
# planted.sh PEGEN_PLANTED WORK: the whole program with a hole in its sandbox. Native code in the place of a spec ends in a
# refused description: exit code 1, one line, old outputs as they were.
set -euo pipefail
pegen=$1 work=$2
fail() { echo "planted.sh: $*" >&2; exit 1; }
rm -rf "$work"
mkdir -p "$work"
cd "$work"
for attempt in create execute fork kill_group open_socket write_elsewhere map_executable crash leave say_garbage say_bug; do
  cat >spec.lua <<END
native("$attempt", "$work/witness")
local pe = require "pegen"
return pe.encoding { name = "planted", axes = { "x" }, head_dim = 4, block = pe.plane(), generators = pe.turn "e12", phase = 1 }
END
  for file in k.o k.h k.d; do echo "old $file" >"$file"; done
  status=0
  setsid -w "$pegen" spec.lua -o k.o --header k.h -MD >out 2>log || status=$?
  [ "$status" = 1 ] || fail "$attempt: exit code $status"
  [ "$(wc -l <log)" = 1 ] && [ ! -s out ] || fail "$attempt: says $(cat log out)"
  grep -q '^spec.lua: error: refused: ' log || fail "$attempt: $(cat log)"
  for file in k.o k.h k.d; do [ "$(cat "$file")" = "old $file" ] || fail "$attempt: $file was written"; done
  [ "$(echo *)" = "k.d k.h k.o log out spec.lua" ] || fail "$attempt: left behind: $(echo *)"
done
# The walls are what stops it.
sed -i '1s/.*/native("create", "witness")/' spec.lua
"$pegen" spec.lua --trust-spec -o k.o --target x86-64-v3 --dtype f32
[ -e witness ] || fail "there is no hole"
echo ok
