/* explain/mask: what is proved of tiles of pairs where a bias may hide keys. */
#ifndef PEGEN_EXPLAIN_MASK_H
#define PEGEN_EXPLAIN_MASK_H

#include "plan/attention.h"

/* In words that follow "tiles of keys"; "": the bias hides nothing. */
const char *explain_mask(arena *a, const spec *s, const attention_plan *p);

#endif
