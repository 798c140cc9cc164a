#!/usr/bin/env bash
# killed.sh PEGEN STOP_WRITE SPEC WORK: pegen killed while it writes. Every output is whole at any time, the old one or the new
# one, and stays the old one until all new ones are complete. A run after that does its work.
set -euo pipefail
pegen=$1 stop=$2 spec=$3 work=$4
fail() { echo "killed.sh: $*" >&2; exit 1; }
outputs=(k.o k.h k.d)
compile() { "$pegen" "$spec" -o "$work/k.o" --header "$work/k.h" -MD --dtype f32 --target x86-64-v2; }
rm -rf "$work"
mkdir -p "$work/new"
compile
(cd "$work" && mv "${outputs[@]}" new/)

# MOMENT NEW...: killed then, the named outputs are new and the others old.
killed() {
  local moment=$1 status=0 file
  shift
  for file in "${outputs[@]}"; do echo "old $file" >"$work/$file"; done
  # The shell says "Killed" of its own child.
  (PEGEN_STOP=$moment LD_PRELOAD=$stop compile) 2>/dev/null || status=$?
  [ $status = 137 ] || fail "$moment: exit code $status instead of 137"
  for file in "${outputs[@]}"; do
    if [[ " $* " = *" $file "* ]]; then cmp "$work/$file" "$work/new/$file" || fail "$moment: $file is not the new one"
    else [ "$(cat "$work/$file")" = "old $file" ] || fail "$moment: $file is not the old one"; fi
  done
}
killed write:1
killed write:2
killed write:3
killed rename:1
killed rename:2 k.o
killed rename:3 k.o k.h
compile
for file in "${outputs[@]}"; do cmp "$work/$file" "$work/new/$file" || fail "a run afterwards: $file"; done
echo ok
