/* object/driver: of the driver's assembly (kernel/embedded.h), what a module calls.
 *
 * The text of a form has every entry that a kernel of that form can have, and what these share. A module without
 * gradients or tables calls a part of it, and assembling what nobody calls takes a tenth of a compile and most of a
 * small object. So the text is cut where a directive names a section, which is one function, its constants or its jump
 * table each (kernel/CMakeLists.txt), and of the cuts those are added that the module's declarations reach: a cut that
 * defines a label is needed where another one that is needed has that label's name in it.
 */
#pragma once

#include "base/arena.h"
#include "kernel/embedded.h"

#include <llvm-c/Types.h>
#include <stdbool.h>

/* To the module's inline assembly; after everything else of the module is there, declarations without a use removed. */
void driver_add(arena *a, LLVMModuleRef module, const driver_text *const *texts, int n_texts, bool x86);
