/* plan/plan: terms, hoisting; see plan/plan.h. Vectors are plan/tile.c's. */
#include "plan/plan.h"

static const expr *entry(const plan *p, int row, int column) {
  return p->program->matrix.entry[row * p->spec->n_components + column];
}

/* ---- terms ---- */

/* Components that mix with one another carry one label, the smallest component of the set. */
static void label_components(const plan *p, int *label) {
  int n = p->spec->n_components;
  for (int i = 0; i < n; i++) label[i] = i;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      if (expr_is_const(entry(p, i, j), 0) || label[i] == label[j]) continue;
      int keep = label[i] < label[j] ? label[i] : label[j], drop = label[i] < label[j] ? label[j] : label[i];
      for (int k = 0; k < n; k++)
        if (label[k] == drop) label[k] = keep;
    }
}

/* A 0 of the matrix where its transpose has none is taken like a number: the transposed matrix then has the same terms,
 * and one code turns rows by either. */
static bool is_taken(const plan *p, int row, int column) {
  return !expr_is_const(entry(p, row, column), 0) || !expr_is_const(entry(p, column, row), 0);
}

/* Term k takes, within each set of m components that mix, component (i + k) mod m for component i. */
static void build_terms(arena *a, plan *p) {
  int n = p->spec->n_components, label[SPEC_MAX_BLADES], member[SPEC_MAX_BLADES];
  label_components(p, label);
  p->source = arena_array(a, int, n *n);
  for (int i = 0; i < n * n; i++) p->source[i] = -1;
  for (int k = 0; k < n; k++) {
    bool used = false;
    int *source = p->source + p->n_terms * n;
    for (int first = 0; first < n; first++) {
      if (label[first] != first) continue;
      int m = 0;
      for (int i = first; i < n; i++)
        if (label[i] == first) member[m++] = i;
      for (int i = 0; i < m && k < m; i++) {
        int from = member[(i + k) % m];
        if (!is_taken(p, member[i], from)) continue;
        source[member[i]] = from;
        used = used || !expr_is_const(entry(p, member[i], from), 0);
      }
    }
    if (used) p->n_terms++;
    else
      for (int i = 0; i < n; i++) source[i] = -1;
  }
}

const expr *plan_coefficient(const plan *p, int term, int channel) {
  int row = p->component_of[channel];
  int column = row < 0 ? -1 : p->source[term * p->spec->n_components + row];
  return column < 0 ? NULL : entry(p, row, column);
}

int plan_source(const plan *p, int term, int channel) {
  int row = p->component_of[channel];
  int column = row < 0 ? -1 : p->source[term * p->spec->n_components + row];
  return column < 0 ? -1 : p->spec->channel[column * p->spec->n_blocks + p->block_of[channel]];
}

bool plan_is_identity(const plan *p, int channel) {
  int row = p->component_of[channel];
  if (row < 0) return true;
  for (int j = 0; j < p->spec->n_components; j++)
    if (!expr_is_const(entry(p, row, j), j == row)) return false;
  return true;
}

/* ---- hoisting ---- */

static bool is_prepared(const expr *x) {
  return (x->depends & (DEPENDS_OPERAND | DEPENDS_HEAD)) &&
         !(x->depends & (DEPENDS_POSITION | DEPENDS_CHANNEL | DEPENDS_QUERY));
}

static void collect_leaves(plan *p, const expr *x) {
  bool leaf = x->op == EXPR_OPERAND || (x->op == EXPR_TABLE && x->n_heads > 1);
  if (leaf && p->leaf_index[x->id] < 0) {
    p->leaf_index[x->id] = p->n_leaves;
    p->leaf[p->n_leaves++] = x;
  }
  for (int i = 0; i < expr_op_arity(x->op); i++) collect_leaves(p, x->arg[i]);
}

static void collect(plan *p, const expr *x, unsigned char *seen) {
  if (seen[x->id]) return;
  seen[x->id] = 1;
  if (x->depends & DEPENDS_HEAD) p->per_head = true;
  if (is_prepared(x)) {
    p->prepared_index[x->id] = p->n_prepared;
    p->prepared[p->n_prepared++] = x;
    collect_leaves(p, x);
    return;
  }
  for (int i = 0; i < expr_op_arity(x->op); i++) collect(p, x->arg[i], seen);
  if (expr_op_arity(x->op) > 0 && (x->depends & DEPENDS_POSITION)) p->token_operations++;
}

enum { WIDEST_VECTOR = 16 };

/* Which channel is which component of which block. */
static void find_blocks(arena *a, plan *p) {
  const spec *s = p->spec;
  p->end = s->head_dim;
  p->block_of = arena_array(a, int, s->head_dim);
  p->component_of = arena_array(a, int, s->head_dim);
  for (int i = 0; i < s->head_dim; i++) p->block_of[i] = p->component_of[i] = -1;
  for (int c = 0; c < s->n_components; c++)
    for (int g = 0; g < s->n_blocks; g++) {
      int channel = s->channel[c * s->n_blocks + g];
      p->block_of[channel] = g;
      p->component_of[channel] = c;
    }
}

enum { NARROWEST_CHUNK = 4 };

int plan_chunk_width(int blocks) {
  int width = NARROWEST_CHUNK;
  while (width < blocks) width *= 2;
  return blocks ? width : 0;
}

/* What the roots need of operands, and how long rows of block values are. Operations of a token are those of the first
 * `own` roots. */
static void hoist(arena *a, plan *p, const expr *const *roots, int count, int own) {
  const spec *s = p->spec;
  int nodes = expr_pool_count(s->pool);
  p->of_rows = spec_turns_rows(s);
  p->leaf = arena_array(a, const expr *, nodes);
  p->prepared = arena_array(a, const expr *, nodes);
  p->leaf_index = arena_array(a, int, nodes);
  p->prepared_index = arena_array(a, int, nodes);
  for (int i = 0; i < nodes; i++) p->leaf_index[i] = p->prepared_index[i] = -1;
  unsigned char *seen = arena_alloc(a, (size_t)nodes);
  for (int i = 0; i < own; i++) collect(p, roots[i], seen);
  int operations = p->token_operations;
  for (int i = own; i < count; i++) collect(p, roots[i], seen);
  p->token_operations = operations;
  p->lanes = s->n_blocks / WIDEST_VECTOR * WIDEST_VECTOR + plan_chunk_width(s->n_blocks % WIDEST_VECTOR);
}

plan *plan_of_expressions(arena *a, const spec *s, const expr *const *roots, int count) {
  plan *p = arena_new(a, plan);
  p->spec = s;
  find_blocks(a, p);
  hoist(a, p, roots, count, count);
  return p;
}

/* From these all other coefficients follow by signs and permutations. */
static void find_values(arena *a, plan *p) {
  int count = p->spec->n_components * p->spec->n_components;
  p->value = arena_array(a, const expr *, count);
  for (int i = 0; i < count; i++) {
    const expr *x = p->program->matrix.entry[i];
    if (expr_is_fixed_for_heads(x)) continue;
    if (x->op == EXPR_NEG) x = x->arg[0];
    int known = 0;
    while (known < p->n_values && p->value[known] != x) known++;
    if (known == p->n_values) p->value[p->n_values++] = x;
  }
}

/* inverse: NULL, or of the same blocks. */
static plan *build(arena *a, const block_program *program, const block_program *inverse) {
  const spec *s = program->spec;
  int count = s->n_components * s->n_components, n_roots = inverse ? 2 * count : count;
  const expr **roots = arena_array(a, const expr *, n_roots);
  for (int i = 0; i < n_roots; i++) roots[i] = i < count ? program->matrix.entry[i] : inverse->matrix.entry[i - count];
  plan *p = arena_new(a, plan);
  p->program = program;
  p->spec = s;
  find_blocks(a, p);
  build_terms(a, p);

  hoist(a, p, roots, n_roots, count);
  find_values(a, p);
  return p;
}

plan *plan_build(arena *a, const block_program *program) { return build(a, program, NULL); }

/* A plan of another matrix, whose expressions were hoisted with those of p. */
static plan *with_program(arena *a, const plan *p, const block_program *program) {
  plan *t = arena_new(a, plan);
  *t = *p;
  t->program = program;
  t->n_terms = 0;
  build_terms(a, t);
  return t;
}

plan *plan_build_with_inverse(arena *a, const block_program *program, const block_program *inverse) {
  plan *p = build(a, program, inverse);
  p->inverse = with_program(a, p, inverse);
  return p;
}

plan *plan_transpose(arena *a, const plan *p) {
  int n = p->spec->n_components;
  block_program *turned = arena_new(a, block_program);
  *turned = *p->program;
  turned->matrix.entry = arena_array(a, const expr *, n *n);
  for (int i = 0; i < n * n; i++) turned->matrix.entry[i] = p->program->matrix.entry[i % n * n + i / n];
  plan *t = with_program(a, p, turned);
  t->is_transposed = !p->is_transposed;
  return t;
}

/* ---- text ---- */

void plan_print(FILE *out, const plan *p) {
  const spec *s = p->spec;
  int n = s->n_components;
  fprintf(out, "; %s: %d blocks of %d channels, %d channels passed through\n", s->name, s->n_blocks, n,
          p->end - p->begin - n * s->n_blocks);
  if (p->part) fprintf(out, "; channels %d to %d\n", p->begin, p->end - 1);
  fprintf(out, "; %d terms a row; %d operations a block and token; coefficients %s\n", p->n_terms, p->token_operations,
          p->per_head ? "per token and head" : "per token, shared by all heads");
  if (s->exact || (s->dense && s->dense->is_f64)) fprintf(out, "; formed in float64 (within 2^-22), rounded once\n");
  if (p->n_prepared) {
    fprintf(out, "prepared once per call:\n");
    for (int i = 0; i < p->n_prepared; i++) fprintf(out, "  %%%d\n", p->prepared[i]->id);
  }
  fprintf(out, "matrix:\n");
  static const char *names[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  static char name[SPEC_MAX_BLADES * SPEC_MAX_BLADES][32];
  const expr *roots[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  int count = 0;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      if (expr_is_const(entry(p, i, j), 0)) continue;
      snprintf(name[count], sizeof name[count], "R[%d][%d]", i, j);
      names[count] = name[count];
      roots[count++] = entry(p, i, j);
    }
  expr_print_roots(out, roots, names, count);
  fprintf(out, "terms:\n");
  for (int k = 0; k < p->n_terms; k++) {
    fprintf(out, "  %d:", k);
    for (int i = 0; i < n; i++) {
      int from = p->source[k * n + i];
      if (from < 0) fprintf(out, " -");
      else fprintf(out, " R[%d][%d]", i, from);
    }
    fputc('\n', out);
  }
}
