/* plan/gradient: see plan/gradient.h. */
#include "plan/gradient.h"

#include "base/diag.h"

/* ---- pairs ---- */

static void join(int *label, int count, int x, int y) {
  int keep = label[x] < label[y] ? label[x] : label[y], drop = label[x] < label[y] ? label[y] : label[x];
  for (int i = 0; i < count; i++)
    if (label[i] == drop) label[i] = keep;
}

/* A term holds at most one pair of each column: pair (i, j) goes into the term of the distance of i from j among the
 * components that mix, so that terms are few and their permutations those by which a matrix is applied to rows. */
static void lay_out_pairs(arena *a, const torque_basis *basis, plan *pairs) {
  int n = pairs->spec->n_components, label[SPEC_MAX_BLADES], rank[SPEC_MAX_BLADES], size[SPEC_MAX_BLADES] = {0};
  for (int i = 0; i < n; i++) label[i] = i;
  for (int k = 0; k < torque_count(basis); k++)
    for (int e = 0; e < basis->element[k].n_entries; e++)
      join(label, n, basis->element[k].entry[e].row, basis->element[k].entry[e].column);
  for (int i = 0; i < n; i++) rank[i] = size[label[i]]++;
  int *by_distance = arena_array(a, int, n *n);
  bool *used = arena_array(a, bool, n);
  for (int i = 0; i < n * n; i++) by_distance[i] = -1;
  for (int k = 0; k < torque_count(basis); k++)
    for (int e = 0; e < basis->element[k].n_entries; e++) {
      const torque_entry *at = &basis->element[k].entry[e];
      int m = size[label[at->row]], distance = (rank[at->row] - rank[at->column] + m) % m;
      by_distance[distance * n + at->column] = at->row;
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
  if (!(x->depends & (DEPENDS_POSITION | DEPENDS_QUERY))) {
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

/* outputs: by frame. */
static void differentiate(arena *a, const plan *p, plan_gradient *g, const adjoint_output *const *outputs,
                          const int *count) {
  const spec *s = p->spec;
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
    g->sum[i] = expr_cotangent(pool, TORQUE_MOST + i, DEPENDS_BLOCK);
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

static void name_torques(arena *a, const plan *p, plan_gradient *g) {
  unsigned depends = DEPENDS_BLOCK | DEPENDS_POSITION | (p->per_head ? (unsigned)DEPENDS_HEAD : 0);
  g->tau = arena_array(a, const expr *, g->n_torques);
  for (int k = 0; k < g->n_torques; k++) g->tau[k] = expr_cotangent(p->spec->pool, k, depends);
}

/* NULL: nothing gains. */
static const plan_gradient *complete(arena *a, const plan *p, plan_gradient *g, const adjoint_output *const *outputs,
                                     const int *n_outputs) {
  const spec *s = p->spec;
  differentiate(a, p, g, outputs, n_outputs);
  finish(a, p, g);
  if (s->n_inputs > 0 && !p->of_rows)
    g->n_inputs = adjoint_scatters(a, s->pool, outputs[0], n_outputs[0], ADJOINT_INPUTS, &g->of_input);
  for (int frame = 0; frame < 2 && p->of_rows; frame++)
    g->n_row_inputs[frame] =
        adjoint_scatters(a, s->pool, outputs[frame], n_outputs[frame], ADJOINT_INPUTS, &g->of_row_input[frame]);
  int n_inputs = g->n_inputs + g->n_row_inputs[0] + g->n_row_inputs[1];
  if (g->n_boundaries == 0 && !g->has_positions && n_inputs == 0) return NULL;
  int count = 0;
  const expr **roots = arena_array(a, const expr *, 2 * (g->n_boundaries + s->n_axes) + n_inputs + 1);
  for (int i = 0; i < g->n_inputs; i++) roots[count++] = g->of_input[i].gradient;
  for (int frame = 0; frame < 2; frame++)
    for (int i = 0; i < g->n_row_inputs[frame]; i++) roots[count++] = g->of_row_input[frame][i].gradient;
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
    g->n_torques = torque_count(&g->basis);
    lay_out_pairs(a, &g->basis, g->pairs);
  }
  if (g->n_torques == 0 || g->pairs->n_terms == 0) return NULL; /* nothing that these blocks hold is turned */
  name_torques(a, p, g);
  const adjoint_output *outputs[2];
  int n_outputs[2];
  for (int frame = 0; frame < 2; frame++) n_outputs[frame] = outputs_of(a, p, g, (torque_frame)frame, &outputs[frame]);
  if (!complete(a, p, g, outputs, n_outputs)) return NULL;
  g->token->part = g->leaves->part = p->part;
  if (p->part) g->token->lanes = g->leaves->lanes = p->lanes; /* of the part with the most blocks */
  return g;
}

const plan_gradient_row *plan_gradient_build_row(arena *a, const plan *const *plans, int count) {
  plan_gradient_row *row = arena_new(a, plan_gradient_row);
  bool any = false;
  row->n_parts = count;
  for (int i = 0; i < count; i++) any = (row->part[i] = plan_gradient_build(a, plans[i])) || any;
  return any ? row : NULL;
}

const plan_gradient_row *plan_gradient_row_of(arena *a, const plan_gradient *of) {
  if (!of) return NULL;
  plan_gradient_row *row = arena_new(a, plan_gradient_row);
  *row = (plan_gradient_row){1, {of}};
  return row;
}

int plan_gradient_sums(const plan_gradient_row *row, int part) {
  int count = 0;
  for (int i = 0; i < part; i++) count += row->part[i] ? row->part[i]->n_boundaries : 0;
  return count;
}

int plan_gradient_scatters(const plan_gradient_row *row, int part) {
  int count = 0;
  for (int i = 0; i < part; i++) count += row->part[i] ? row->part[i]->n_scatters : 0;
  return count;
}

int plan_gradient_blocks(const plan_gradient_row *row) {
  int most = 0;
  for (int i = 0; i < row->n_parts; i++) {
    int blocks = row->part[i] ? row->part[i]->token->spec->n_blocks : 0;
    most = blocks > most ? blocks : most;
  }
  return most;
}

bool plan_gradient_has_positions(const plan_gradient_row *row) {
  bool some = false;
  for (int i = 0; i < row->n_parts; i++) some = some || (row->part[i] && row->part[i]->has_positions);
  return some;
}

const plan_gradient *plan_gradient_first(const plan_gradient_row *row) {
  for (int i = 0; i < row->n_parts; i++)
    if (row->part[i]) return row->part[i];
  return NULL;
}

const plan_gradient *plan_gradient_of_values(arena *a, const plan *p, bool per_head, const expr *const *values,
                                             int count) {
  plan_gradient *g = arena_new(a, plan_gradient);
  plan *of = arena_new(a, plan);
  *of = *p;
  of->per_head = per_head;
  g->n_torques = count;
  name_torques(a, of, g);
  adjoint_output *outputs = arena_array(a, adjoint_output, count);
  for (int i = 0; i < count; i++) outputs[i] = (adjoint_output){values[i], g->tau[i]};
  return complete(a, of, g, (const adjoint_output *const[]){outputs, outputs}, (int[]){count, count});
}

const plan_gradient *plan_gradient_of_sums(arena *a, const plan *p, const expr *const *sums, int count) {
  expr_pool *pool = p->spec->pool;
  plan_gradient *g = arena_new(a, plan_gradient);
  unsigned depends = DEPENDS_QUERY | (p->per_head ? (unsigned)DEPENDS_HEAD : 0);
  const expr **tau = arena_array(a, const expr *, count + 1);
  adjoint_output *outputs = arena_array(a, adjoint_output, count + 1);
  g->n_torques = count;
  g->tau = tau;
  for (int i = 0; i < count; i++) {
    tau[i] = expr_unary(pool, EXPR_NARROW, expr_cotangent(pool, i, depends));
    outputs[i] = (adjoint_output){sums[i], tau[i]};
  }
  if (!complete(a, p, g, (const adjoint_output *const[]){outputs, outputs}, (int[]){count, count})) return NULL;
  g->token->lanes = g->leaves->lanes = p->lanes;
  return g;
}
