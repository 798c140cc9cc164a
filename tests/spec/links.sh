#!/usr/bin/env bash
# links.sh PEGEN WORK: a description reads files of its own folder and of parts there, and nothing that a link leads to,
# wherever it leads, nor what is no file. A description may itself be reached by links, which whoever calls made.
set -euo pipefail
pegen=$1 work=$2
fail() { echo "links.sh: $*" >&2; exit 1; }
rm -rf "$work"
mkdir -p "$work/given/parts" "$work/elsewhere"
cd "$work"
echo 'API_KEY = "hunter2"' >.env
echo 'return 1' >elsewhere/module.lua
cat >given/spec.lua <<'END'
local pe = require "pegen"
require "module"
return pe.encoding { name = "linked", doc = API_KEY, axes = { "x" }, head_dim = 8, block = pe.plane(),
  generators = pe.turn "e12", phase = 1 }
END

# What stands at given/module.lua or below given/parts, made by the commands, is refused with the text.
refused() {
  local name=$1 text=$2
  for trust in "" --trust-spec; do
    timeout 60 "$pegen" given/spec.lua $trust --emit expr -o out 2>log && fail "$name: taken"
    [ "$(cat log)" = "given/spec.lua:2: error: $text" ] || fail "$name: $(cat log)"
    ! grep -rq hunter2 out log 2>/dev/null || fail "$name: read"
  done
  rm -rf given/module.lua given/parts
  mkdir given/parts
}
ln -s ../.env given/module.lua
refused outside "'given/module.lua' is a link, which is not followed; expected a file"
echo 'return 1' >given/other.lua
ln -s other.lua given/module.lua
refused beside "'given/module.lua' is a link, which is not followed; expected a file"
ln -s nothing given/module.lua
refused dangling "'given/module.lua' is a link, which is not followed; expected a file"
ln -s ../../.env given/parts/module.lua
refused below "'given/parts/module.lua' is a link, which is not followed; expected a file"
rmdir given/parts
ln -s ../elsewhere given/parts
refused parts "'given/parts' is a link, which is not followed; expected a file"
mkfifo given/module.lua
refused pipe "'given/module.lua' is not a file"
mkdir given/module.lua
refused folder "'given/module.lua' is not a file"
mkfifo given/parts/module.lua
refused "pipe below" "'given/parts/module.lua' is not a file"
refused nothing "cannot read 'given/module.lua': No such file or directory"

taken() {
  "$pegen" "$1" --emit expr -o out -MF out.d 2>log || fail "$1: $(cat log)"
  grep -qF "$2" out.d || fail "$1: $(cat out.d)"
}
sed -i 's/doc = API_KEY, //' given/spec.lua
echo 'return 1' >given/parts/module.lua
taken given/spec.lua given/parts/module.lua
echo 'return 1' >given/module.lua
taken given/spec.lua given/module.lua
ln -s given by_link
taken by_link/spec.lua by_link/module.lua
mkdir other
ln -s ../given/spec.lua other/spec.lua
echo 'return 1' >other/module.lua
taken other/spec.lua other/module.lua
cd given
taken spec.lua module.lua
echo ok
