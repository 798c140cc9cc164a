/* object/header: the C header that belongs to a kernel object.
 *
 * In: the description. Out: text with the entries, the operands (an enum and what each
 * one is) and the sizes as macros. It says what made it and holds neither paths
 * nor dates: the same description and options give the same bytes.
 */
#pragma once

#include "base/arena.h"
#include "forms/form.h"
#include "gpu/entries.h"
#include "spec/spec.h"

/* dtypes: PEGEN_DTYPE_ bits of the object; 0: all. gpu: what was written for a GPU alone, which has launch constants in
 * place of entries; NULL: an object. NUL-terminated, in the arena. A kernel of the description must have compiled. */
char *header_text(arena *a, const spec *s, const gpu_program *gpu, unsigned dtypes, entry_option most);
