/* explain/mask: what is proved of tiles of pairs where a bias may hide keys. */
#pragma once

#include "plan/attention.h"

/* In words that follow "tiles of keys"; "": the bias hides nothing. */
const char *explain_mask(arena *a, const spec *s, const attention_plan *p);
