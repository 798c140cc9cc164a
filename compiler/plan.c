/* plan: terms, hoisting, vectors; see plan.h. */
#include "plan.h"

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

/* Term k takes, within each set of m components that mix, component (i + k) mod m for component i. */
static void build_terms(arena *a, plan *p) {
  int n = p->spec->n_components, label[SPEC_MAX_BLADES], member[SPEC_MAX_BLADES];
  label_components(p, label);
  p->source = arena_array(a, int, n * n);
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
        if (expr_is_const(entry(p, member[i], from), 0)) continue;
        source[member[i]] = from;
        used = true;
      }
    }
    if (used) p->n_terms++;
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
  return (x->depends & (DEPENDS_OPERAND | DEPENDS_HEAD)) && !(x->depends & (DEPENDS_POSITION | DEPENDS_CHANNEL));
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

static int next_power_of_two(int x, int least) {
  int power = least;
  while (power < x) power *= 2;
  return power;
}

enum { WIDEST_VECTOR = 16, NARROWEST_CHUNK = 4 };

plan *plan_build(arena *a, const block_program *program) {
  const spec *s = program->spec;
  plan *p = arena_new(a, plan);
  p->program = program;
  p->spec = s;
  p->block_of = arena_array(a, int, s->head_dim);
  p->component_of = arena_array(a, int, s->head_dim);
  for (int i = 0; i < s->head_dim; i++) p->block_of[i] = p->component_of[i] = -1;
  for (int c = 0; c < s->n_components; c++)
    for (int g = 0; g < s->n_blocks; g++) {
      int channel = s->channel[c * s->n_blocks + g];
      p->block_of[channel] = g;
      p->component_of[channel] = c;
    }
  build_terms(a, p);

  int nodes = expr_pool_count(s->pool);
  p->leaf = arena_array(a, const expr *, nodes);
  p->prepared = arena_array(a, const expr *, nodes);
  p->leaf_index = arena_array(a, int, nodes);
  p->prepared_index = arena_array(a, int, nodes);
  for (int i = 0; i < nodes; i++) p->leaf_index[i] = p->prepared_index[i] = -1;
  unsigned char *seen = arena_alloc(a, (size_t)nodes);
  for (int i = 0; i < s->n_components * s->n_components; i++) collect(p, program->matrix.entry[i], seen);
  int whole = s->n_blocks / WIDEST_VECTOR * WIDEST_VECTOR, rest = s->n_blocks - whole;
  p->lanes = whole + (rest ? next_power_of_two(rest, NARROWEST_CHUNK) : 0);
  return p;
}

/* ---- vectors ---- */

static void join(int *group, int count, int x, int y) {
  int keep = group[x], drop = group[y];
  for (int i = 0; i < count; i++)
    if (group[i] == drop) group[i] = keep;
}

static void group_vectors(const plan *p, plan_tile *t) {
  for (int j = 0; j < t->n_vectors; j++) t->group[j] = j;
  for (int j = 0; j < t->n_vectors; j++)
    for (int lane = 0; lane < t->width; lane++) {
      int channel = t->start[j] + lane;
      for (int i = 0; i < t->n_vectors; i++)
        if (i != j && channel >= t->start[i] && channel < t->start[i] + t->width) join(t->group, t->n_vectors, i, j);
      for (int k = 0; k < p->n_terms; k++) {
        int source = plan_source(p, k, channel);
        for (int i = 0; source >= 0 && i < t->n_vectors; i++)
          if (source >= t->start[i] && source < t->start[i] + t->width && t->group[i] != t->group[j]) join(t->group, t->n_vectors, i, j);
      }
    }
}

/* Whether a vector's coefficients in a term are absent, constants, or computed per token. */
static int slot_kind(const plan *p, int term, int start, int width) {
  bool absent = true, constant = true;
  for (int lane = 0; lane < width; lane++) {
    const expr *x = plan_coefficient(p, term, start + lane);
    if (!x || plan_is_identity(p, start + lane)) continue;
    absent = false;
    constant = constant && expr_is_fixed_for_heads(x);
  }
  return absent ? PLAN_ABSENT : constant ? PLAN_CONSTANT : 0;
}

plan_tile *plan_tile_build(arena *a, const plan *p, int width) {
  int d = p->spec->head_dim;
  while (width > d) width /= 2;
  plan_tile *t = arena_new(a, plan_tile);
  t->width = width;
  t->n_vectors = (d + width - 1) / width;
  t->start = arena_array(a, int, t->n_vectors);
  t->group = arena_array(a, int, t->n_vectors);
  for (int j = 0; j < t->n_vectors; j++) t->start[j] = (j + 1) * width <= d ? j * width : d - width;
  group_vectors(p, t);

  t->chunk_begin = arena_array(a, int, p->lanes);
  t->chunk_width = arena_array(a, int, p->lanes);
  for (int begin = 0; begin < p->spec->n_blocks;) {
    int left = p->spec->n_blocks - begin;
    int chunk = left >= width ? width : next_power_of_two(left, NARROWEST_CHUNK);
    if (chunk > width) chunk = width;
    t->chunk_begin[t->n_chunks] = begin;
    t->chunk_width[t->n_chunks++] = chunk;
    begin += chunk;
  }

  t->slot = arena_array(a, int, p->n_terms * t->n_vectors);
  for (int k = 0; k < p->n_terms; k++)
    for (int j = 0; j < t->n_vectors; j++) {
      int kind = slot_kind(p, k, t->start[j], width);
      t->slot[k * t->n_vectors + j] = kind == 0 ? t->n_slots++ : kind;
    }
  return t;
}

/* ---- text ---- */

void plan_print(FILE *out, const plan *p) {
  const spec *s = p->spec;
  int n = s->n_components;
  fprintf(out, "; %s: %d blocks of %d channels, %d channels passed through\n", s->name, s->n_blocks, n, s->head_dim - n * s->n_blocks);
  fprintf(out, "; %d terms a row; %d operations a block and token; coefficients %s\n", p->n_terms, p->token_operations,
          p->per_head ? "per token and head" : "per token, shared by all heads");
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
