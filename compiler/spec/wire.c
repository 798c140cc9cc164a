/* spec/wire: see spec/wire.h.
 *
 * One function for each struct names its fields and their ranges; whether it writes or reads is a matter of the cursor,
 * so that both sides cannot differ. Reading, a wrong value is replaced by the least one and the first reason is kept:
 * nothing that was read is looked at after it.
 */
#include "spec/wire.h"

#include "base/diag.h"
#include "base/text.h"

#include <math.h>
#include <string.h>

typedef struct wire {
  arena *memory;
  bool reading;
  unsigned char *bytes;
  size_t at, size; /* of bytes: the whole message when it is read, the room when it is written */
  const char *why; /* what is wrong with it */
  const expr **nodes;
} wire;

/* A field that is added to these structs is added to the functions below. */
#if defined(__LP64__)
_Static_assert(sizeof(spec) == 1824 && sizeof(spec_operand) == 168 && sizeof(spec_initial) == 104 &&
                   sizeof(spec_input) == 56,
               "fields of wire.c");
_Static_assert(sizeof(spec_dense) == 200 && sizeof(spec_basis) == 24 && sizeof(spec_polynomial) == 88,
               "fields of wire.c");
_Static_assert(sizeof(spec_pairwise) == 48 && sizeof(spec_additive) == 8 && sizeof(spec_option) == 72 &&
                   sizeof(spec_model) == 24,
               "fields of wire.c");
_Static_assert(sizeof(spec_function) == 24 && sizeof(spec_rotor) == 112 && sizeof(spec_part) == 48, "fields of wire.c");
#endif

static void wrong(wire *w, const char *why) {
  if (!w->why) w->why = why;
}

/* ---- bytes ---- */

static void write_bytes(wire *w, const void *data, size_t size) {
  if (w->size - w->at < size) {
    size_t room = 2 * w->size + size;
    unsigned char *grown = arena_alloc(w->memory, room);
    memcpy(grown, w->bytes, w->at);
    w->bytes = grown;
    w->size = room;
  }
  memcpy(w->bytes + w->at, data, size);
  w->at += size;
}

static void bytes(wire *w, void *data, size_t size) {
  if (!w->reading) {
    write_bytes(w, data, size);
    return;
  }
  if (w->why || w->size - w->at < size) {
    wrong(w, "an end too early");
    memset(data, 0, size);
    return;
  }
  memcpy(data, w->bytes + w->at, size);
  w->at += size;
}

/* ---- values ---- */

static void number(wire *w, int64_t *value, int64_t least, int64_t most) {
  bytes(w, value, sizeof *value);
  if (!w->why && *value >= least && *value <= most) return;
  if (!w->reading)
    diag_bug("spec/wire", "%lld, %lld to %lld is written", (long long)*value, (long long)least, (long long)most);
  wrong(w, "a number out of its range");
  *value = least;
}

/* A field of any integer type. */
#define NUMBER(w, field, least, most) \
  do { \
    int64_t passed = (int64_t)(field); \
    number((w), &passed, (least), (most)); \
    (field) = (__typeof__(field))passed; \
  } while (0)

static void flag(wire *w, bool *value) { NUMBER(w, *value, 0, 1); }

static void real(wire *w, double *value) { bytes(w, value, sizeof *value); }

static void finite_real(wire *w, double *value) {
  real(w, value);
  if (isfinite(*value)) return;
  wrong(w, "a number that is not finite");
  *value = 0;
}

static void text(wire *w, const char **value, size_t most) {
  size_t length = w->reading ? 0 : strlen(*value);
  NUMBER(w, length, 0, (int64_t)most);
  if (!w->reading) {
    write_bytes(w, *value, length);
    return;
  }
  if (length > w->size - w->at) {
    wrong(w, "an end too early");
    length = 0;
  }
  char *read = arena_alloc(w->memory, length + 1);
  bytes(w, read, length);
  *value = read;
  if (text_flaw(read, length)) wrong(w, "a text with characters that no text may have");
}

static void identifier(wire *w, const char **value) {
  text(w, value, TEXT_IDENTIFIER_LENGTH);
  if (w->reading && !text_is_identifier(*value)) wrong(w, "a name that is no identifier");
}

/* "heads", "blocks" or a size. */
static void dimension(wire *w, const char **value) {
  text(w, value, TEXT_IDENTIFIER_LENGTH);
  size_t digits = strspn(*value, "0123456789");
  if (w->reading && (digits == 0 || (*value)[digits]) && !text_is_identifier(*value))
    wrong(w, "a dimension that is neither a name nor a number");
}

/* Bytes of an array for the count of which there must be as many bytes in the message. */
static void *array(wire *w, const void *given, size_t count, size_t size) {
  if (!w->reading) {
    write_bytes(w, given, count * size);
    return (void *)given;
  }
  if (count > (w->size - w->at) / size) {
    wrong(w, "an end too early");
    return arena_alloc(w->memory, size);
  }
  void *read = arena_alloc(w->memory, count * size + size);
  bytes(w, read, count * size);
  return read;
}

#define ARRAY(w, field, count) ((field) = array((w), (field), (size_t)(count), sizeof *(field)))

/* A struct that may be absent: NULL, or a copy whose fields are to be read or written. */
static void *optional(wire *w, const void *given, size_t size) {
  bool present = given != NULL;
  flag(w, &present);
  if (!present) return NULL;
  void *fresh = arena_alloc(w->memory, size);
  return w->reading ? fresh : memcpy(fresh, given, size);
}

#define OPTIONAL(w, type, field, fields_of_found) \
  do { \
    type *found = optional((w), (field), sizeof *found); \
    if (found) fields_of_found; \
    (field) = found; \
  } while (0)

/* Structs that are read or written one by one: room for them, or a copy. */
static void *copied(wire *w, const void *given, int count, size_t size) {
  void *fresh = arena_alloc(w->memory, size * ((size_t)count + 1));
  return w->reading || count == 0 ? fresh : memcpy(fresh, given, size * (size_t)count);
}

/* Count structs in the arena, to be read or written one by one. */
#define LIST(w, list, count, most, each) \
  do { \
    NUMBER((w), (count), 0, (most)); \
    (list) = copied((w), (list), (count), sizeof *(list)); \
    for (int i = 0; i < (count); i++) each((w), &(list)[i]); \
  } while (0)

/* ---- expressions ---- */

static const expr *rebuild(expr_pool *pool, const expr *x) {
  switch (x->op) {
  case EXPR_CONST: return expr_const(pool, x->value);
  case EXPR_TABLE: return expr_table(pool, x->n_heads, x->table);
  case EXPR_POSITION: return expr_position(pool, x->index);
  case EXPR_OPERAND: return expr_operand(pool, x->index, x->n_heads, x->offsets);
  case EXPR_INPUT: return expr_input(pool, x->index, x->offsets);
  case EXPR_TERMS: return expr_terms(pool, x->index, x->table);
  case EXPR_CHANNEL: return expr_channel(pool, x->index); /* of which spec_validate knows where */
  case EXPR_COTANGENT: /* made by the compiler */
  case EXPR_NARROW: return NULL;
  case EXPR_WIDEN: /* the loader: of inputs alone */
    if (!expr_op_is_input(x->arg[0]->op)) return NULL;
    break;
  default: break;
  }
  return expr_rebuild(pool, x, x->arg);
}

/* Whether the pool made the node itself, not a simpler spelling of it. */
static bool is_as_asked(const expr *made, const expr *x) {
  return made->op == x->op && made->index == x->index && made->last == x->last &&
         made->n_heads == (x->op == EXPR_INPUT ? 1 : x->n_heads) && !memcmp(&made->value, &x->value, sizeof x->value) &&
         !memcmp(made->arg, x->arg, sizeof x->arg);
}

/* What a leaf may index, from 0; 0: this operation has no index. */
static int indexed(const spec *s, expr_op op) {
  switch (op) {
  case EXPR_POSITION: return SPEC_MAX_PLACES; /* of which spec_validate knows more */
  case EXPR_OPERAND:
  case EXPR_ELEMENT: return s->n_operands;
  case EXPR_INPUT:
  case EXPR_INPUT_AT: return s->n_inputs;
  case EXPR_TERMS:
  case EXPR_SUM: return SPEC_MAX_SUM + 1;
  case EXPR_CHANNEL: return 1; /* others are made by the compiler */
  default: return 0;
  }
}

static void leaves(wire *w, const spec *s, expr *x) {
  bool by_head = x->op == EXPR_TABLE || x->op == EXPR_OPERAND || x->op == EXPR_ELEMENT;
  if (by_head) NUMBER(w, x->n_heads, 1, s->heads);
  if (by_head && x->n_heads != 1 && x->n_heads != s->heads) wrong(w, "a leaf for some of the heads");
  int count = (by_head ? x->n_heads : 1) * s->n_blocks;
  if (expr_op_is_lookup(x->op)) NUMBER(w, x->last, 0, WIRE_ELEMENTS - 1);
  if (x->op == EXPR_CONST) real(w, &x->value);
  else if (x->op == EXPR_TABLE) ARRAY(w, x->table, count);
  else if (x->op == EXPR_TERMS) ARRAY(w, x->table, x->index);
  else if (by_head || x->op == EXPR_INPUT) ARRAY(w, x->offsets, count);
}

typedef struct node_size {
  int depth;
  double operations;
} node_size;

/* Node id, the nodes before it being known; sizes [id] of them. */
static void node(wire *w, const spec *s, int id, node_size *sizes) {
  expr x = w->reading ? (expr){0} : *w->nodes[id];
  NUMBER(w, x.op, 0, EXPR_OP_COUNT - 1);
  int terms = 0;
  sizes[id] = (node_size){1, 1};
  for (int i = 0; i < expr_op_arity(x.op); i++) {
    int argument = w->reading ? 0 : x.arg[i]->id;
    NUMBER(w, argument, 0, id - 1);
    if (w->why) return;
    x.arg[i] = w->nodes[argument];
    if (x.arg[i]->terms && terms && x.arg[i]->terms != terms) wrong(w, "terms of two sums together");
    if (x.arg[i]->terms) terms = x.arg[i]->terms;
    if (sizes[argument].depth >= sizes[id].depth) sizes[id].depth = sizes[argument].depth + 1;
    sizes[id].operations += sizes[argument].operations;
  }
  if (sizes[id].depth > WIRE_DEPTH || sizes[id].operations > WIRE_EXPRESSION)
    wrong(w, "an expression that is too large");
  int places = indexed(s, x.op);
  if (places > 0 || x.op == EXPR_OPERAND || x.op == EXPR_ELEMENT || expr_op_is_input(x.op))
    NUMBER(w, x.index, x.op == EXPR_TERMS || x.op == EXPR_SUM, places - 1);
  if (x.op == EXPR_SUM && terms != x.index) wrong(w, "a sum of other terms than its argument's");
  if (w->why) return;
  leaves(w, s, &x);
  if (!w->reading || w->why) return;
  const expr *made = w->nodes[id] = rebuild(s->pool, &x);
  if (!made || made->id != id || expr_pool_count(s->pool) != id + 1 || !is_as_asked(made, &x))
    wrong(w, "an expression that the loader does not make");
}

static void pool(wire *w, spec *s) {
  int count = w->reading ? 0 : expr_pool_count(s->pool);
  NUMBER(w, count, 0, WIRE_NODES);
  if (w->reading) s->pool = expr_pool_create(w->memory, s->n_blocks);
  if (w->reading && (size_t)count > (w->size - w->at) / sizeof(int64_t)) wrong(w, "an end too early");
  if (w->why) return;
  w->nodes = arena_array(w->memory, const expr *, count + 1);
  if (!w->reading) expr_pool_nodes(s->pool, w->nodes);
  node_size *sizes = arena_array(w->memory, node_size, count + 1);
  for (int id = 0; id < count && !w->why; id++) node(w, s, id, sizes);
}

static void root(wire *w, const spec *s, const expr **x) {
  int id = w->reading ? 0 : (*x)->id;
  NUMBER(w, id, 0, expr_pool_count(s->pool) - 1);
  if (w->reading) *x = w->why ? NULL : w->nodes[id];
  if (w->reading && *x && (*x)->terms) wrong(w, "terms outside of a sum");
}

static void optional_root(wire *w, const spec *s, const expr **x) {
  bool is_there = *x != NULL;
  flag(w, &is_there);
  if (is_there) root(w, s, x);
}

/* ---- parts of a description ---- */

static void initial(wire *w, const spec_operand *o, spec_initial *i) {
  NUMBER(w, i->kind, 0, INITIAL_KIND_COUNT - 1);
  finite_real(w, &i->deviation);
  flag(w, &i->truncated);
  finite_real(w, &i->low);
  finite_real(w, &i->high);
  NUMBER(w, i->direction, -1, o->rank - 1);
  NUMBER(w, i->same, 0, (1 << o->rank) - 1);
  int64_t count = 1;
  for (int d = 0; d < o->rank; d++) {
    NUMBER(w, i->sizes[d], 1, o->shape[d]);
    if (i->sizes[d] != 1 && i->sizes[d] != o->shape[d]) wrong(w, "factors for part of a dimension");
    count *= i->sizes[d];
    if (count > SPEC_MAX_FACTORS) {
      wrong(w, "too many factors of first values");
      count = 1;
    }
  }
  double *factor = copied(w, i->factor, (int)count, sizeof *factor);
  for (int64_t k = 0; k < count; k++) finite_real(w, &factor[k]);
  i->factor = factor;
}

static void operand(wire *w, spec_operand *o) {
  identifier(w, &o->name);
  text(w, &o->doc, WIRE_TEXT);
  text(w, &o->units, WIRE_TEXT);
  text(w, &o->source, WIRE_TEXT);
  text(w, &o->initializer, WIRE_TEXT);
  NUMBER(w, o->rank, 1, SPEC_MAX_RANK);
  int64_t elements = 1;
  for (int i = 0; i < o->rank; i++) {
    number(w, &o->shape[i], 1, WIRE_ELEMENTS / elements);
    elements *= o->shape[i];
    dimension(w, &o->dimension[i]);
  }
  OPTIONAL(w, spec_initial, o->initial, initial(w, o, found));
  finite_real(w, &o->test_scale);
  NUMBER(w, o->line, 0, INT32_MAX);
}

static void input(wire *w, spec_input *in) {
  identifier(w, &in->name);
  text(w, &in->doc, WIRE_TEXT);
  text(w, &in->units, WIRE_TEXT);
  text(w, &in->source, WIRE_TEXT);
  number(w, &in->size, SPEC_SIZE_OF_KEYS, SPEC_MAX_TERMS);
  finite_real(w, &in->test_scale);
  NUMBER(w, in->line, 0, INT32_MAX);
  flag(w, &in->of_keys);
}

static void choice(wire *w, const char **value) { text(w, value, WIRE_VALUE); }

static void option(wire *w, spec_option *o) {
  identifier(w, &o->name);
  text(w, &o->value, WIRE_VALUE);
  text(w, &o->otherwise, WIRE_VALUE);
  text(w, &o->doc, WIRE_TEXT);
  LIST(w, o->choice, o->n_choices, SPEC_MAX_CHOICES, choice);
  finite_real(w, &o->range[0]);
  finite_real(w, &o->range[1]);
  NUMBER(w, o->kind, 0, OPTION_KIND_COUNT - 1);
  flag(w, &o->given);
}

static void model_name(wire *w, const char **value) { text(w, value, WIRE_TEXT); }
static void model_define(wire *w, const char **value) { text(w, value, TEXT_IDENTIFIER_LENGTH + 1 + WIRE_VALUE); }

static void model(wire *w, spec_model *m) {
  LIST(w, m->name, m->n_names, SPEC_MAX_MODELS, model_name);
  LIST(w, m->define, m->n_defines, 256, model_define);
}

static void skew(wire *w, const spec *s, spec_skew *m, int blocks) {
  NUMBER(w, m->operand, 0, s->n_operands - 1);
  NUMBER(w, m->rule, SKEW_UPPER, SKEW_DIFFERENCE);
  NUMBER(w, m->n_heads, 1, s->heads);
  ARRAY(w, m->offset, m->n_heads * blocks);
}

static void dense(wire *w, const spec *s, spec_dense *d) {
  for (int axis = 0; axis < s->n_axes; axis++) skew(w, s, &d->generator[axis], s->n_blocks);
  NUMBER(w, d->map, DENSE_EXP, DENSE_MAP_COUNT - 1);
  flag(w, &d->is_f64);
}

static void blades(wire *w, spec *s) {
  NUMBER(w, s->algebra.p, 0, SPEC_MAX_DIMENSIONS);
  NUMBER(w, s->algebra.q, 0, SPEC_MAX_DIMENSIONS);
  NUMBER(w, s->algebra.r, 0, SPEC_MAX_DIMENSIONS);
  if (s->n_components > SPEC_MAX_BLADES) wrong(w, "a block of too many blades");
  for (int i = 0; i < s->n_components && !w->why; i++) {
    NUMBER(w, s->component[i].blade, 0, SPEC_MAX_BLADES - 1);
    NUMBER(w, s->component[i].sign, -1, 1);
  }
  for (int axis = 0; axis < s->n_axes; axis++) {
    spec_bivector *b = &s->generator[axis];
    NUMBER(w, b->count, 0, SPEC_MAX_BIVECTORS);
    for (int i = 0; i < b->count; i++) {
      NUMBER(w, b->blade[i], 0, SPEC_MAX_BLADES - 1);
      root(w, s, &b->coefficient[i]);
    }
  }
}

static void rotor(wire *w, const spec *s, spec_rotor *r) {
  NUMBER(w, r->op, 0, ROTOR_OP_COUNT - 1);
  NUMBER(w, r->axis, 0, s->n_axes - 1);
  NUMBER(w, r->n_args, 0, SPEC_MAX_ARGUMENTS);
  for (int i = 0; i < r->n_args; i++) {
    NUMBER(w, r->arg[i], 0, SPEC_MAX_ROTORS - 1);
    if (r->op == ROTOR_CHORDAL || r->op == ROTOR_SUM) root(w, s, &r->factor[i]);
  }
}

static void function(wire *w, const spec *s, spec_function *f) {
  text(w, &f->text, WIRE_TEXT);
  NUMBER(w, f->count, 1, SPEC_MAX_ROTORS);
  f->node = copied(w, f->node, f->count, sizeof *f->node);
  for (int i = 0; i < f->count && !w->why; i++) rotor(w, s, &f->node[i]);
}

/* Entries that the description writes. */
static void matrix(wire *w, const spec *s, const expr *const **entries) {
  int count = s->n_components * s->n_components;
  const expr **list = arena_array(w->memory, const expr *, count);
  for (int i = 0; i < count; i++) {
    if (!w->reading) list[i] = (*entries)[i];
    root(w, s, &list[i]);
  }
  *entries = list;
}

/* What turns; n_components above 0. */
static void rotors(wire *w, spec *s) {
  if (s->n_components * s->n_blocks > s->head_dim) {
    wrong(w, "blocks of more channels than a head has");
    return;
  }
  ARRAY(w, s->channel, s->n_components * s->n_blocks);
  NUMBER(w, s->combine, COMBINE_SUM, COMBINE_FUNCTION);
  for (int axis = 0; axis < s->n_axes; axis++) {
    NUMBER(w, s->order[axis], 0, s->n_axes - 1);
    root(w, s, &s->angle[axis]);
  }
  OPTIONAL(w, spec_dense, s->dense, dense(w, s, found));
  if (!s->dense) blades(w, s);
  NUMBER(w, s->dual_axes, 0, (1 << SPEC_MAX_AXES) - 1);
  NUMBER(w, s->products, PRODUCTS_FUSED, PRODUCTS_ROUNDED);
  bool gains = s->gain[0] != NULL;
  flag(w, &gains);
  for (int side = 0; side < 2 && gains; side++) root(w, s, &s->gain[side]);
  bool writes = s->entries[0] != NULL;
  flag(w, &writes);
  for (int side = 0; side < 2 && writes; side++) matrix(w, s, &s->entries[side]);
  optional_root(w, s, &s->pre);
  OPTIONAL(w, spec_function, s->function, function(w, s, found));
  OPTIONAL(w, spec_basis, s->basis, skew(w, s, &found->matrix, 1));
}

static void polynomial(wire *w, const spec *s, spec_polynomial *p) {
  NUMBER(w, p->degree, 1, SPEC_MAX_DEGREE);
  NUMBER(w, p->n_terms, 1, SPEC_MAX_TERMS);
  root(w, s, &p->value);
  for (int axis = 0; axis < s->n_axes; axis++) finite_real(w, &p->origin[axis]);
  flag(w, &p->has_call_origin);
  flag(w, &p->exact_scores);
  flag(w, &p->split_columns);
}

static void pairwise(wire *w, const spec *s, spec_pairwise *p) {
  NUMBER(w, p->value_dim, 1, SPEC_MAX_HEAD_DIM);
  finite_real(w, &p->scale);
  flag(w, &p->rotates);
  flag(w, &p->turns_values);
  optional_root(w, s, &p->bias);
  optional_root(w, s, &p->score);
  optional_root(w, s, &p->sink);
}

/* What comes before the expressions, whose leaves speak of it. */
static void sizes(wire *w, spec *s) {
  NUMBER(w, s->line, 0, INT32_MAX);
  identifier(w, &s->name);
  text(w, &s->doc, WIRE_TEXT);
  NUMBER(w, s->n_axes, 1, SPEC_MAX_AXES);
  int64_t tokens = 1;
  for (int axis = 0; axis < s->n_axes; axis++) {
    identifier(w, &s->axis[axis]);
    number(w, &s->grid[axis], 0, WIRE_TOKENS / tokens);
    if (s->grid[axis] > 1) tokens *= s->grid[axis];
  }
  NUMBER(w, s->head_dim, 1, SPEC_MAX_HEAD_DIM);
  NUMBER(w, s->heads, 1, WIRE_HEADS);
  NUMBER(w, s->n_blocks, 1, SPEC_MAX_HEAD_DIM);
  if (s->n_blocks > WIRE_HEADS / s->heads) wrong(w, "too many blocks in all heads");
  NUMBER(w, s->n_components, 0, SPEC_MAX_BLOCK);
  NUMBER(w, s->skip_tokens, 0, WIRE_TOKENS);
  finite_real(w, &s->amplitude);
  flag(w, &s->exact);
  flag(w, &s->inverse);
}

/* One of the parts of `whole`, whose operands are known. */
static void part(wire *w, spec *whole, spec_part *p) {
  spec *s = arena_new(w->memory, spec);
  if (!w->reading) *s = *p->of;
  s->head_dim = whole->head_dim;
  s->heads = whole->heads;
  s->n_operands = whole->n_operands;
  NUMBER(w, p->first, 0, whole->head_dim - 1);
  NUMBER(w, p->count, 1, whole->head_dim - p->first);
  NUMBER(w, s->n_axes, 1, whole->n_axes);
  for (int axis = 0; axis < s->n_axes; axis++) NUMBER(w, p->axis[axis], 0, whole->n_axes - 1);
  NUMBER(w, s->n_components, 1, SPEC_MAX_BLOCK);
  NUMBER(w, s->n_blocks, 1, SPEC_MAX_HEAD_DIM);
  if (s->n_blocks > WIRE_HEADS / s->heads) wrong(w, "too many blocks in all heads");
  finite_real(w, &s->amplitude);
  flag(w, &s->exact);
  if (w->why) return;
  pool(w, s);
  if (w->why) return;
  rotors(w, s);
  p->of = s;
}

/* They are written one after the other, so that the expressions of each stand before what is said of it. */
static void parts(wire *w, spec *s) {
  NUMBER(w, s->n_parts, 0, SPEC_MAX_PARTS);
  spec_part *list = copied(w, s->part, s->n_parts, sizeof *list);
  for (int i = 0; i < s->n_parts && !w->why; i++) part(w, s, &list[i]);
  s->part = list;
}

static void description(wire *w, spec *s) {
  int64_t mark = 0x31636570736567; /* "gespec1" */
  number(w, &mark, mark, mark);
  sizes(w, s);
  LIST(w, s->operand, s->n_operands, SPEC_MAX_OPERANDS, operand);
  LIST(w, s->input, s->n_inputs, SPEC_MAX_INPUTS, input);
  LIST(w, s->option, s->n_options, 256, option);
  LIST(w, s->model, s->n_models, SPEC_MAX_MODELS, model);
  if (w->why) return;
  pool(w, s);
  if (w->why) return;
  if (s->n_components > 0) rotors(w, s);
  OPTIONAL(w, spec_polynomial, s->polynomial, polynomial(w, s, found));
  OPTIONAL(w, spec_pairwise, s->pairwise, pairwise(w, s, found));
  OPTIONAL(w, spec_additive, s->additive, root(w, s, &found->value));
  if (!w->why) parts(w, s);
}

unsigned char *wire_write(arena *a, const spec *s, size_t *size) {
  if (expr_pool_blocks(s->pool) != s->n_blocks)
    diag_bug("spec/wire", "%d blocks, expressions of %d", s->n_blocks, expr_pool_blocks(s->pool));
  wire w = {.memory = a, .bytes = arena_alloc(a, 4096), .size = 4096};
  spec copy = *s;
  description(&w, &copy);
  *size = w.at;
  return w.bytes;
}

spec *wire_read(arena *a, const unsigned char *message, size_t size, const char **why) {
  wire w = {.memory = a, .reading = true, .bytes = (unsigned char *)message, .size = size};
  spec *s = arena_new(a, spec);
  description(&w, s);
  if (!w.why && w.at != size) wrong(&w, "bytes after its end");
  *why = w.why;
  if (!w.why) spec_share_with_parts(s);
  return w.why ? NULL : s;
}
