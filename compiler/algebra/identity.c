/* algebra/identity: expansion into monomials of atoms; see algebra/identity.h. */
#include "algebra/identity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What rounding of constants leaves of a sum, relative to the sum of its terms' sizes. */
static const double ROUNDING = 0x1p-46;

/* MOST_WORK: terms that are made for one expression, all heads and blocks together. */
enum { MOST_DEGREE = 16, MOST_TERMS = 512, MOST_WORK = 1 << 20 };

/* 2 i: the atom i; 2 i + 1: one over it. */
typedef int atom;

/* factor times the product of the atoms, which rise; 0 stands behind them, and no atom is 0. */
typedef struct term {
  atom of[MOST_DEGREE];
  double factor, size; /* the sum of what was added up, and of its magnitudes */
} term;

typedef struct sum {
  int count; /* -1: too large to be expanded */
  term *terms; /* by their atoms */
} sum;

/* The expansion in one block of one head. */
typedef struct expansion {
  arena *memory;
  const spec *spec;
  int head, block, nodes, work;
  sum **known;   /* by the node's id */
  int *elements; /* pairs of an operand or input and an offset, which are atoms behind the nodes */
  int n_elements;
} expansion;

static const sum TOO_LARGE = {-1, NULL};

/* ---- sums of monomials ---- */

static int compare(const void *x, const void *y) {
  return memcmp(((const term *)x)->of, ((const term *)y)->of, sizeof((term *)0)->of);
}

/* Adds up terms of equal atoms; leaves out what cancels. */
static sum collected(term *terms, int count) {
  int kept = 0;
  qsort(terms, (size_t)count, sizeof *terms, compare);
  for (int i = 0; i < count;) {
    term all = terms[i++];
    for (; i < count && compare(&all, &terms[i]) == 0; i++) all.factor += terms[i].factor, all.size += terms[i].size;
    if (!(fabs(all.factor) <= ROUNDING * all.size)) terms[kept++] = all;
  }
  return kept <= MOST_TERMS ? (sum){kept, terms} : TOO_LARGE;
}

static sum constant(expansion *e, double value) {
  sum one = {value != 0, arena_new(e->memory, term)};
  *one.terms = (term){.factor = value, .size = fabs(value)};
  return one;
}

static bool is_constant(const sum *x) { return x->count == 0 || (x->count == 1 && x->terms[0].of[0] == 0); }
static double constant_of(const sum *x) { return x->count ? x->terms[0].factor : 0; }

static sum atom_of(expansion *e, int index) {
  sum one = constant(e, 1);
  one.terms[0].of[0] = 2 * (index + 1);
  return one;
}

static sum scaled(expansion *e, sum x, double by) {
  sum y = {x.count, arena_array(e->memory, term, x.count + 1)};
  for (int i = 0; i < x.count; i++) {
    y.terms[i] = x.terms[i];
    y.terms[i].factor *= by;
    y.terms[i].size *= fabs(by);
  }
  return y;
}

static sum added(expansion *e, sum x, sum y) {
  if (x.count < 0 || y.count < 0 || e->work > MOST_WORK) return TOO_LARGE;
  e->work += x.count + y.count;
  term *terms = arena_array(e->memory, term, x.count + y.count + 1);
  memcpy(terms, x.terms, sizeof *terms * (size_t)x.count);
  memcpy(terms + x.count, y.terms, sizeof *terms * (size_t)y.count);
  return collected(terms, x.count + y.count);
}

/* Whether the product's degree is one that a term has room for. */
static bool multiply(const term *x, const term *y, term *out) {
  int count = 0, i = 0, j = 0;
  *out = (term){.factor = x->factor * y->factor, .size = x->size * y->size};
  while (x->of[i] || y->of[j]) {
    bool is_first = !y->of[j] || (x->of[i] && x->of[i] <= y->of[j]);
    atom next = is_first ? x->of[i++] : y->of[j++];
    if (count && next % 2 && out->of[count - 1] == next - 1) { /* an atom and one over it */
      out->of[--count] = 0;
      continue;
    }
    if (count == MOST_DEGREE - 1) return false;
    out->of[count++] = next;
  }
  return true;
}

static sum product(expansion *e, sum x, sum y) {
  if (x.count < 0 || y.count < 0 || e->work > MOST_WORK) return TOO_LARGE;
  e->work += x.count * y.count;
  term *terms = arena_array(e->memory, term, x.count * y.count + 1);
  for (int i = 0; i < x.count; i++)
    for (int j = 0; j < y.count; j++)
      if (!multiply(&x.terms[i], &y.terms[j], &terms[i * y.count + j])) return TOO_LARGE;
  return collected(terms, x.count * y.count);
}

/* One over x: of a single monomial its atoms', of a sum an atom's by itself. */
static sum inverse(expansion *e, sum x, int node) {
  if (x.count == 0) return TOO_LARGE;
  sum y = x.count == 1 ? scaled(e, x, 1) : atom_of(e, node);
  for (int i = 0; i < MOST_DEGREE && y.terms->of[i]; i++) y.terms->of[i] ^= 1;
  if (x.count == 1) y.terms->factor = 1 / y.terms->factor, y.terms->size = fabs(y.terms->factor);
  return y;
}

/* ---- nodes ---- */

static sum expand(expansion *e, const expr *x);

static int leaf_index(const expansion *e, const expr *x) {
  return (x->n_heads > 1 ? e->head : 0) * e->spec->n_blocks + e->block;
}

/* Leaves of one element are one atom, whichever blocks their nodes serve. */
static sum element(expansion *e, int kind, const expr *x) {
  int i = 0, key[3] = {kind, x->index, x->offsets[leaf_index(e, x)]};
  while (i < e->n_elements && memcmp(&e->elements[3 * i], key, sizeof key) != 0) i++;
  if (i == e->n_elements) memcpy(&e->elements[3 * e->n_elements++], key, sizeof key);
  return atom_of(e, e->nodes + i);
}

/* A function that has no monomials: of constants its value, else an atom. */
static sum function(expansion *e, const expr *x) {
  double value[3] = {0};
  for (int i = 0; i < expr_op_arity(x->op); i++) {
    sum argument = expand(e, x->arg[i]);
    if (!is_constant(&argument)) return atom_of(e, x->id);
    value[i] = constant_of(&argument);
  }
  return constant(e, expr_apply(x->op, value[0], value[1], value[2]));
}

static sum expand_anew(expansion *e, const expr *x) {
  switch (x->op) {
  case EXPR_CONST: return constant(e, x->value);
  case EXPR_TABLE: return constant(e, x->table[leaf_index(e, x)]);
  case EXPR_OPERAND:
  case EXPR_INPUT: return element(e, x->op, x);
  case EXPR_POSITION:
  case EXPR_CHANNEL:
  case EXPR_COTANGENT:
  case EXPR_ELEMENT:
  case EXPR_INPUT_AT: return atom_of(e, x->id);
  case EXPR_NARROW:
  case EXPR_WIDEN: return expand(e, x->arg[0]);
  case EXPR_NEG: return scaled(e, expand(e, x->arg[0]), -1);
  default: break;
  }
  if (expr_op_arity(x->op) == 2) {
    sum a = expand(e, x->arg[0]), b = expand(e, x->arg[1]);
    switch (x->op) {
    case EXPR_ADD: return added(e, a, b);
    case EXPR_SUB: return added(e, a, scaled(e, b, -1));
    case EXPR_MUL: return product(e, a, b);
    case EXPR_DIV: return product(e, a, inverse(e, b, x->arg[1]->id));
    default: break;
    }
  }
  if (x->op == EXPR_SELECT) {
    sum condition = expand(e, x->arg[0]);
    if (is_constant(&condition)) return expand(e, x->arg[constant_of(&condition) != 0 ? 1 : 2]);
  }
  return function(e, x);
}

static sum expand(expansion *e, const expr *x) {
  if (!e->known[x->id]) {
    e->known[x->id] = arena_new(e->memory, sum);
    *e->known[x->id] = expand_anew(e, x);
  }
  return *e->known[x->id];
}

static bool is_zero_in(const spec *s, const expr *x, int head, int block, int *work) {
  arena *scratch = arena_create();
  expansion e = {.memory = scratch, .spec = s, .head = head, .block = block, .nodes = x->id + 1, .work = *work};
  e.known = arena_array(scratch, sum *, e.nodes);
  e.elements = arena_array(scratch, int, 3 * e.nodes);
  bool is_zero = expand(&e, x).count == 0;
  *work = e.work;
  arena_destroy(scratch);
  return is_zero;
}

bool identity_is_zero(const spec *s, const expr *x) {
  int heads = x->depends & DEPENDS_HEAD ? s->heads : 1, blocks = x->depends & DEPENDS_BLOCK ? s->n_blocks : 1, work = 0;
  for (int head = 0; head < heads; head++)
    for (int block = 0; block < blocks; block++)
      if (!is_zero_in(s, x, head, block, &work)) return false;
  return true;
}
