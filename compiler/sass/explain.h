/* sass/explain: `pegen explain SPEC --sass`, what the machine code of a description's kernels takes of a GPU.
 *
 * The PTX of --emit ptx is assembled and listed by NVIDIA's programs (gpu/tools.h); what is said of it follows from
 * the listing and a row of the table of chips alone (sass/code.h). No GPU is needed.
 */
#pragma once

#include "base/arena.h"
#include "spec/spec.h"
#include "target/request.h"

/* Prints to the standard output; 0, or 1 after a diag_error. Without number types: bfloat16. */
int sass_explain(arena *a, const spec *s, const compile_options *options, bool json);
