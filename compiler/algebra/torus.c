/* algebra/torus: which matrix acts on each dense block; see algebra/torus.h. */
#include "algebra/torus.h"

/* Whether x is zero in a block whatever positions and operands are. */
static bool vanishes(const expr *x, int head, int block, int blocks) {
  switch (x->op) {
  case EXPR_CONST: return x->value == 0;
  case EXPR_TABLE: return x->table[(x->n_heads > 1 ? head : 0) * blocks + block] == 0;
  case EXPR_NEG: return vanishes(x->arg[0], head, block, blocks);
  case EXPR_MUL: return vanishes(x->arg[0], head, block, blocks) || vanishes(x->arg[1], head, block, blocks);
  case EXPR_ADD:
  case EXPR_SUB: return vanishes(x->arg[0], head, block, blocks) && vanishes(x->arg[1], head, block, blocks);
  default: return false;
  }
}

static int32_t offset_of(const spec_skew *m, int head, int block, int blocks) {
  return m->offset[(m->n_heads > 1 ? head : 0) * blocks + block];
}

/* The axis whose matrix acts on the block, -1 where two do (*other: the second), 0 where none does. */
static int acting_axis(const spec *s, int head, int block, int *first, int *other) {
  int acting = -1;
  for (int a = 0; a < s->n_axes; a++) {
    if (vanishes(s->angle[a], head, block, s->n_blocks)) continue;
    const spec_skew *m = &s->dense->generator[a], *known = acting < 0 ? NULL : &s->dense->generator[acting];
    if (!known) {
      acting = a;
    } else if (m->operand != known->operand || m->rule != known->rule ||
               offset_of(m, head, block, s->n_blocks) != offset_of(known, head, block, s->n_blocks)) {
      *first = acting, *other = a;
      return -1;
    }
  }
  return acting < 0 ? 0 : acting;
}

void torus_find(arena *a, const spec *s, torus *out) {
  *out = (torus){0};
  int32_t *offset = arena_array(a, int32_t, s->heads * s->n_blocks);
  bool heads_differ = false;
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++) {
      int first = 0, other = 0, axis = acting_axis(s, head, block, &first, &other);
      if (axis < 0) {
        out->why_not = arena_printf(a, "axes '%s' and '%s' turn block %d by matrices of their own", s->axis[first],
                                    s->axis[other], block);
        return;
      }
      const spec_skew *m = &s->dense->generator[axis];
      if (head == 0 && block == 0) out->generator = *m;
      if (m->operand != out->generator.operand || m->rule != out->generator.rule) {
        out->why_not = arena_printf(a, "the matrix of block %d is of another operand than that of block 0", block);
        return;
      }
      int32_t here = offset_of(m, head, block, s->n_blocks);
      offset[head * s->n_blocks + block] = here;
      heads_differ = heads_differ || here != offset[block];
    }
  out->generator.offset = offset;
  out->generator.n_heads = heads_differ ? s->heads : 1;
  out->angle = s->angle[0];
  for (int axis = 1; axis < s->n_axes; axis++) out->angle = expr_add(s->pool, out->angle, s->angle[axis]);
}
