#!/bin/sh
# profiled.sh LIBRARY PROGRAM ARGUMENT...: a program with a library that it did not ask for.
library=$1
shift
LD_PRELOAD=$library exec "$@"
