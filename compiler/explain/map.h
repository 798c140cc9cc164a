/* explain/map: maps of channels as a formula. */
#pragma once

#include "explain/words.h"

/* "(x + |x|) * 0.5 + log1p(exp(-|x|))"; of a long one how many operations it has. */
const char *explain_map_text(arena *a, const spec *s);
