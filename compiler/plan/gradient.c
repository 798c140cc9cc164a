/* plan/gradient: see plan/gradient.h. */
#include "plan/gradient.h"

#include "base/diag.h"

/* ---- pairs ---- */

static void join(int *label, int count, int x, int y) {
  int keep = label[x] < label[y] ? label[x] : label[y], drop = label[x] < label[y] ? label[y] : label[x];
  for (int i = 0; i < count; i++)
    if (label[i] == drop) label[i] = keep;
}

/* A term holds at most one pair of each row: pair (i, j) goes into the first term where i has none, by the distance of
 * j from i among the components that mix, so that terms are few and their permutations regular. */
static void lay_out_pairs(arena *a, const torque_basis *basis, plan *pairs) {
  int n = pairs->spec->n_components, label[SPEC_MAX_BLADES], rank[SPEC_MAX_BLADES], size[SPEC_MAX_BLADES] = {0};
  for (int i = 0; i < n; i++) label[i] = i;
  for (int k = 0; k < basis->count; k++)
    for (int e = 0; e < basis->element[k].n_entries; e++)
      join(label, n, basis->element[k].entry[e].row, basis->element[k].entry[e].column);
  for (int i = 0; i < n; i++) rank[i] = size[label[i]]++;
  int *by_distance = arena_array(a, int, n *n);
  bool *used = arena_array(a, bool, n);
  for (int i = 0; i < n * n; i++) by_distance[i] = -1;
  for (int k = 0; k < basis->count; k++)
    for (int e = 0; e < basis->element[k].n_entries; e++) {
      const torque_entry *at = &basis->element[k].entry[e];
      int m = size[label[at->row]], distance = (rank[at->column] - rank[at->row] + m) % m;
      by_distance[distance * n + at->row] = at->column;
      used[distance] = true;
    }
  pairs->n_terms = 0;
  pairs->source = arena_array(a, int, n *n);
  for (int distance = 0; distance < n; distance++) {
    if (!used[distance]) continue;
    for (int i = 0; i < n; i++) pairs->source[pairs->n_terms * n + i] = by_distance[distance * n + i];
    pairs->n_terms++;
  }
}

/* ---- boundaries ---- */

typedef struct finder {
  const expr **found;
  int count;
  unsigned char *seen;
} finder;

static void find_boundaries(finder *f, const expr *x) {
  if (f->seen[x->id] || !(x->depends & DEPENDS_OPERAND)) return;
  f->seen[x->id] = 1;
  if (!(x->depends & DEPENDS_POSITION)) {
    f->found[f->count++] = x;
    return;
  }
  for (int i = 0; i < expr_op_arity(x->op); i++) find_boundaries(f, x->arg[i]);
}

/* ---- gradients ---- */

/* What a sum's expression gains is what its channels do. */
static int outputs_of(arena *a, const plan *p, const plan_gradient *g, torque_frame frame, const adjoint_output **out) {
  if (!plan_is_sum(p)) return torque_outputs(a, &g->basis, frame, g->tau, out);
  adjoint_output *one = arena_new(a, adjoint_output);
  const expr *value;
  adjoint_unrounded(a, p->spec->pool, (const expr *const *)p->program->matrix.entry, 1, &value);
  *one = (adjoint_output){value, g->tau[0]};
  *out = one;
  return 1;
}

static void differentiate(arena *a, const plan *p, plan_gradient *g) {
  const spec *s = p->spec;
  const adjoint_output *outputs[2];
  int count[2];
  for (int frame = 0; frame < 2; frame++) count[frame] = outputs_of(a, p, g, (torque_frame)frame, &outputs[frame]);
  finder f = {.found = arena_array(a, const expr *, expr_pool_count(s->pool) + 1),
              .seen = arena_alloc(a, (size_t)expr_pool_count(s->pool) + 1)};
  for (int i = 0; i < count[0]; i++) find_boundaries(&f, outputs[0][i].value);
  g->n_boundaries = f.count;
  g->boundary = f.found;
  const expr **nodes = arena_array(a, const expr *, f.count + s->n_axes + 1);
  for (int i = 0; i < f.count; i++) nodes[i] = f.found[i];
  for (int axis = 0; axis < s->n_axes; axis++) nodes[f.count + axis] = expr_position(s->pool, axis);
  for (int frame = 0; frame < 2; frame++) {
    const expr **gradients = arena_array(a, const expr *, f.count + s->n_axes + 1);
    adjoint_of(a, s->pool, outputs[frame], count[frame], nodes, f.count + s->n_axes, gradients);
    g->of_boundary[frame] = gradients;
    g->of_position[frame] = gradients + f.count;
    for (int axis = 0; axis < s->n_axes; axis++)
      g->has_positions = g->has_positions || !expr_is_const(g->of_position[frame][axis], 0);
  }
}

/* Sums over tokens become gradients of operands' elements. */
static void finish(arena *a, const plan *p, plan_gradient *g) {
  expr_pool *pool = p->spec->pool;
  adjoint_output *outputs = arena_array(a, adjoint_output, g->n_boundaries + 1);
  g->sum = arena_array(a, const expr *, g->n_boundaries + 1);
  for (int i = 0; i < g->n_boundaries; i++) {
    g->sum[i] = expr_cotangent(pool, SPEC_MAX_BIVECTORS + i, DEPENDS_BLOCK);
    outputs[i] = (adjoint_output){g->boundary[i], g->sum[i]};
  }
  g->n_scatters = adjoint_scatters(a, pool, outputs, g->n_boundaries, ADJOINT_OPERANDS, &g->scatter);
  const expr **roots = arena_array(a, const expr *, g->n_scatters + 1);
  for (int i = 0; i < g->n_scatters; i++) {
    if (g->scatter[i].leaf->op != EXPR_OPERAND) diag_bug("plan/gradient", "an operand at a computed place");
    roots[i] = g->scatter[i].gradient;
  }
  if (g->n_scatters == 0) g->n_boundaries = 0; /* floors and comparisons of operands: sums that nobody would read */
  g->leaves = plan_of_expressions(a, p->spec, roots, g->n_scatters);
}

const plan_gradient *plan_gradient_build(arena *a, const plan *p) {
  const spec *s = p->spec;
  plan_gradient *g = arena_new(a, plan_gradient);
  g->pairs = arena_new(a, plan);
  *g->pairs = *p;
  if (plan_is_sum(p)) {
    g->n_torques = 1;
    g->pairs->n_terms = 1;
  } else {
    torque_basis_of(a, s, &g->basis);
    g->n_torques = g->basis.count;
    lay_out_pairs(a, &g->basis, g->pairs);
  }
  if (g->n_torques == 0 || g->pairs->n_terms == 0) return NULL; /* nothing that these blocks hold is turned */
  g->tau = arena_array(a, const expr *, g->n_torques);
  for (int k = 0; k < g->n_torques; k++)
    g->tau[k] =
        expr_cotangent(s->pool, k, DEPENDS_BLOCK | DEPENDS_POSITION | (p->per_head ? (unsigned)DEPENDS_HEAD : 0));
  differentiate(a, p, g);
  finish(a, p, g);
  if (g->n_boundaries == 0 && !g->has_positions) return NULL;
  int count = 0;
  const expr **roots = arena_array(a, const expr *, 2 * (g->n_boundaries + s->n_axes));
  for (int frame = 0; frame < 2; frame++) {
    for (int i = 0; i < g->n_boundaries; i++) roots[count++] = g->of_boundary[frame][i];
    for (int i = 0; i < s->n_axes; i++) roots[count++] = g->of_position[frame][i];
  }
  /* Heads that differ in what leaves no trace in the rotors: a torque of all heads cannot be told apart. */
  for (int i = 0; i < count && !p->per_head; i++)
    if (roots[i]->depends & DEPENDS_HEAD) return NULL;
  g->token = plan_of_expressions(a, s, roots, count);
  return g;
}
