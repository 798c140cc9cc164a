/* program/product: matrices that are applied one after the other become their product; see program/passes.h.
 *
 *     x2 = apply c, x1                m3 = matrix product m, c     where m is made
 *     x3 = apply m, x2          ->    x3 = apply m3, x1
 *
 * and with both transposed the same the other way round: C^T (M^T x) = (M C)^T x.
 */
#include "program/passes.h"

typedef struct fusion {
  program_rewrite rewrite;
  int product[PROGRAM_MAX_VALUES]; /* of `to`, by the matrix of `from` that is its first factor; -1: there is none */
  int second[PROGRAM_MAX_VALUES];  /* matrix of `from`, by the first; -1: there is none */
} fusion;

static const program_op *maker(const fusion *f, int value) { return f->rewrite.from->value[value].maker; }

/* Whether an apply's row comes of another apply; *first, *second: factors of the product. */
static bool is_pair(const fusion *f, const program_op *op, int *first, int *second) {
  if (op->kind != OP_APPLY) return false;
  const program_op *inner = maker(f, op->argument[1]);
  if (inner->kind != OP_APPLY || inner->transposed != op->transposed) return false;
  *first = op->transposed ? inner->argument[0] : op->argument[0];
  *second = op->transposed ? op->argument[0] : inner->argument[0];
  return maker(f, *second)->blocks.count == 1 && !program_part_of(maker(f, *second)); /* parts share no channel */
}

static void find_pairs(fusion *f, const program_op *list) {
  for (const program_op *op = list; op; op = op->next) {
    int first, second;
    find_pairs(f, op->body);
    if (is_pair(f, op, &first, &second)) f->second[first] = second;
  }
}

static void fuse_list(fusion *f, const program_op *list) {
  program_rewrite *r = &f->rewrite;
  for (const program_op *op = list; op; op = op->next) {
    int first, second;
    if (op->kind == OP_FOR) {
      int depth = r->to.depth;
      program_for(&r->to, op->space, op->part);
      fuse_list(f, op->body);
      program_end_for(&r->to, depth);
    } else if (op->kind == OP_APPLY && op->next && is_pair(f, op->next, &first, &second)) {
      r->value[op->result] = r->value[op->argument[1]]; /* the pair's second one does both */
    } else if (is_pair(f, op, &first, &second)) {
      r->value[op->result] = program_apply(&r->to, f->product[first], r->value[op->argument[1]], op->transposed);
    } else {
      program_repeat(r, op);
      if (op->result < 0 || f->second[op->result] < 0) continue;
      f->product[op->result] = program_product(&r->to, r->value[op->result], r->value[f->second[op->result]]);
      program_set_tabled(&r->to, f->product[op->result]);
    }
  }
}

const program *program_multiply(arena *a, const program *p) {
  fusion f = {.rewrite = program_begin_rewrite(a, p, p->entry)};
  for (int i = 0; i < PROGRAM_MAX_VALUES; i++) f.product[i] = f.second[i] = -1;
  find_pairs(&f, p->body);
  fuse_list(&f, p->body);
  return f.rewrite.to.p;
}
