/* base/text: text that other people's programs show: comments in headers, terminals, make rules.
 *
 * A description's texts and messages come from a stranger. Characters that reorder or hide what stands beside them
 * make a comment read as code and code as a comment, and control characters drive terminals.
 */
#pragma once

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>

/* [A-Za-z_][A-Za-z0-9_]*, at most 60 characters. */
enum { TEXT_IDENTIFIER_LENGTH = 60 };
bool text_is_identifier(const char *text);

/* What one line of text may not hold, as "... without WHAT"; NULL where there is nothing of it: control characters,
 * bytes that are no UTF-8, characters that end or reorder lines or show nothing. */
const char *text_flaw(const char *text, size_t length);

/* The text with a ? for each character that text_flaw minds. */
const char *text_shown(arena *a, const char *text, size_t length);
