#!/bin/sh
# stubs.sh FOLDER VERSION COMPILER...: writes into FOLDER what one links with to need glibc VERSION (2.28) alone:
# libraries of the names of glibc's without code, each symbol in its youngest version up to that one.
# glibc keeps its old versions, so its present library tells them all. COMPILER links for its machine.
set -eu
folder=$1 version=$2
shift 2
readelf --version-info "$("$@" -print-file-name=libc.so.6)" | grep -q 'Name: GLIBC_2\.34'
mkdir -p "$folder"

# stub NAME FROM COMPILER...: FOLDER/NAME as glibc's FROM tells it. Threads, dlopen and timers moved to libc.so.6 in
# 2.34; older systems have them in their own libraries alone. Data lie as in FROM, where one place can have several
# names: a program that takes a copy takes all of them, and finds them by the strong one.
stub() {
  name=$1 from=$2
  shift 2
  readelf --dyn-syms --wide "$("$@" -print-file-name="$from")" | awk -v name="$name" -v from="$from" \
    -v most="${version#2.}" -v map="$folder/$name.map" '
    $4 ~ /^(FUNC|IFUNC|OBJECT)$/ && $7 != "UND" && match($8, /@GLIBC_2\.[0-9.]+$/) {
      minor = substr($8, RSTART + 9) + 0
      symbol = $8
      sub(/@.*/, "", symbol)
      if ($8 ~ /@@/) linked[symbol] = minor # what has no such version is for old programs alone
      if (minor > most || (symbol in minors && minors[symbol] > minor)) next
      minors[symbol] = minor; versions[symbol] = substr($8, RSTART + 1)
      types[symbol] = $4; places[symbol] = $2; sizes[symbol] = $3; binding[symbol] = $5 == "WEAK" ? "weak" : "globl"
    }
    function library(symbol) {
      if (from !~ /^libc/ || linked[symbol] <= most || symbol == "__libc_start_main") return from
      if (symbol ~ /^(__)?pthread_|^sem_/) return "libpthread.so.0"
      return symbol ~ /^dl/ ? "libdl.so.2" : symbol ~ /^timer_/ ? "librt.so.1" : ""
    }
    END {
      for (symbol in versions) {
        if (!(symbol in linked) || library(symbol) != name) continue
        nodes[versions[symbol]] = nodes[versions[symbol]] " " symbol ";"
        object = types[symbol] == "OBJECT"
        printf ".%s %s; .type %s, %%%s; .size %s, %d; .set %s, %s\n", binding[symbol], symbol, symbol,
          object ? "object" : "function", symbol, sizes[symbol], symbol, object ? "data + 0x" places[symbol] : "code"
      }
      print ".text; code: .zero 16; .bss; data: .zero 0x1000000"
      for (node in nodes) print node " {" nodes[node] " };" >map
    }' >"$folder/$name.s"
  "$@" -shared -nostdlib -Wl,-soname,"$name" -Wl,--version-script="$folder/$name.map" "$folder/$name.s" \
    -o "$folder/$name"
}
old="libpthread.so.0 libdl.so.2 librt.so.1"
for name in libc.so.6 $old; do stub $name libc.so.6 "$@"; done
loader=$(readelf --dynamic "$("$@" -print-file-name=libc.so.6)" | sed -n 's/.*NEEDED.*\[\(ld-.*\)\]/\1/p')
for name in libm.so.6 "$loader"; do stub "$name" "$name" "$@"; done
for name in libm.so.6 $old; do ln -sf "$name" "$folder/${name%.*}"; done
# As glibc's own script, with what was part of other libraries: the archive has what each program holds of libc itself,
# such as atexit.
cd "$folder"
echo "GROUP ( $PWD/libc.so.6 $("$@" -print-file-name=libc_nonshared.a)" \
  "AS_NEEDED ($(printf " $PWD/%s" "$loader" $old) ) )" >libc.so
