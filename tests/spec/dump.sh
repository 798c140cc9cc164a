# dump.sh SPEC_DUMP SOURCE: what was understood of every shipped description is printed, whether it has blocks or not.
set -eu
for spec in "$2"/specs/*.lua; do
  "$1" "$2/dsl" "$spec" >dumped || { echo "$spec: spec_dump fails" >&2; exit 1; }
  grep -Eq '(angle|generator|bias|added|polynomial) .*= %|^no blocks|^dense block' dumped || { echo "$spec: nothing is said" >&2; exit 1; }
done
