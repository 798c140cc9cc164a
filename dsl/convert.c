/* convert: from the vocabulary's checked tables to struct spec.
 *
 * encoding.lua has checked everything that a user can get wrong and calls
 * core.begin, core.merge and core.finish in this order, where a head has parts core.begin, core.merge and core.part
 * for each of them before. What arrives here is
 * flat: lists of numbers and strings, axes counted from 0.
 */
#include "base/diag.h"
#include "core.h"
#include "state.h"
#include "trace.h"

#include <string.h>

/* core.begin(blocks): the pool of the description's expressions. */
int convert_begin(lua_State *L) {
  dsl_state *s = dsl_state_of(L);
  lua_Integer blocks = luaL_checkinteger(L, 1);
  if (blocks < 1 || blocks > SPEC_MAX_HEAD_DIM) diag_bug("spec loader", "%d blocks", (int)blocks);
  s->pool = expr_pool_create(s->memory, (int)blocks);
  return 0;
}

/* core.merge(parts, heads) with parts[head * blocks + block + 1], or with one expression for
 * all: the merged expression, or nil and the head and block that differ in form. */
int convert_merge(lua_State *L) {
  dsl_state *s = dsl_state_of(L);
  int heads = (int)luaL_checkinteger(L, 2), blocks = expr_pool_blocks(s->pool);
  if (heads < 1 || heads > DSL_MAX_ROWS / blocks) diag_bug("spec loader", "%d heads", heads);
  int count = heads * blocks;
  const trace **parts = lua_newuserdatauv(L, sizeof *parts * (size_t)count, 0);
  double size = 0;
  for (int i = 0; i < count; i++) {
    if (lua_istable(L, 1)) {
      lua_rawgeti(L, 1, i + 1);
      parts[i] = trace_check(L, -1);
      lua_pop(L, 1);
    } else {
      parts[i] = trace_check(L, 1);
    }
    size += parts[i]->size;
  }
  if (size > 64.0 * DSL_TRACE_NODES) where_fail(L, "the expressions of all heads and blocks are too large together");
  limits_charge(L, 4 * (long long)size);
  int odd;
  const expr *merged = trace_merge(L, s->pool, heads, parts, &odd);
  if (merged) {
    lua_pushlightuserdata(L, (void *)merged);
    return 1;
  }
  lua_pushnil(L);
  lua_pushinteger(L, odd / blocks);
  lua_pushinteger(L, odd % blocks);
  return 3;
}

/* ---- fields of the table on the top ---- */

/* What is on the top, popped. */
static const char *take_text(lua_State *L) {
  const char *text = arena_strdup(dsl_state_of(L)->memory, luaL_checkstring(L, -1));
  lua_pop(L, 1);
  return text;
}

static lua_Integer take_integer(lua_State *L) {
  lua_Integer value = luaL_checkinteger(L, -1);
  lua_pop(L, 1);
  return value;
}

static double take_number(lua_State *L) {
  double value = luaL_checknumber(L, -1);
  lua_pop(L, 1);
  return value;
}

static bool take_flag(lua_State *L) {
  bool value = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return value;
}

static const expr *take_expr(lua_State *L) {
  if (!lua_islightuserdata(L, -1)) diag_bug("spec loader", "an expression was not merged");
  const expr *x = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return x;
}

/* NAME_field(L, field) of the table on the top, and NAME_at(L, i) of the list there. */
#define READERS(type, name) \
  static type name##_field(lua_State *L, const char *field) { \
    lua_getfield(L, -1, field); \
    return take_##name(L); \
  } \
  __attribute__((unused)) static type name##_at(lua_State *L, int i) { \
    lua_rawgeti(L, -1, i + 1); \
    return take_##name(L); \
  }
READERS(const char *, text)
READERS(lua_Integer, integer)
READERS(double, number)
READERS(bool, flag)
READERS(const expr *, expr)

/* Pushes table[name], a list; its length, at most `most`. */
static int open_list(lua_State *L, const char *name, int most) {
  lua_getfield(L, -1, name);
  luaL_checktype(L, -1, LUA_TTABLE);
  lua_Unsigned length = lua_rawlen(L, -1);
  if (length > (lua_Unsigned)most) diag_bug("spec loader", "'%s' has %d entries", name, (int)length);
  return (int)length;
}

/* A loop over the list in a field, which is on the top in the loop and popped behind it; and over tables, each of which
 * is on the top. */
#define EACH(L, i, n, field, most) for (int i = 0, n = open_list(L, field, most); i < n || (lua_pop(L, 1), false); i++)
#define EACH_TABLE(L, i, n, field, most) \
  for (int i = 0, n = open_list(L, field, most); i < n ? (lua_rawgeti(L, -1, i + 1), true) : (lua_pop(L, 1), false); \
       lua_pop(L, 1), i++)

static int length_of(lua_State *L, const char *field, int most) {
  int length = open_list(L, field, most);
  lua_pop(L, 1);
  return length;
}

/* Whether the table has a field, which then is on the top. */
static bool open_field(lua_State *L, const char *field) {
  if (lua_getfield(L, -1, field) != LUA_TNIL) return true;
  lua_pop(L, 1);
  return false;
}

/* Reads a field that may be missing, with the field on the top. */
#define OPTIONAL(L, field, read) \
  do { \
    if (!open_field(L, field)) break; \
    read; \
    lua_pop(L, 1); \
  } while (0)

/* ---- parts of the description ---- */

/* Index of a word in a list of `count`; the vocabulary has said one of them. */
static int index_of(const char *word, const char *const *words) {
  int i = 0;
  while (strcmp(word, words[i]) != 0) i++;
  return i;
}

static const spec_initial *read_initial(lua_State *L) {
  static const char *const kinds[INITIAL_KIND_COUNT] = {
#define X(name, text) text,
      INITIAL_KINDS(X)
#undef X
  };
  arena *memory = dsl_state_of(L)->memory;
  spec_initial *first = arena_array(memory, spec_initial, 1);
  first->kind = (spec_initial_kind)index_of(text_field(L, "kind"), kinds);
  first->deviation = number_field(L, "deviation");
  first->truncated = flag_field(L, "truncated");
  first->low = number_field(L, "low");
  first->high = number_field(L, "high");
  first->direction = (int)integer_field(L, "direction");
  EACH(L, i, count, "same", SPEC_MAX_RANK) first->same |= 1u << integer_at(L, i);
  EACH(L, i, count, "sizes", SPEC_MAX_RANK) first->sizes[i] = integer_at(L, i);
  double *factor = arena_array(memory, double, length_of(L, "factor", SPEC_MAX_FACTORS));
  EACH(L, i, count, "factor", SPEC_MAX_FACTORS) factor[i] = number_at(L, i);
  first->factor = factor;
  return first;
}

static void read_operand(lua_State *L, spec_operand *o) {
  o->name = text_field(L, "name");
  o->doc = text_field(L, "doc");
  o->units = text_field(L, "units");
  o->source = text_field(L, "source");
  o->initializer = text_field(L, "init");
  OPTIONAL(L, "initial", o->initial = read_initial(L));
  o->test_scale = number_field(L, "test_scale");
  o->line = (int)integer_field(L, "line");
  o->rank = length_of(L, "sizes", SPEC_MAX_RANK);
  EACH(L, i, rank, "sizes", SPEC_MAX_RANK) o->shape[i] = integer_at(L, i);
  EACH(L, i, rank, "dimensions", SPEC_MAX_RANK) o->dimension[i] = text_at(L, i);
}

static void read_generator(lua_State *L, spec_bivector *b) {
  b->count = length_of(L, "blades", SPEC_MAX_BIVECTORS);
  EACH(L, i, count, "blades", SPEC_MAX_BIVECTORS) b->blade[i] = (unsigned)integer_at(L, i);
  EACH(L, i, count, "coefficients", SPEC_MAX_BIVECTORS) b->coefficient[i] = expr_at(L, i);
}

static void read_skew(lua_State *L, spec_skew *m) {
  m->operand = (int)integer_field(L, "operand");
  m->rule = strcmp(text_field(L, "rule"), "upper") == 0 ? SKEW_UPPER : SKEW_DIFFERENCE;
  m->n_heads = (int)integer_field(L, "rows");
  int32_t *offset = arena_array(dsl_state_of(L)->memory, int32_t, length_of(L, "offsets", DSL_MAX_ROWS));
  EACH(L, i, count, "offsets", DSL_MAX_ROWS) offset[i] = (int32_t)integer_at(L, i);
  m->offset = offset;
}

/* What is made of a dense block's matrix. */
static spec_dense_map read_map(lua_State *L) {
  static const char *const words[DENSE_MAP_COUNT] = {
#define X(name, text) text,
      DENSE_MAPS(X)
#undef X
  };
  return (spec_dense_map)index_of(text_field(L, "map"), words);
}

static void read_generators(lua_State *L, spec *d) {
  arena *memory = dsl_state_of(L)->memory;
  spec_dense *dense = flag_field(L, "dense") ? arena_new(memory, spec_dense) : NULL;
  EACH_TABLE(L, i, n, "generators", SPEC_MAX_AXES)
  if (dense) read_skew(L, &dense->generator[i]);
  else read_generator(L, &d->generator[i]);
  if (dense) dense->map = read_map(L);
  if (dense) dense->is_f64 = flag_field(L, "is_f64");
  d->dense = dense;
  const expr *phase[SPEC_MAX_AXES], *position[SPEC_MAX_AXES];
  EACH(L, i, n, "phases", SPEC_MAX_AXES) phase[i] = expr_at(L, i);
  EACH(L, i, n, "positions", SPEC_MAX_AXES) position[i] = expr_at(L, i);
  for (int i = 0; i < d->n_axes; i++) d->angle[i] = expr_mul(d->pool, phase[i], position[i]);
  if (!flag_field(L, "rounds_phases")) return;
  for (int i = 0; i < d->n_axes; i++) { /* two float32 multiplied as a float32 */
    const expr *speed = expr_unary(d->pool, EXPR_ROUND32, phase[i]);
    const expr *r = expr_unary(d->pool, EXPR_ROUND32, position[i]);
    d->angle[i] = expr_unary(d->pool, EXPR_ROUND32, expr_mul(d->pool, speed, r));
  }
}

static void read_blades(lua_State *L, spec *d) {
  open_list(L, "algebra", 3);
  d->algebra = (spec_algebra){(int)integer_at(L, 0), (int)integer_at(L, 1), (int)integer_at(L, 2)};
  lua_pop(L, 1);
  EACH(L, i, count, "blades", SPEC_MAX_BLADES) d->component[i].blade = (unsigned)integer_at(L, i);
  EACH(L, i, count, "signs", SPEC_MAX_BLADES) d->component[i].sign = (int)integer_at(L, i);
}

static void read_block(lua_State *L, spec *d, arena *memory) {
  if (!d->dense) read_blades(L, d);
  d->n_components = (int)integer_field(L, "size");
  d->n_blocks = (int)integer_field(L, "blocks");
  int count = length_of(L, "channels", SPEC_MAX_HEAD_DIM);
  if (count != d->n_components * d->n_blocks) diag_bug("spec loader", "%d channels", count);
  int *channel = arena_array(memory, int, count);
  EACH(L, i, n, "channels", SPEC_MAX_HEAD_DIM) channel[i] = (int)integer_at(L, i);
  d->channel = channel;
}

static void read_pairwise(lua_State *L, spec *d, arena *memory) {
  spec_pairwise *p = arena_new(memory, spec_pairwise);
  p->value_dim = (int)integer_field(L, "value_dim");
  p->scale = number_field(L, "scale");
  if (open_field(L, "bias")) p->bias = take_expr(L);
  if (open_field(L, "score")) p->score = take_expr(L);
  if (open_field(L, "sink")) p->sink = take_expr(L);
  p->rotates = d->n_components > 0;
  p->turns_values = flag_field(L, "turns_values");
  if (!p->rotates) d->n_blocks = 1;
  d->pairwise = p;
}

static void read_input(lua_State *L, spec_input *in) {
  in->name = text_field(L, "name");
  in->doc = text_field(L, "doc");
  in->units = text_field(L, "units");
  in->source = text_field(L, "source");
  in->size = integer_field(L, "size");
  in->of_keys = flag_field(L, "of_keys");
  in->test_scale = number_field(L, "test_scale");
  in->line = (int)integer_field(L, "line");
}

static void read_inputs(lua_State *L, spec *d, arena *memory) {
  d->n_inputs = length_of(L, "inputs", SPEC_MAX_INPUTS);
  d->input = arena_array(memory, spec_input, d->n_inputs + 1);
  EACH_TABLE(L, i, n, "inputs", SPEC_MAX_INPUTS) read_input(L, &d->input[i]);
}

static void read_model(lua_State *L, spec_model *m, arena *memory) {
  m->n_names = length_of(L, "names", SPEC_MAX_MODELS);
  m->name = arena_array(memory, const char *, m->n_names + 1);
  EACH(L, i, n, "names", SPEC_MAX_MODELS) m->name[i] = text_at(L, i);
  m->n_defines = length_of(L, "defines", DSL_OPTIONS);
  m->define = arena_array(memory, const char *, m->n_defines + 1);
  EACH_TABLE(L, i, n, "defines", DSL_OPTIONS) {
    const char *name = text_field(L, "name");
    m->define[i] = arena_printf(memory, "%s=%s", name, text_field(L, "value"));
  }
}

static void read_models(lua_State *L, spec *d, arena *memory) {
  d->n_models = length_of(L, "models", SPEC_MAX_MODELS);
  d->model = arena_array(memory, spec_model, d->n_models + 1);
  EACH_TABLE(L, i, n, "models", SPEC_MAX_MODELS) read_model(L, &d->model[i], memory);
}

static void read_polynomial(lua_State *L, spec *d, arena *memory) {
  spec_polynomial *p = arena_new(memory, spec_polynomial);
  p->value = expr_field(L, "value");
  p->degree = (int)integer_field(L, "degree");
  p->n_terms = d->n_blocks = (int)integer_field(L, "terms");
  p->has_call_origin = flag_field(L, "has_call_origin");
  p->exact_scores = flag_field(L, "exact_scores");
  p->split_columns = flag_field(L, "split_columns");
  EACH(L, i, n, "origin", SPEC_MAX_AXES) p->origin[i] = number_at(L, i);
  d->polynomial = p;
}

static void read_additive(lua_State *L, spec *d, arena *memory) {
  spec_additive *sum = arena_new(memory, spec_additive);
  sum->value = expr_field(L, "value");
  d->n_blocks = (int)integer_field(L, "channels");
  d->additive = sum;
}

static void read_rotor(lua_State *L, spec_rotor *r) {
  static const char *const words[ROTOR_OP_COUNT] = {
#define X(name, text) text,
      ROTOR_OPS(X)
#undef X
  };
  r->op = (spec_rotor_op)index_of(text_field(L, "op"), words);
  r->axis = (int)integer_field(L, "axis");
  r->n_args = length_of(L, "arguments", SPEC_MAX_ARGUMENTS);
  EACH(L, i, n, "arguments", SPEC_MAX_ARGUMENTS) r->arg[i] = (int)integer_at(L, i);
  EACH(L, i, n, "factors", SPEC_MAX_ARGUMENTS) r->factor[i] = expr_at(L, i);
}

/* A function of rotors, on the top. */
static const spec_function *read_function(lua_State *L) {
  arena *memory = dsl_state_of(L)->memory;
  spec_function *f = arena_new(memory, spec_function);
  f->text = text_field(L, "text");
  f->count = length_of(L, "nodes", SPEC_MAX_ROTORS);
  f->node = arena_array(memory, spec_rotor, f->count);
  EACH_TABLE(L, i, n, "nodes", SPEC_MAX_ROTORS) read_rotor(L, &f->node[i]);
  return f;
}

static void read_combine(lua_State *L, spec *d) {
  static const char *const names[] = {"sum", "mean", "product", "symmetric", "function"}; /* ORDER spec_combine */
  d->combine = (spec_combine)index_of(text_field(L, "combine"), names);
  OPTIONAL(L, "rotors", d->function = read_function(L));
  if (d->dense && d->combine == COMBINE_MEAN) { /* a sum of smaller angles */
    for (int i = 0; i < d->n_axes; i++)
      d->angle[i] = expr_mul(d->pool, d->angle[i], expr_const(d->pool, 1.0 / d->n_axes));
    d->combine = COMBINE_SUM;
  }
  EACH(L, i, n, "order", SPEC_MAX_AXES) d->order[i] = (int)integer_at(L, i);
}

/* Reads the gains of q and of k. */
static void read_gains(lua_State *L, spec *d) {
  if (lua_getfield(L, -1, "gains") == LUA_TTABLE)
    for (int side = 0; side < 2; side++) d->gain[side] = expr_at(L, side);
  lua_pop(L, 1);
}

/* Entries of a matrix that the description writes, of q and of k. */
static void read_matrices(lua_State *L, spec *d) {
  if (lua_getfield(L, -1, "matrices") == LUA_TTABLE)
    for (int side = 0; side < 2; side++) {
      lua_rawgeti(L, -1, side + 1);
      int count = (int)lua_rawlen(L, -1);
      const expr **entries = arena_array(dsl_state_of(L)->memory, const expr *, count);
      for (int i = 0; i < count; i++) entries[i] = expr_at(L, i);
      d->entries[side] = entries;
      lua_pop(L, 1);
    }
  lua_pop(L, 1);
}

/* The map of a channel; one that changes nothing is none. */
static void read_map_of_channels(lua_State *L, spec *d) {
  const expr *map = open_field(L, "pre") ? take_expr(L) : NULL;
  d->pre = map && map->op == EXPR_CHANNEL ? NULL : map;
}

static const spec_basis *read_basis(lua_State *L) {
  spec_basis *basis = arena_new(dsl_state_of(L)->memory, spec_basis);
  read_skew(L, &basis->matrix);
  return basis;
}

/* What turns, from the table on the top. */
static void read_blocks(lua_State *L, spec *d, arena *memory) {
  d->amplitude = number_field(L, "amplitude");
  read_gains(L, d);
  read_matrices(L, d);
  read_map_of_channels(L, d);
  d->dual_axes = (unsigned)integer_field(L, "dual_axes");
  d->products = (spec_products)integer_field(L, "products");
  OPTIONAL(L, "basis", d->basis = read_basis(L));
  read_generators(L, d);
  read_block(L, d, memory);
  read_combine(L, d);
}

/* core.part(description): blocks on some of the channels; what is the whole's follows with core.finish. */
int convert_part(lua_State *L) {
  dsl_state *s = dsl_state_of(L);
  if (s->n_parts == SPEC_MAX_PARTS) diag_bug("spec loader", "more than %d parts", SPEC_MAX_PARTS);
  spec_part *part = &s->part[s->n_parts++];
  spec *d = arena_new(s->memory, spec);
  lua_settop(L, 1);
  part->of = d;
  part->first = (int)integer_field(L, "first");
  part->count = (int)integer_field(L, "count");
  d->pool = s->pool;
  d->n_axes = length_of(L, "axes", SPEC_MAX_AXES);
  EACH(L, i, n, "axes", SPEC_MAX_AXES) part->axis[i] = (int)integer_at(L, i);
  lua_getfield(L, -1, "blocks");
  read_blocks(L, d, s->memory);
  return 0;
}

static void read_parts(dsl_state *s, spec *d) {
  if (s->n_parts == 0) return;
  d->n_parts = s->n_parts;
  d->n_blocks = expr_pool_blocks(d->pool);
  spec_part *parts = arena_array(s->memory, spec_part, d->n_parts);
  memcpy(parts, s->part, sizeof *parts * (size_t)d->n_parts);
  d->part = parts;
  spec_share_with_parts(d);
}

/* core.finish(description): the finished spec, as the value that a spec file returns. */
int convert_finish(lua_State *L) {
  dsl_state *s = dsl_state_of(L);
  spec *d = arena_new(s->memory, spec);
  lua_settop(L, 1);
  d->pool = s->pool;
  d->line = (int)integer_field(L, "line");
  d->name = text_field(L, "name");
  d->doc = text_field(L, "doc");
  d->head_dim = (int)integer_field(L, "head_dim");
  d->heads = (int)integer_field(L, "heads");
  d->amplitude = 1;
  d->skip_tokens = (int)integer_field(L, "skip_tokens");
  d->inverse = flag_field(L, "inverse");
  d->n_axes = length_of(L, "axes", SPEC_MAX_AXES);
  EACH(L, i, n, "axes", SPEC_MAX_AXES) d->axis[i] = text_at(L, i);
  EACH(L, i, n, "grid", SPEC_MAX_AXES) d->grid[i] = integer_at(L, i);
  d->n_operands = length_of(L, "operands", SPEC_MAX_OPERANDS);
  d->operand = arena_array(s->memory, spec_operand, d->n_operands);
  EACH_TABLE(L, i, n, "operands", SPEC_MAX_OPERANDS) read_operand(L, &d->operand[i]);
  read_inputs(L, d, s->memory);
  read_models(L, d, s->memory);
  OPTIONAL(L, "blocks", read_blocks(L, d, s->memory));
  OPTIONAL(L, "pairwise", read_pairwise(L, d, s->memory));
  OPTIONAL(L, "polynomial", read_polynomial(L, d, s->memory));
  OPTIONAL(L, "additive", read_additive(L, d, s->memory));
  read_parts(s, d);
  s->result = d;
  /* A spec can hold what is returned and raise it as an error: it stands for the description, and is nothing of it. */
  lua_newuserdatauv(L, 0, 0);
  if (luaL_newmetatable(L, DSL_DESCRIPTION)) {
    lua_pushliteral(L, "description");
    lua_setfield(L, -2, "__metatable");
  }
  lua_setmetatable(L, -2);
  return 1;
}
