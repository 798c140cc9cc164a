/* spec/size: operations counted; see spec/size.h. */
#include "spec/size.h"

#include "base/diag.h"

enum { ELEMENTARY = 16, LOOKUP = 16 };

static int weight(const expr *x) {
  if (expr_op_is_elementary(x->op)) return ELEMENTARY;
  return expr_op_is_lookup(x->op) ? LOOKUP : expr_op_arity(x->op) > 0;
}

static int64_t visit(const expr *x, bool *seen) {
  if (seen[x->id]) return 0;
  seen[x->id] = true;
  int64_t size = weight(x);
  for (int i = 0; i < expr_op_arity(x->op); i++) size += visit(x->arg[i], seen);
  return size;
}

int64_t expr_size_of_all(arena *a, const expr_pool *pool, const expr *const *roots, int count) {
  bool *seen = arena_array(a, bool, expr_pool_count(pool) + 1);
  int64_t size = 0;
  for (int i = 0; i < count; i++) size += visit(roots[i], seen);
  return size;
}

int64_t expr_size(arena *a, const expr_pool *pool, const expr *x) { return expr_size_of_all(a, pool, &x, 1); }

static bool fits(arena *a, const spec *s, const expr *x, const char *what) {
  int64_t size = x ? expr_size(a, s->pool, x) : 0;
  if (size <= SIZE_MOST_OPERATIONS) return true;
  diag_error(s->file, s->line,
             "%s takes %lld operations (a sine, an exponential, a logarithm or a lookup counts %d), %d at most", what,
             (long long)size, ELEMENTARY, SIZE_MOST_OPERATIONS);
  return false;
}

bool spec_check_size(arena *a, const spec *s) {
  for (int i = 0; i < s->n_parts; i++)
    if (!spec_check_size(a, s->part[i].of)) return false;
  bool turns = s->n_components > 0;
  for (int axis = 0; turns && axis < s->n_axes; axis++) {
    if (!fits(a, s, s->angle[axis], arena_printf(a, "the phase of axis '%s'", s->axis[axis]))) return false;
    for (int i = 0; !s->dense && i < s->generator[axis].count; i++)
      if (!fits(a, s, s->generator[axis].coefficient[i], arena_printf(a, "the generator of axis '%s'", s->axis[axis])))
        return false;
  }
  for (int side = 0; side < 2 && s->entries[0]; side++)
    for (int i = 0; i < s->n_components * s->n_components; i++)
      if (!fits(a, s, s->entries[side][i], "an entry of the matrix")) return false;
  if (s->pre && !fits(a, s, s->pre, "the map of a channel")) return false;
  if (s->additive && !fits(a, s, s->additive->value, "what is added to a channel")) return false;
  if (s->polynomial && !fits(a, s, s->polynomial->value, "a term of the bias")) return false;
  if (s->pairwise && !fits(a, s, s->pairwise->score, "the score of a pair")) return false;
  if (s->pairwise && !fits(a, s, s->pairwise->sink, "the sink")) return false;
  return !s->pairwise || fits(a, s, s->pairwise->bias, "the bias of a pair");
}
