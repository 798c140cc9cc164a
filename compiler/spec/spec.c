/* spec/spec: consistency of a description; see spec/spec.h.
 *
 * What a user can get wrong is caught earlier, with the line it stands on. This
 * is the border between the rooms: whatever made the description, the stages
 * after it may rely on what is checked here.
 */
#include "spec/spec.h"

#include "base/diag.h"
#include "spec/expr_facts.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool wrong(const spec *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool wrong(const spec *s, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  diag_error(s->file, s->line, "%s", text);
  return false;
}

static bool is_identifier(const char *name) {
  if (!name || !(isalpha((unsigned char)*name) || *name == '_')) return false;
  for (; *name; name++)
    if (!isalnum((unsigned char)*name) && *name != '_') return false;
  return true;
}

/* Names of pegen.h and of what every object has in it are no kernel's. */
static bool is_reserved(const char *name) { return !strncasecmp(name, "pegen", 5) && (!name[5] || name[5] == '_'); }

static bool check_name(const spec *s) {
  if (!is_identifier(s->name)) return wrong(s, "the name '%s' is no identifier", s->name ? s->name : "");
  if (is_reserved(s->name))
    return wrong(s, "the name '%s' is kept for pegen's own; expected another than 'pegen' and 'pegen_...'", s->name);
  return true;
}

/* COUNT is what headers call the number of them. */
static bool check_item_name(const spec *s, const char *what, int index, const char *name) {
  if (!is_identifier(name)) return wrong(s, "%s %d has no name", what, index);
  if (!strcmp(name, "COUNT")) return wrong(s, "%s %d is named 'COUNT', which is that of their number", what, index);
  return true;
}

static bool check_sizes(const spec *s) {
  if (!check_name(s)) return false;
  if (s->n_axes < 1 || s->n_axes > SPEC_MAX_AXES)
    return wrong(s, "%d axes, 1 to %d were expected", s->n_axes, SPEC_MAX_AXES);
  for (int a = 0; a < s->n_axes; a++)
    if (!is_identifier(s->axis[a])) return wrong(s, "axis %d has no name", a);
  if (s->head_dim < 1 || s->head_dim > SPEC_MAX_HEAD_DIM)
    return wrong(s, "head_dim is %d, 1 to %d was expected", s->head_dim, SPEC_MAX_HEAD_DIM);
  if (s->heads < 1) return wrong(s, "heads is %d, a positive number was expected", s->heads);
  if (s->skip_tokens < 0) return wrong(s, "skip_tokens is %d", s->skip_tokens);
  if (!isfinite(s->amplitude) || s->amplitude <= 0)
    return wrong(s, "amplitude is %g, a positive number was expected", s->amplitude);
  for (int a = 0; a < s->n_axes && s->grid[0]; a++)
    if (s->grid[a] < 1) return wrong(s, "the grid's size on axis '%s' is %lld", s->axis[a], (long long)s->grid[a]);
  return true;
}

static bool check_blades(const spec *s) {
  const spec_algebra *g = &s->algebra;
  int dimensions = g->p + g->q + g->r;
  if (g->p < 0 || g->q < 0 || g->r < 0 || dimensions < 1 || dimensions > SPEC_MAX_DIMENSIONS)
    return wrong(s, "no algebra Cl(%d,%d,%d) of 1 to %d dimensions", g->p, g->q, g->r, SPEC_MAX_DIMENSIONS);
  if (s->n_components < 1 || s->n_components > 1 << dimensions)
    return wrong(s, "a block of %d components", s->n_components);
  bool seen[SPEC_MAX_BLADES] = {false};
  for (int i = 0; i < s->n_components; i++) {
    const spec_component *c = &s->component[i];
    if (c->blade >= 1u << dimensions || (c->sign != 1 && c->sign != -1))
      return wrong(s, "component %d is no blade of the algebra", i);
    if (seen[c->blade]) return wrong(s, "component %d repeats a blade", i);
    seen[c->blade] = true;
  }
  return true;
}

static bool check_block(const spec *s) {
  if (s->dense && (s->n_components < 2 || s->n_components > SPEC_MAX_BLOCK))
    return wrong(s, "a dense block of %d channels, 2 to %d were expected", s->n_components, SPEC_MAX_BLOCK);
  if (!s->dense && !check_blades(s)) return false;
  if (s->n_blocks < 1 || s->n_components * s->n_blocks > s->head_dim)
    return wrong(s, "%d blocks of %d channels in a head of %d", s->n_blocks, s->n_components, s->head_dim);
  if (expr_pool_blocks(s->pool) != s->n_blocks) return wrong(s, "expressions of %d blocks", expr_pool_blocks(s->pool));
  bool taken[SPEC_MAX_HEAD_DIM] = {false};
  for (int i = 0; i < s->n_components * s->n_blocks; i++) {
    int channel = s->channel[i];
    if (channel < 0 || channel >= s->head_dim) return wrong(s, "channel %d is outside the head", channel);
    if (taken[channel]) return wrong(s, "channel %d is in two blocks", channel);
    taken[channel] = true;
  }
  return true;
}

/* Beside the DEPENDS_ bits: what a score may read, elements at computed places, which biases and scores may, and inputs
 * of keys, which a polynomial inside attention may, too. */
enum { READS_SCORE = 1 << 16, READS_ELEMENTS = 1 << 17, READS_KEYS = 1 << 18 };

static const struct {
  unsigned bit; /* DEPENDS_ */
  const char *of, *remedy;
} reads[] = {
    {DEPENDS_QUERY, "an input",
     ": rows of a separable description may turn by inputs, and the bias or score of a pairwise one may read them"},
    {DEPENDS_POSITION, "a coordinate of the position", ""},
    {DEPENDS_OPERAND, "an operand", ""},
    {DEPENDS_HEAD, "the head", ""},
    {DEPENDS_BLOCK, "the block", ""},
    {DEPENDS_CHANNEL, "a channel", ""},
};

static bool is_place(const spec *s, int index, unsigned allowed) {
  return index >= 0 &&
         (index < s->n_axes || (allowed & READS_SCORE && index >= SPEC_OF_SCORE && index < SPEC_MAX_PLACES));
}

/* Where a value lies. */
typedef struct range {
  double low, high;
} range;

/* By the id of a node: what is known of it. */
typedef struct visited {
  bool is_checked, has_range, has_factors;
  range range;
} visited;

static range range_of_leaf(const spec *s, const expr *x) {
  if (x->op == EXPR_CONST) return (range){x->value, x->value};
  if (x->op != EXPR_TABLE && x->op != EXPR_TERMS) return (range){-INFINITY, INFINITY};
  range r = {x->table[0], x->table[0]};
  for (int i = 1; i < (x->op == EXPR_TERMS ? x->terms : x->n_heads * s->n_blocks); i++) {
    if (x->table[i] < r.low) r.low = x->table[i];
    if (x->table[i] > r.high) r.high = x->table[i];
  }
  return r;
}

static range range_of(const spec *s, const expr *x, visited *seen);

/* Bounds by the operations that an index is made of; others know none. */
static range compute_range(const spec *s, const expr *x, visited *seen) {
  if (expr_op_arity(x->op) != 2) return range_of_leaf(s, x);
  range a = range_of(s, x->arg[0], seen), b = range_of(s, x->arg[1], seen), r = {-INFINITY, INFINITY};
  switch (x->op) {
  case EXPR_MIN: return (range){fmin(a.low, b.low), fmin(a.high, b.high)};
  case EXPR_MAX: return (range){fmax(a.low, b.low), fmax(a.high, b.high)};
  case EXPR_ADD: r = (range){a.low + b.low, a.high + b.high}; break;
  case EXPR_MUL:
    if (b.low == b.high && b.low >= 0) r = (range){a.low * b.low, a.high * b.low};
    if (a.low == a.high && a.low >= 0) r = (range){b.low * a.low, b.high * a.low};
    break;
  default: break;
  }
  return isnan(r.low) || isnan(r.high) ? (range){-INFINITY, INFINITY} : r;
}

static range range_of(const spec *s, const expr *x, visited *seen) {
  if (!seen[x->id].has_range) seen[x->id].range = compute_range(s, x, seen);
  seen[x->id].has_range = true;
  return seen[x->id].range;
}

static bool check_input(const spec *s, const expr *x, unsigned allowed, const char *what) {
  if (x->index < 0 || x->index >= s->n_inputs) return wrong(s, "%s reads input %d", what, x->index);
  const spec_input *in = &s->input[x->index];
  if (spec_input_is_pair(in) ? !(allowed & READS_SCORE) : in->of_keys && !(allowed & (READS_SCORE | READS_KEYS)))
    return wrong(s, "%s reads input '%s' of %s", what, in->name, in->of_keys ? "keys" : "pairs");
  return true;
}

/* An element of a row at a computed place: it lies inside the row. */
static bool check_input_at(const spec *s, const expr *x, unsigned allowed, visited *seen, const char *what) {
  const spec_input *in = &s->input[x->index];
  range index = range_of(s, x->arg[0], seen);
  if (!(allowed & READS_SCORE)) return wrong(s, "%s reads input '%s' at a computed place", what, in->name);
  if (x->last != in->size - 1) return wrong(s, "%s takes input '%s' to end at element %d", what, in->name, x->last);
  if (!(index.low >= 0 && index.high < (double)in->size))
    return wrong(s, "%s reads input '%s' at a place from %g to %g, 0 to %d was expected", what, in->name, index.low,
                 index.high, x->last);
  return true;
}

/* An element at a computed place: wherever that is, it lies inside the operand. */
static bool check_element(const spec *s, const expr *x, visited *seen, const char *what) {
  const spec_operand *o = &s->operand[x->index];
  range index = range_of(s, x->arg[0], seen);
  int64_t elements = spec_operand_elements(o);
  if (!(index.low >= 0 && index.high < (double)elements))
    return wrong(s, "%s reads operand '%s' at a place from %g to %g, 0 to %lld was expected", what, o->name, index.low,
                 index.high, (long long)elements - 1);
  int64_t last = (int64_t)index.high;
  for (int i = 0; i < x->n_heads * s->n_blocks; i++)
    if (x->offsets[i] + last >= elements)
      return wrong(s, "%s reads operand '%s' as far as element %lld of %lld", what, o->name,
                   (long long)(x->offsets[i] + last), (long long)elements);
  return true;
}

/* Leaves of an expression: finite, known axes and operands, offsets inside the operand.
 * allowed: the DEPENDS_ bits it may have. seen: [expr_pool_count]. */
static bool check_expr(const spec *s, const expr *x, unsigned allowed, visited *seen, const char *what) {
  for (int i = 0; i < (int)(sizeof reads / sizeof *reads); i++)
    if (x->depends & ~allowed & reads[i].bit)
      return wrong(s, "%s reads %s, which it may not here%s", what, reads[i].of, reads[i].remedy);
  if (seen[x->id].is_checked) return true;
  seen[x->id].is_checked = true;
  int leaves = x->n_heads * s->n_blocks;
  if (x->n_heads != 0 && x->n_heads != 1 && x->n_heads != s->heads)
    return wrong(s, "%s is for %d heads", what, x->n_heads);
  if (x->op == EXPR_CONST && !isfinite(x->value) && !(s->pairwise && x->value == -INFINITY))
    return wrong(s, "%s is not finite", what);
  for (int i = 0; x->op == EXPR_TABLE && i < leaves; i++)
    if (!isfinite(x->table[i]) && !(s->pairwise && x->table[i] == -INFINITY))
      return wrong(s, "%s is not finite in block %d", what, i % s->n_blocks);
  for (int i = 0; x->op == EXPR_TERMS && i < x->terms; i++)
    if (!isfinite(x->table[i])) return wrong(s, "%s is not finite in term %d of a sum", what, i);
  if ((x->op == EXPR_TERMS || x->op == EXPR_SUM) && !(allowed & READS_ELEMENTS))
    return wrong(s, "%s has a sum, which it may not here", what);
  if (x->op == EXPR_POSITION && !is_place(s, x->index, allowed)) return wrong(s, "%s reads axis %d", what, x->index);
  if (x->op == EXPR_OPERAND || x->op == EXPR_ELEMENT) {
    if (x->index < 0 || x->index >= s->n_operands) return wrong(s, "%s reads operand %d", what, x->index);
    const spec_operand *o = &s->operand[x->index];
    int64_t elements = spec_operand_elements(o);
    for (int i = 0; i < leaves; i++)
      if (x->offsets[i] < 0 || x->offsets[i] >= elements)
        return wrong(s, "%s reads past the end of operand '%s'", what, o->name);
    if (x->op == EXPR_ELEMENT && x->last != elements - 1)
      return wrong(s, "%s takes operand '%s' to end at element %d", what, o->name, x->last);
    if (x->op == EXPR_ELEMENT && !(allowed & READS_ELEMENTS))
      return wrong(s, "%s reads operand '%s' at a computed place", what, o->name);
    if (x->op == EXPR_ELEMENT && !check_element(s, x, seen, what)) return false;
  }
  if (expr_op_is_input(x->op) && !check_input(s, x, allowed, what)) return false;
  if (x->op == EXPR_INPUT_AT && !check_input_at(s, x, allowed, seen, what)) return false;
  if (x->op == EXPR_INPUT) {
    int64_t size = spec_input_numbers(&s->input[x->index]);
    for (int i = 0; i < s->n_blocks; i++)
      if (x->offsets[i] < 0 || x->offsets[i] >= size)
        return wrong(s, "%s reads past the end of input '%s'", what, s->input[x->index].name);
  }
  for (int i = 0; i < expr_op_arity(x->op); i++)
    if (!check_expr(s, x->arg[i], allowed, seen, what)) return false;
  return true;
}

/* Raw matrices of size x size inside of the operand. */
static bool check_skew(const spec *s, const spec_skew *m, int size, int blocks, const char *what) {
  if (m->operand < 0 || m->operand >= s->n_operands) return wrong(s, "%s reads operand %d", what, m->operand);
  const spec_operand *o = &s->operand[m->operand];
  if (o->rank < 2 || o->shape[o->rank - 1] != size || o->shape[o->rank - 2] != size)
    return wrong(s, "%s reads operand '%s', whose matrices are not %d x %d", what, o->name, size, size);
  if (m->rule != SKEW_UPPER && m->rule != SKEW_DIFFERENCE) return wrong(s, "%s is made by rule %d", what, (int)m->rule);
  if (m->n_heads != 1 && m->n_heads != s->heads) return wrong(s, "%s is for %d heads", what, m->n_heads);
  for (int i = 0; i < m->n_heads * blocks; i++)
    if (m->offset[i] < 0 || m->offset[i] > spec_operand_elements(o) - (int64_t)size * size)
      return wrong(s, "%s reads past the end of operand '%s'", what, o->name);
  return true;
}

static bool check_dense(const spec *s, visited *seen) {
  const unsigned allowed = DEPENDS_BLOCK | DEPENDS_HEAD | DEPENDS_OPERAND | DEPENDS_POSITION;
  if (s->combine != COMBINE_SUM) return wrong(s, "dense blocks combined by rule %d", (int)s->combine);
  for (int a = 0; a < s->n_axes; a++)
    if (!check_skew(s, &s->dense->generator[a], s->n_components, s->n_blocks, "a generator") ||
        !check_expr(s, s->angle[a], allowed, seen, "an angle"))
      return false;
  return true;
}

/* Axes that q is boosted back by are boosts, planes of one vector with a negative square; all others turn. */
static bool check_duals(const spec *s) {
  unsigned negative = ((1u << s->algebra.q) - 1) << s->algebra.p, null = ~0u << (s->algebra.p + s->algebra.q);
  if (s->dual_axes >> s->n_axes) return wrong(s, "more axes to boost back by than there are");
  for (int a = 0; a < s->n_axes; a++)
    for (int i = 0; i < s->generator[a].count; i++) {
      unsigned blade = s->generator[a].blade[i];
      if (blade & null || (__builtin_popcount(blade & negative) == 1) != (s->dual_axes >> a & 1))
        return wrong(s, "a generator of axis '%s' with no inverse transpose", s->axis[a]);
    }
  return true;
}

static bool check_entries(const spec *s, visited *seen) {
  const unsigned allowed = DEPENDS_BLOCK | DEPENDS_HEAD | DEPENDS_OPERAND | DEPENDS_POSITION | DEPENDS_QUERY;
  if (!s->entries[1] || s->n_components > SPEC_MAX_ENTRIES)
    return wrong(s, "a matrix of %d channels, or of one side alone", s->n_components);
  if (s->dense || s->basis || s->pairwise || s->function || s->gain[0] || s->pre || s->inverse || s->amplitude != 1)
    return wrong(s, "a matrix that is written beside what makes rotors");
  for (int side = 0; side < 2; side++)
    for (int i = 0; i < s->n_components * s->n_components; i++)
      if (!check_expr(s, s->entries[side][i], allowed, seen, "an entry of a matrix")) return false;
  for (int a = 0; a < s->n_axes; a++)
    if (s->generator[a].count || !check_expr(s, s->angle[a], 0, seen, "an angle"))
      return wrong(s, "a generator beside a matrix that is written");
  return true;
}

/* Products of phases and positions stay in the range of float32, of which GPUs' numbers are. */
static const double MOST_FACTOR = 0x1p100;

static bool check_factors(const spec *s, const expr *x, visited *seen) {
  if (seen[x->id].has_factors) return true;
  seen[x->id].has_factors = true;
  for (int i = 0; x->op == EXPR_TABLE && i < x->n_heads * s->n_blocks; i++)
    if (fabs(x->table[i]) > MOST_FACTOR) return wrong(s, "a phase has a factor of %g, 2^100 is the most", x->table[i]);
  if (x->op == EXPR_CONST && fabs(x->value) > MOST_FACTOR)
    return wrong(s, "a phase has a factor of %g, 2^100 is the most", x->value);
  for (int i = 0; i < expr_op_arity(x->op); i++)
    if (!check_factors(s, x->arg[i], seen)) return false;
  return true;
}

static bool check_angle(const spec *s, int axis, unsigned allowed, visited *seen) {
  return check_expr(s, s->angle[axis], allowed, seen, "an angle") && check_factors(s, s->angle[axis], seen);
}

/* Whether a plane turns blades of the block into blades of the block: e_ij takes one with i and without j to the one
 * with j in its place, unless e_i squares to 0 (dsl/algebra.lua, misfit). */
static bool keeps_block(const spec *s, unsigned plane) {
  unsigned regular = (1u << (s->algebra.p + s->algebra.q)) - 1;
  bool present[SPEC_MAX_BLADES] = {false};
  for (int i = 0; i < s->n_components; i++) present[s->component[i].blade] = true;
  for (int i = 0; i < s->n_components; i++) {
    unsigned blade = s->component[i].blade, shared = blade & plane;
    if (__builtin_popcount(shared) == 1 && shared & regular && !present[blade ^ plane]) return false;
  }
  return true;
}

static bool check_generators(const spec *s, visited *seen) {
  if (s->entries[0]) return check_entries(s, seen);
  if (s->dense) return check_dense(s, seen);
  unsigned dimensions = (unsigned)(s->algebra.p + s->algebra.q + s->algebra.r);
  const unsigned of_rows = s->pairwise ? 0 : DEPENDS_QUERY;
  const unsigned constant = DEPENDS_BLOCK | DEPENDS_HEAD | DEPENDS_OPERAND | of_rows;
  for (int a = 0; a < s->n_axes; a++) {
    const spec_bivector *b = &s->generator[a];
    if (b->count < 1 || b->count > SPEC_MAX_BIVECTORS)
      return wrong(s, "the generator of axis '%s' has %d blades", s->axis[a], b->count);
    for (int i = 0; i < b->count; i++) {
      if (__builtin_popcount(b->blade[i]) != 2 || b->blade[i] >= 1u << dimensions ||
          (i > 0 && b->blade[i] <= b->blade[i - 1]))
        return wrong(s, "the generator of axis '%s' has no ascending bivector blades of the algebra", s->axis[a]);
      if (!keeps_block(s, b->blade[i]))
        return wrong(s, "the generator of axis '%s' turns a blade of the block into one outside of it", s->axis[a]);
      if (!check_expr(s, b->coefficient[i], constant, seen, "a coefficient of a generator")) return false;
    }
    if (!check_angle(s, a, constant | DEPENDS_POSITION, seen)) return false;
  }
  if (s->dual_axes && !check_duals(s)) return false;
  for (int side = 0; side < 2 && (s->gain[0] || s->gain[1]); side++) {
    if (!s->gain[side]) return wrong(s, "an amplitude of one side alone");
    if (!check_expr(s, s->gain[side], constant | DEPENDS_POSITION, seen, "an amplitude")) return false;
  }
  return true;
}

static bool check_order(const spec *s) {
  bool seen[SPEC_MAX_AXES] = {false};
  for (int a = 0; a < s->n_axes; a++) {
    int axis = s->order[a];
    if (axis < 0 || axis >= s->n_axes || seen[axis]) return wrong(s, "the order of the axes is no permutation");
    seen[axis] = true;
  }
  return true;
}

static int arguments_of(const spec_rotor *r) {
  switch (r->op) {
  case ROTOR_AXIS: return 0;
  case ROTOR_PRODUCT: return 2;
  case ROTOR_INVERSE:
  case ROTOR_LOG:
  case ROTOR_EXP: return 1;
  default: return r->n_args > 0 && r->n_args <= SPEC_MAX_ARGUMENTS ? r->n_args : -1;
  }
}

static bool check_function(const spec *s, visited *seen) {
  const spec_function *f = s->function;
  if ((s->combine == COMBINE_FUNCTION) != (f != NULL)) return wrong(s, "a rule of rotors without its function");
  if (!f) return true;
  if (s->dense) return wrong(s, "a function of the rotors of dense blocks");
  if (f->count < 1 || f->count > SPEC_MAX_ROTORS) return wrong(s, "a function of %d rotors", f->count);
  for (int i = 0; i < f->count; i++) {
    const spec_rotor *r = &f->node[i];
    if (r->op == ROTOR_AXIS && (r->axis < 0 || r->axis >= s->n_axes)) return wrong(s, "a rotor of axis %d", r->axis);
    if (r->n_args != arguments_of(r)) return wrong(s, "a rotor of %d others", r->n_args);
    for (int k = 0; k < r->n_args; k++) {
      if (r->arg[k] < 0 || r->arg[k] >= i) return wrong(s, "a rotor of what comes behind it");
      if (spec_rotor_is_bivector(&f->node[r->arg[k]]) != (r->op == ROTOR_SUM || r->op == ROTOR_EXP))
        return wrong(s, "a rotor in place of a bivector");
      bool has_factor = r->op == ROTOR_CHORDAL || r->op == ROTOR_SUM;
      if (has_factor &&
          !check_expr(s, r->factor[k], DEPENDS_BLOCK | DEPENDS_HEAD | DEPENDS_OPERAND, seen, "a weight of rotors"))
        return false;
    }
  }
  return !spec_rotor_is_bivector(&f->node[f->count - 1]) || wrong(s, "a bivector in place of a rotor");
}

static bool check_initial(const spec *s, const spec_operand *o) {
  const spec_initial *first = o->initial;
  if (!first) return true;
  bool is_normal = first->kind == INITIAL_NORMAL;
  if (is_normal && !(first->deviation > 0)) return wrong(s, "first values of '%s' have no deviation", o->name);
  if ((first->kind == INITIAL_UNIFORM || first->truncated) && !(first->low < first->high))
    return wrong(s, "first values of '%s' are from an empty interval", o->name);
  if ((first->kind == INITIAL_DIRECTION) != (first->direction >= 0) || (first->truncated && !is_normal))
    return wrong(s, "first values of '%s' have what is another distribution's", o->name);
  if (first->direction >= 0 && first->same >> first->direction & 1)
    return wrong(s, "first values of '%s' are a direction of equal numbers", o->name);
  return true;
}

static bool check_operands(const spec *s) {
  if (s->n_operands > SPEC_MAX_OPERANDS)
    return wrong(s, "%d operands, at most %d were expected", s->n_operands, SPEC_MAX_OPERANDS);
  for (int i = 0; i < s->n_operands; i++) {
    const spec_operand *o = &s->operand[i];
    if (!check_item_name(s, "operand", i, o->name)) return false;
    if (o->rank < 1 || o->rank > SPEC_MAX_RANK) return wrong(s, "operand '%s' has rank %d", o->name, o->rank);
    for (int k = 0; k < o->rank; k++)
      if (o->shape[k] < 1) return wrong(s, "operand '%s' has a dimension of %lld", o->name, (long long)o->shape[k]);
    if (!check_initial(s, o)) return false;
  }
  return true;
}

long double spec_scale(const spec *s) {
  return s->pairwise && s->pairwise->scale > 0 ? (long double)s->pairwise->scale : 1 / sqrtl((long double)s->head_dim);
}

static bool check_pairwise(const spec *s, visited *seen) {
  const spec_pairwise *p = s->pairwise;
  if (p->value_dim < 1 || p->value_dim > SPEC_MAX_HEAD_DIM)
    return wrong(s, "value_dim is %d, 1 to %d was expected", p->value_dim, SPEC_MAX_HEAD_DIM);
  if (!(p->scale >= 0 && isfinite(p->scale)))
    return wrong(s, "scale is %g, a positive number or 0 was expected", p->scale);
  if (p->rotates != (s->n_components > 0))
    return wrong(s, "a rotation of pairs and no block, or a block and no rotation");
  if (p->turns_values && (!p->rotates || p->value_dim != s->head_dim || s->skip_tokens || s->amplitude != 1))
    return wrong(s, "values that are turned otherwise than keys, or stretched");
  const unsigned all = DEPENDS_BLOCK | DEPENDS_HEAD | DEPENDS_OPERAND | DEPENDS_POSITION | READS_ELEMENTS;
  if (p->score && p->bias) return wrong(s, "a score beside a bias");
  if (p->sink && s->polynomial) return wrong(s, "a sink beside a polynomial");
  return (!p->sink || check_expr(s, p->sink, DEPENDS_BLOCK | DEPENDS_HEAD | DEPENDS_OPERAND, seen, "the sink")) &&
         (!p->bias || check_expr(s, p->bias, all, seen, "the bias")) &&
         (!p->score || check_expr(s, p->score, all | DEPENDS_QUERY | READS_SCORE, seen, "the score"));
}

static bool check_inputs(const spec *s) {
  if (s->n_inputs > SPEC_MAX_INPUTS)
    return wrong(s, "%d inputs, at most %d were expected", s->n_inputs, SPEC_MAX_INPUTS);
  for (int i = 0; i < s->n_inputs; i++) {
    if (!check_item_name(s, "input", i, s->input[i].name)) return false;
    if (s->input[i].size < SPEC_SIZE_OF_KEYS || (spec_input_is_pair(&s->input[i]) && s->input[i].of_keys))
      return wrong(s, "input '%s' has %lld elements", s->input[i].name, (long long)s->input[i].size);
  }
  return true;
}

static bool check_polynomial(const spec *s, visited *seen) {
  const spec_polynomial *p = s->polynomial;
  if (p->degree < 1 || p->degree > SPEC_MAX_DEGREE)
    return wrong(s, "a bias of degree %d, 1 to %d was expected", p->degree, SPEC_MAX_DEGREE);
  if (p->n_terms < 1 || p->n_terms > SPEC_MAX_TERMS || p->n_terms != s->n_blocks)
    return wrong(s, "a bias of %d terms", p->n_terms);
  for (int a = 0; a < s->n_axes; a++)
    if (!isfinite(p->origin[a])) return wrong(s, "the origin is not finite on axis '%s'", s->axis[a]);
  const unsigned all = DEPENDS_BLOCK | DEPENDS_HEAD | DEPENDS_OPERAND | DEPENDS_POSITION | DEPENDS_QUERY;
  return check_expr(s, p->value, all | (s->pairwise ? READS_KEYS : 0), seen, "the bias");
}

static bool check_additive(const spec *s, visited *seen) {
  if (s->n_blocks != s->head_dim) return wrong(s, "something is added to %d channels of %d", s->n_blocks, s->head_dim);
  return check_expr(s, s->additive->value, DEPENDS_BLOCK | DEPENDS_HEAD | DEPENDS_OPERAND | DEPENDS_POSITION, seen,
                    "what is added");
}

/* What a part may be beside blocks of blades that turn by positions and operands. */
static bool check_part(const spec *s, const spec_part *part, int from) {
  const spec *of = part->of;
  if (part->first < from || part->count < 1 || part->first + part->count > s->head_dim)
    return wrong(s, "a part of the channels %d to %d", part->first, part->first + part->count - 1);
  bool seen[SPEC_MAX_AXES] = {false};
  for (int a = 0; a < of->n_axes; a++) {
    int axis = part->axis[a];
    if (axis < 0 || axis >= s->n_axes || seen[axis]) return wrong(s, "a part of axis %d", axis);
    seen[axis] = true;
  }
  if (of->n_components == 0 || of->dense || of->basis || of->polynomial || of->pairwise || of->additive)
    return wrong(s, "a part that is no blocks of blades");
  if (of->n_parts || of->n_inputs || of->grid[0]) return wrong(s, "a part with what is the whole's");
  if (spec_has_sides(of)) return wrong(s, "a part with another amplitude of q than of k");
  if (!spec_validate(of)) return false;
  for (int i = 0; i < of->n_components * of->n_blocks; i++)
    if (of->channel[i] < part->first || of->channel[i] >= part->first + part->count)
      return wrong(s, "channel %d is another part's", of->channel[i]);
  return true;
}

static bool check_parts(const spec *s) {
  if (s->n_parts > SPEC_MAX_PARTS) return wrong(s, "%d parts, at most %d were expected", s->n_parts, SPEC_MAX_PARTS);
  if (s->n_components || s->n_inputs || s->basis || s->polynomial || s->pairwise || s->additive)
    return wrong(s, "parts beside what is no part");
  for (int i = 0, from = 0; i < s->n_parts; i++) {
    if (!check_part(s, &s->part[i], from)) return false;
    from = s->part[i].first + s->part[i].count;
  }
  return true;
}

void spec_share_with_parts(spec *s) {
  for (int i = 0; i < s->n_parts; i++) {
    spec *of = s->part[i].of;
    of->file = s->file;
    of->line = s->line;
    of->name = s->name;
    of->doc = s->doc;
    of->head_dim = s->head_dim;
    of->heads = s->heads;
    of->skip_tokens = s->skip_tokens;
    of->inverse = s->inverse;
    of->n_operands = s->n_operands;
    of->operand = s->operand;
    for (int a = 0; a < of->n_axes; a++) of->axis[a] = s->axis[s->part[i].axis[a]];
  }
}

/* A map of channels: of numbers and the one channel alone. */
static bool is_of_channel(const expr *x) {
  if (expr_op_arity(x->op) == 0) return x->op == EXPR_CONST || (x->op == EXPR_CHANNEL && x->index == 0);
  for (int i = 0; i < expr_op_arity(x->op); i++)
    if (!is_of_channel(x->arg[i])) return false;
  return x->op != EXPR_ELEMENT;
}

static bool check_map(const spec *s, visited *seen) {
  if (s->n_components == 0 || s->dense || s->basis || s->polynomial || s->pairwise || s->additive)
    return wrong(s, "a map of channels of no blocks of blades");
  if (s->inverse) return wrong(s, "a map of channels turned back");
  if (!is_of_channel(s->pre) || !(s->pre->depends & DEPENDS_CHANNEL))
    return wrong(s, "a map of channels of something else");
  return check_expr(s, s->pre, DEPENDS_BLOCK | DEPENDS_CHANNEL, seen, "a map of channels");
}

bool spec_validate(const spec *s) {
  if (!check_sizes(s) || !check_operands(s) || !check_inputs(s)) return false;
  if (s->n_components > 0 && (!check_block(s) || !check_order(s))) return false;
  if (s->dual_axes && (s->dense || s->basis || s->function || s->pairwise || s->n_components == 0))
    return wrong(s, "boosts back of what does not boost");
  if (s->products && (s->dense || s->basis || s->pairwise || s->n_components == 0))
    return wrong(s, "products rounded of no blocks of blades");
  if (s->n_parts) return check_parts(s);
  if (s->gain[0] && (s->basis || s->dense || s->pairwise || s->n_components == 0))
    return wrong(s, "an amplitude that is a function, of no blocks of blades");
  if (s->basis && !check_skew(s, &s->basis->matrix, s->head_dim, 1, "the change of basis")) return false;
  visited *seen = arena_must(calloc((size_t)expr_pool_count(s->pool), sizeof *seen));
  bool valid = (s->n_components == 0 || (check_generators(s, seen) && check_function(s, seen))) &&
               (!s->pre || check_map(s, seen)) && (!s->polynomial || check_polynomial(s, seen)) &&
               (!s->additive || check_additive(s, seen)) &&
               (!s->pairwise || check_pairwise(s, seen)); /* last: what a score may read is no other's */
  free(seen);
  if (valid && s->dense && s->dense->map == DENSE_SCHUR && s->inverse) valid = wrong(s, "pe.schur with an inverse");
  return valid;
}

int spec_expressions(const spec *s, const expr **out) {
  int count = 0;
  for (int axis = 0; s->n_components && !s->n_parts && axis < s->n_axes; axis++) {
    out[count++] = s->angle[axis];
    for (int i = 0; !s->dense && i < s->generator[axis].count; i++) out[count++] = s->generator[axis].coefficient[i];
  }
  for (int side = 0; side < 2; side++) {
    for (int i = 0; s->entries[side] && i < s->n_components * s->n_components; i++) out[count++] = s->entries[side][i];
    if (s->gain[side]) out[count++] = s->gain[side];
  }
  if (s->additive) out[count++] = s->additive->value;
  if (s->pairwise && s->pairwise->bias) out[count++] = s->pairwise->bias;
  if (s->pairwise && s->pairwise->score) out[count++] = s->pairwise->score;
  if (s->pairwise && s->pairwise->sink) out[count++] = s->pairwise->sink;
  if (s->polynomial) out[count++] = s->polynomial->value;
  return count;
}

int64_t spec_operand_elements(const spec_operand *operand) {
  int64_t count = 1;
  for (int d = 0; d < operand->rank; d++) count *= operand->shape[d];
  return count;
}

int64_t spec_elements_before(const spec *s, int operand) {
  int64_t count = 0;
  for (int i = 0; i < operand; i++) count += spec_operand_elements(&s->operand[i]);
  return count;
}

bool spec_input_is_of_pairs(const spec *s, int input) {
  if (!s->pairwise || !s->polynomial) return s->pairwise != NULL;
  return s->input[input].of_keys || (s->pairwise->score && expr_reads_input(s->pairwise->score, input));
}

int64_t spec_grid_tokens(const spec *s) {
  int64_t tokens = 1;
  for (int axis = 0; axis < s->n_axes; axis++) tokens *= s->grid[axis];
  return s->grid[0] ? tokens + s->skip_tokens : 0;
}
