/* cli/specs: the descriptions that come with the program, by their names and by those of the models that use them. */
#pragma once

#include "base/arena.h"

#include <stdbool.h>

/* The file of the stock description `name`; NULL: there is none. dsl: the folder of the vocabulary, beside which
 * descriptions lie, as in an installed tree, so in the source tree. */
const char *specs_find(arena *a, const char *dsl, const char *name);

/* The name of a stock description that may be meant by `word`; NULL: none is near. */
const char *specs_nearest(arena *a, const char *dsl, const char *word);

/* Prints what there is, a line each, or of what `word` is in the name, the text or a model's name of, all of it; an
 * exit status. What its whole name is stands first, then the newest versions. word: NULL for everything. */
int specs_list(arena *a, const char *dsl, const char *word, bool json);
