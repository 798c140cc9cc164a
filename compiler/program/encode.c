/* program/encode: see program/encode.h. */
#include "program/encode.h"

#include "spec/adjoint.h"

int encode_prepared(program_builder *b, const plan *p) {
  if (p->n_prepared == 0) return -1;
  int depth = b->depth;
  if (p->per_head) program_for(b, SPACE_HEADS, PART_ALL);
  int prepared = program_eval(b, p, p->prepared, p->n_prepared, NULL, 0);
  program_end_for(b, depth);
  return prepared;
}

int encode_values(program_builder *b, const plan *p, int prepared) {
  if (p->n_values == 0) return -1;
  return program_eval(b, p, p->value, p->n_values, &prepared, prepared >= 0);
}

void encode_for_tokens(program_builder *b, bool per_head) {
  program_for(b, SPACE_TOKENS, b->p->spec->skip_tokens ? PART_ENCODED : PART_ALL);
  if (per_head) program_for(b, SPACE_HEADS, PART_ALL);
}

void encode_for_tokens_of(program_builder *b, const plan *p) {
  encode_for_tokens(b, p->per_head && !p->of_rows);
  if (p->of_rows) program_for_rows(b);
}

program_blocks encode_blocks(const plan *p) {
  return (program_blocks){p->spec->n_components, p->spec->n_blocks, p->spec->channel};
}

int encode_mapped(program_builder *b, const plan *p, int row) {
  const expr *map = p->spec->pre;
  return map ? program_map(b, p->part ? p : NULL, encode_blocks(p), map, &row, 1) : row;
}

int encode_mapped_back(program_builder *b, const plan *p, int x, int gradient) {
  expr_pool *pool = p->spec->pool;
  if (!p->spec->pre) return gradient;
  const expr *channel = expr_channel(pool, 0), *gained;
  adjoint_output output = {p->spec->pre, expr_channel(pool, 1)};
  adjoint_of(b->memory, pool, &output, 1, &channel, 1, &gained);
  return program_map(b, p->part ? p : NULL, encode_blocks(p), gained, (int[]){x, gradient}, 2);
}

bool encode_for_skipped(program_builder *b) {
  if (b->p->spec->skip_tokens == 0) return false;
  program_for(b, SPACE_TOKENS, PART_SKIPPED);
  program_for_rows(b);
  return true;
}

void encode_copy_skipped(program_builder *b, int x, int y) {
  if (!encode_for_skipped(b)) return;
  program_store(b, y, program_load(b, x));
  program_end_for(b, 0);
}
