#!/usr/bin/env bash
# package.sh BUILD SOURCE WORK CMAKE HOW: a project of its own builds against the installed tree, moved from where it was
# installed, and what it made is made again when, and only when, something it was made from changes.
# HOW: ninja, makefiles (CMake's generators) or make (pkg-config, no CMake).
set -euo pipefail
build=$1 source=$2 work=$3 cmake=$4 how=$5
fail() { echo "package.sh: $*" >&2; exit 1; }

rm -rf "$work"
mkdir -p "$work"
"$cmake" --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/tree"
cp -r "$source/tests/package/project" "$work/project"
libdir=$(dirname "$(find "$work/tree" -name pegen.pc)")/..
export PKG_CONFIG_PATH=$libdir/pkgconfig

case $how in
ninja) "$cmake" -G Ninja -S "$work/project" -B "$work/out" -DCMAKE_PREFIX_PATH="$work/tree" >"$work/log" ;;
makefiles) "$cmake" -G "Unix Makefiles" -S "$work/project" -B "$work/out" -DCMAKE_PREFIX_PATH="$work/tree" -DSHARED=ON >"$work/log" ;;
make) mkdir "$work/out" ;;
*) fail "HOW is ninja, makefiles or make" ;;
esac || { cat "$work/log"; fail "cmake failed"; }

build_it() {
  if [ "$how" = make ]; then make -C "$work/out" -f "$work/project/Makefile" engine
  else "$cmake" --build "$work/out"; fi >"$work/log" 2>&1 || { cat "$work/log"; fail "the build failed"; }
}
object() { if [ "$how" = make ]; then echo "$work/out/wheel.o"; else echo "$work/out/wheel.pegen/wheel.o"; fi; }
stamp() { stat -c %y "$(object)"; }
run() { LD_LIBRARY_PATH=$libdir "$work/out/engine" "$@"; }
expect_rebuilt() { # WHY: after what was just done the object is made again
  local before; before=$(stamp)
  sleep 0.1 # clocks of file systems are coarse
  "${@:2}"
  build_it
  [ "$(stamp)" != "$before" ] || fail "not made again after $1"
  before=$(stamp)
  build_it
  [ "$(stamp)" = "$before" ] || fail "made again after $1, though nothing changed since"
}

build_it
[ "$(run)" = "wheel 0.5332 slow 0.3110 rope 0.6816" ] || fail "the program prints $(run)"
if [ "$how" != make ]; then # turned by a third of a radian about one axis: cos(1/3)
  LD_LIBRARY_PATH=$libdir "$work/out/modern" | grep -q "^cube 0.9450 " || fail "C++20: $("$work/out/modern")"
fi
run geope3d | grep -q geope3d || fail "no kernel by name"
expect_rebuilt "a change of the description" sed -i 's/100.0, "freq/400.0, "freq/' "$work/project/specs/wheel.lua"
run | grep -q "^wheel 0.4554 " || fail "the new base does not show: $(run)"
expect_rebuilt "a change of a file it requires" sed -i 's/-i/i/' "$work/project/specs/frequencies.lua"
run | grep -q "^wheel 0.8557 " || fail "the new frequencies do not show: $(run)"
expect_rebuilt "a change of the vocabulary" touch "$work/tree/share/pegen/dsl/pegen.lua"
expect_rebuilt "a new pegen" touch "$work/tree/bin/pegen"
echo "ok"
