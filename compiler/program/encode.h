/* program/encode: what the encode programs of all forms have in common. */
#pragma once

#include "program/program.h"

/* What tokens need of operands alone, once a call (and head); -1: nothing. */
int encode_prepared(program_builder *b, const plan *p);
/* A token's numbers, which a table may hold, of those; -1: there are none. */
int encode_values(program_builder *b, const plan *p, int prepared);
/* Loops over the tokens that are encoded, and their heads where heads differ. */
void encode_for_tokens(program_builder *b, bool per_head);
/* Loops for what a plan computes: over all that rows are of, where they differ. */
void encode_for_tokens_of(program_builder *b, const plan *p);
/* A plan's blocks. */
program_blocks encode_blocks(const plan *p);
/* A row as its blocks turn: mapped channel by channel where the description says so. */
int encode_mapped(program_builder *b, const plan *p, int row);
/* What channels of a row x gain of the gradient of what they were mapped to. */
int encode_mapped_back(program_builder *b, const plan *p, int x, int gradient);
/* Loops over the rows of skipped tokens; false: there are none. */
bool encode_for_skipped(program_builder *b);
/* Skipped tokens' rows from x to y as they are. */
void encode_copy_skipped(program_builder *b, int x, int y);
