#!/usr/bin/env bash
# needs.sh FILE...: programs and libraries need nothing but glibc, 2.28 or later. Their symbols and versions say so.
set -euo pipefail
for file; do
  needed=$(readelf -d "$file" | awk '/NEEDED/ { print $NF }' |
    grep -vE '^\[(libc\.so\.6|libm\.so\.6|libpthread\.so\.0|libdl\.so\.2|librt\.so\.1|ld-linux.*)\]$' || true)
  [ -z "$needed" ] || { echo "$file needs more than glibc: $needed"; exit 1; }
  versions=$(objdump -T "$file" | grep '\*UND\*' | grep -oE '\(?[A-Z]+_[0-9][0-9.]*' | tr -d '(' | sort -Vu)
  [ -n "$versions" ] || { echo "$file needs no version of any symbol, which cannot be"; exit 1; }
  newest=$(printf '%s\n' $versions GLIBC_2.28 | sort -V | tail -1)
  [ "$newest" = GLIBC_2.28 ] || { echo "$file needs $newest"; exit 1; }
  other=$(grep -v '^GLIBC_' <<<"$versions" || true)
  [ -z "$other" ] || { echo "$file needs $other"; exit 1; }
  unversioned=$(objdump -T "$file" | grep '\*UND\*' | grep -v GLIBC_ | grep -v ' w ' || true)
  [ -z "$unversioned" ] || { echo "$file needs symbols of no library: $unversioned"; exit 1; }
done
