/* explain/change_of_basis: what is known of blocks that turn after a change of basis of the whole head. */
#include "plan/change_of_basis.h"
#include "explain/explain.h"

bool explain_change_of_basis(arena *a, const spec *s, explanation *out) {
  if (!(s->dense ? explain_dense : explain_blades)(a, s, out)) return false;
  const plan_basis *p = plan_basis_build(a, s);
  if (!p) return false;
  const char *change =
      s->inverse ? "then the transposed Cayley transform of the head" : "after the Cayley transform of the head";
  out->normal_form = arena_printf(a, "%s, %s; one matrix a token, which NAME_prepare forms", out->normal_form, change);
  out->cost.per_head = p->per_head;
  out->cost.token.arithmetic += s->head_dim * out->cost.row_operations;
  out->cost.row_operations = 2 * s->head_dim * s->head_dim;
  out->entries_precision = NULL; /* no channel is a block's own */
  out->rows_precision =
      "float32 within 2^-20 of the row's norm; bfloat16 and float16 half a unit in the last place more";
  return true;
}
