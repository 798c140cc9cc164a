/* cli/depfile: what an output was made of, as a rule of make.
 *
 * In: names of files. Out: "kernel.o kernel.h: SPEC.lua ...", which GNU make reads back as those files, whatever
 * characters they have; a name that no rule of make can hold is refused.
 */
#pragma once

#include "base/arena.h"
#include "cli/options.h"
#include "spec/spec.h"

/* NULL after a diag_error. */
char *depfile_text(arena *a, const options *o, const spec *s);
