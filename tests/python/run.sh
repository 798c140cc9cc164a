#!/usr/bin/env bash
# run.sh PYTHON TEST.py: 77 where what the test is about is not installed.
python=$1 test=$2
cd "$(dirname "$0")" || exit 1
module=${test%_test.py}
[ "$module" != kernel ] || module=numpy
"$python" -c "import $module" 2>/dev/null || { echo "$module is not installed: not tested"; exit 77; }
exec "$python" -W error::DeprecationWarning:pegen_kernels "$test"
