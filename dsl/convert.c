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

static const char *text_field(lua_State *L, const char *name) {
  lua_getfield(L, -1, name);
  const char *text = arena_strdup(dsl_state_of(L)->memory, luaL_checkstring(L, -1));
  lua_pop(L, 1);
  return text;
}

static lua_Integer integer_field(lua_State *L, const char *name) {
  lua_getfield(L, -1, name);
  lua_Integer value = luaL_checkinteger(L, -1);
  lua_pop(L, 1);
  return value;
}

static double number_field(lua_State *L, const char *name) {
  lua_getfield(L, -1, name);
  double value = luaL_checknumber(L, -1);
  lua_pop(L, 1);
  return value;
}

static bool flag_field(lua_State *L, const char *name) {
  lua_getfield(L, -1, name);
  bool value = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return value;
}

/* Pushes table[name], a list; its length, at most `most`. The caller pops. */
static int open_list(lua_State *L, const char *name, int most) {
  lua_getfield(L, -1, name);
  luaL_checktype(L, -1, LUA_TTABLE);
  lua_Unsigned length = lua_rawlen(L, -1);
  if (length > (lua_Unsigned)most) diag_bug("spec loader", "'%s' has %d entries", name, (int)length);
  return (int)length;
}

static lua_Integer integer_at(lua_State *L, int i) {
  lua_rawgeti(L, -1, i + 1);
  lua_Integer value = luaL_checkinteger(L, -1);
  lua_pop(L, 1);
  return value;
}

static double number_at(lua_State *L, int i) {
  lua_rawgeti(L, -1, i + 1);
  double value = luaL_checknumber(L, -1);
  lua_pop(L, 1);
  return value;
}

static const char *text_at(lua_State *L, int i) {
  lua_rawgeti(L, -1, i + 1);
  const char *text = arena_strdup(dsl_state_of(L)->memory, luaL_checkstring(L, -1));
  lua_pop(L, 1);
  return text;
}

/* The merged expression on the top, popped. */
static const expr *take_expr(lua_State *L) {
  if (!lua_islightuserdata(L, -1)) diag_bug("spec loader", "an expression was not merged");
  const expr *x = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return x;
}

static const expr *expr_at(lua_State *L, int i) {
  lua_rawgeti(L, -1, i + 1);
  return take_expr(L);
}

static const expr *expr_field(lua_State *L, const char *name) {
  lua_getfield(L, -1, name);
  return take_expr(L);
}

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
  if (lua_getfield(L, -1, "initial") == LUA_TNIL) {
    lua_pop(L, 1);
    return NULL;
  }
  arena *memory = dsl_state_of(L)->memory;
  spec_initial *first = arena_array(memory, spec_initial, 1);
  first->kind = (spec_initial_kind)index_of(text_field(L, "kind"), kinds);
  first->deviation = number_field(L, "deviation");
  first->truncated = flag_field(L, "truncated");
  first->low = number_field(L, "low");
  first->high = number_field(L, "high");
  first->direction = (int)integer_field(L, "direction");
  int count = open_list(L, "same", SPEC_MAX_RANK);
  for (int i = 0; i < count; i++) first->same |= 1u << integer_at(L, i);
  lua_pop(L, 1);
  count = open_list(L, "sizes", SPEC_MAX_RANK);
  for (int i = 0; i < count; i++) first->sizes[i] = integer_at(L, i);
  lua_pop(L, 1);
  count = open_list(L, "factor", SPEC_MAX_FACTORS);
  double *factor = arena_array(memory, double, count);
  for (int i = 0; i < count; i++) factor[i] = number_at(L, i);
  first->factor = factor;
  lua_pop(L, 2);
  return first;
}

static void read_operand(lua_State *L, spec_operand *o) {
  o->name = text_field(L, "name");
  o->doc = text_field(L, "doc");
  o->units = text_field(L, "units");
  o->source = text_field(L, "source");
  o->initializer = text_field(L, "init");
  o->initial = read_initial(L);
  o->test_scale = number_field(L, "test_scale");
  o->line = (int)integer_field(L, "line");
  o->rank = open_list(L, "sizes", SPEC_MAX_RANK);
  for (int i = 0; i < o->rank; i++) o->shape[i] = integer_at(L, i);
  lua_pop(L, 1);
  open_list(L, "dimensions", SPEC_MAX_RANK);
  for (int i = 0; i < o->rank; i++) o->dimension[i] = text_at(L, i);
  lua_pop(L, 1);
}

static void read_generator(lua_State *L, spec_bivector *b) {
  b->count = open_list(L, "blades", SPEC_MAX_BIVECTORS);
  for (int i = 0; i < b->count; i++) b->blade[i] = (unsigned)integer_at(L, i);
  lua_pop(L, 1);
  open_list(L, "coefficients", SPEC_MAX_BIVECTORS);
  for (int i = 0; i < b->count; i++) b->coefficient[i] = expr_at(L, i);
  lua_pop(L, 1);
}

static void read_skew(lua_State *L, spec_skew *m) {
  m->operand = (int)integer_field(L, "operand");
  m->rule = strcmp(text_field(L, "rule"), "upper") == 0 ? SKEW_UPPER : SKEW_DIFFERENCE;
  m->n_heads = (int)integer_field(L, "rows");
  int count = open_list(L, "offsets", DSL_MAX_ROWS);
  int32_t *offset = arena_array(dsl_state_of(L)->memory, int32_t, count);
  for (int i = 0; i < count; i++) offset[i] = (int32_t)integer_at(L, i);
  m->offset = offset;
  lua_pop(L, 1);
}

/* Reads the generator of the axis whose table is on the top. */
static void read_generator_of(lua_State *L, spec *d, spec_dense *dense, int axis) {
  if (dense) read_skew(L, &dense->generator[axis]);
  else read_generator(L, &d->generator[axis]);
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
  open_list(L, "generators", SPEC_MAX_AXES);
  for (int i = 0; i < d->n_axes; i++) {
    lua_rawgeti(L, -1, i + 1);
    read_generator_of(L, d, dense, i);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  if (dense) dense->map = read_map(L);
  if (dense) dense->is_f64 = flag_field(L, "is_f64");
  d->dense = dense;
  const expr *phase[SPEC_MAX_AXES], *position[SPEC_MAX_AXES];
  open_list(L, "phases", SPEC_MAX_AXES);
  for (int i = 0; i < d->n_axes; i++) phase[i] = expr_at(L, i);
  lua_pop(L, 1);
  open_list(L, "positions", SPEC_MAX_AXES);
  for (int i = 0; i < d->n_axes; i++) position[i] = expr_at(L, i);
  lua_pop(L, 1);
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
  int count = open_list(L, "blades", SPEC_MAX_BLADES);
  for (int i = 0; i < count; i++) d->component[i].blade = (unsigned)integer_at(L, i);
  lua_pop(L, 1);
  open_list(L, "signs", SPEC_MAX_BLADES);
  for (int i = 0; i < count; i++) d->component[i].sign = (int)integer_at(L, i);
  lua_pop(L, 1);
}

static void read_block(lua_State *L, spec *d, arena *memory) {
  if (!d->dense) read_blades(L, d);
  d->n_components = (int)integer_field(L, "size");
  d->n_blocks = (int)integer_field(L, "blocks");
  int count = open_list(L, "channels", SPEC_MAX_HEAD_DIM);
  if (count != d->n_components * d->n_blocks) diag_bug("spec loader", "%d channels", count);
  int *channel = arena_array(memory, int, count);
  for (int i = 0; i < count; i++) channel[i] = (int)integer_at(L, i);
  d->channel = channel;
  lua_pop(L, 1);
}

static void read_pairwise(lua_State *L, spec *d, arena *memory) {
  spec_pairwise *p = arena_new(memory, spec_pairwise);
  p->value_dim = (int)integer_field(L, "value_dim");
  p->scale = number_field(L, "scale");
  bool biased = lua_getfield(L, -1, "bias") != LUA_TNIL;
  lua_pop(L, 1);
  p->bias = biased ? expr_field(L, "bias") : NULL;
  bool scored = lua_getfield(L, -1, "score") != LUA_TNIL;
  lua_pop(L, 1);
  p->score = scored ? expr_field(L, "score") : NULL;
  p->rotates = d->n_components > 0;
  lua_getfield(L, -1, "turns_values");
  p->turns_values = lua_toboolean(L, -1);
  lua_pop(L, 1);
  if (!p->rotates) d->n_blocks = 1;
  d->pairwise = p;
}

static void read_input(lua_State *L, spec_input *in) {
  in->name = text_field(L, "name");
  in->doc = text_field(L, "doc");
  in->units = text_field(L, "units");
  in->source = text_field(L, "source");
  in->size = integer_field(L, "size");
  lua_getfield(L, -1, "of_keys");
  in->of_keys = lua_toboolean(L, -1);
  lua_pop(L, 1);
  in->test_scale = number_field(L, "test_scale");
  in->line = (int)integer_field(L, "line");
}

static void read_inputs(lua_State *L, spec *d, arena *memory) {
  d->n_inputs = open_list(L, "inputs", SPEC_MAX_INPUTS);
  d->input = arena_array(memory, spec_input, d->n_inputs + 1);
  for (int i = 0; i < d->n_inputs; i++) {
    lua_rawgeti(L, -1, i + 1);
    read_input(L, &d->input[i]);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

/* The list on the top, of which each entry's text is made by `text`. */
static const char **read_texts(lua_State *L, const char *field, int most, int *count,
                               const char *(*text)(lua_State *L)) {
  *count = open_list(L, field, most);
  const char **texts = arena_array(dsl_state_of(L)->memory, const char *, *count + 1);
  for (int i = 0; i < *count; i++) {
    lua_rawgeti(L, -1, i + 1);
    texts[i] = text(L);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return texts;
}

static const char *text_on_top(lua_State *L) { return arena_strdup(dsl_state_of(L)->memory, luaL_checkstring(L, -1)); }

static const char *define_on_top(lua_State *L) {
  return arena_printf(dsl_state_of(L)->memory, "%s=%s", text_field(L, "name"), text_field(L, "value"));
}

static void read_models(lua_State *L, spec *d, arena *memory) {
  d->n_models = open_list(L, "models", SPEC_MAX_MODELS);
  d->model = arena_array(memory, spec_model, d->n_models + 1);
  for (int i = 0; i < d->n_models; i++) {
    spec_model *m = &d->model[i];
    lua_rawgeti(L, -1, i + 1);
    m->name = read_texts(L, "names", SPEC_MAX_MODELS, &m->n_names, text_on_top);
    m->define = read_texts(L, "defines", DSL_OPTIONS, &m->n_defines, define_on_top);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

static void read_polynomial(lua_State *L, spec *d, arena *memory) {
  spec_polynomial *p = arena_new(memory, spec_polynomial);
  p->value = expr_field(L, "value");
  p->degree = (int)integer_field(L, "degree");
  p->n_terms = d->n_blocks = (int)integer_field(L, "terms");
  p->has_call_origin = flag_field(L, "has_call_origin");
  p->exact_scores = flag_field(L, "exact_scores");
  p->split_columns = flag_field(L, "split_columns");
  open_list(L, "origin", SPEC_MAX_AXES);
  for (int i = 0; i < d->n_axes; i++) {
    lua_rawgeti(L, -1, i + 1);
    p->origin[i] = luaL_checknumber(L, -1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
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
  r->n_args = open_list(L, "arguments", SPEC_MAX_ARGUMENTS);
  for (int i = 0; i < r->n_args; i++) r->arg[i] = (int)integer_at(L, i);
  lua_pop(L, 1);
  int factors = open_list(L, "factors", SPEC_MAX_ARGUMENTS);
  for (int i = 0; i < factors; i++) r->factor[i] = expr_at(L, i);
  lua_pop(L, 1);
}

/* A function of rotors, on the top. */
static const spec_function *read_function(lua_State *L) {
  arena *memory = dsl_state_of(L)->memory;
  spec_function *f = arena_new(memory, spec_function);
  f->text = text_field(L, "text");
  f->count = open_list(L, "nodes", SPEC_MAX_ROTORS);
  f->node = arena_array(memory, spec_rotor, f->count);
  for (int i = 0; i < f->count; i++) {
    lua_rawgeti(L, -1, i + 1);
    read_rotor(L, &f->node[i]);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return f;
}

static void read_combine(lua_State *L, spec *d) {
  static const char *const names[] = {"sum", "mean", "product", "symmetric", "function"}; /* ORDER spec_combine */
  d->combine = (spec_combine)index_of(text_field(L, "combine"), names);
  if (lua_getfield(L, -1, "rotors") != LUA_TNIL) d->function = read_function(L);
  lua_pop(L, 1);
  if (d->dense && d->combine == COMBINE_MEAN) { /* a sum of smaller angles */
    for (int i = 0; i < d->n_axes; i++)
      d->angle[i] = expr_mul(d->pool, d->angle[i], expr_const(d->pool, 1.0 / d->n_axes));
    d->combine = COMBINE_SUM;
  }
  open_list(L, "order", SPEC_MAX_AXES);
  for (int i = 0; i < d->n_axes; i++) d->order[i] = (int)integer_at(L, i);
  lua_pop(L, 1);
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
  if (lua_getfield(L, -1, "pre") != LUA_TNIL) {
    const expr *map = take_expr(L);
    d->pre = map->op == EXPR_CHANNEL ? NULL : map;
    return;
  }
  lua_pop(L, 1);
}

static const spec_basis *read_basis(lua_State *L) {
  spec_basis *basis = NULL;
  if (lua_getfield(L, -1, "basis") != LUA_TNIL) {
    basis = arena_new(dsl_state_of(L)->memory, spec_basis);
    read_skew(L, &basis->matrix);
  }
  lua_pop(L, 1);
  return basis;
}

/* What turns, from the table on the top. */
static void read_blocks(lua_State *L, spec *d, arena *memory) {
  d->amplitude = number_field(L, "amplitude");
  read_gains(L, d);
  read_matrices(L, d);
  read_map_of_channels(L, d);
  d->dual_axes = (unsigned)integer_field(L, "dual_axes");
  d->basis = read_basis(L);
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
  d->n_axes = open_list(L, "axes", SPEC_MAX_AXES);
  for (int i = 0; i < d->n_axes; i++) part->axis[i] = (int)integer_at(L, i);
  lua_pop(L, 1);
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
  d->n_axes = open_list(L, "axes", SPEC_MAX_AXES);
  for (int i = 0; i < d->n_axes; i++) d->axis[i] = text_at(L, i);
  lua_pop(L, 1);
  int sizes = open_list(L, "grid", SPEC_MAX_AXES);
  for (int i = 0; i < sizes; i++) d->grid[i] = integer_at(L, i);
  lua_pop(L, 1);
  d->n_operands = open_list(L, "operands", SPEC_MAX_OPERANDS);
  d->operand = arena_array(s->memory, spec_operand, d->n_operands);
  for (int i = 0; i < d->n_operands; i++) {
    lua_rawgeti(L, -1, i + 1);
    read_operand(L, &d->operand[i]);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  read_inputs(L, d, s->memory);
  read_models(L, d, s->memory);
  if (lua_getfield(L, -1, "blocks") != LUA_TNIL) read_blocks(L, d, s->memory);
  lua_pop(L, 1);
  if (lua_getfield(L, -1, "pairwise") != LUA_TNIL) read_pairwise(L, d, s->memory);
  lua_pop(L, 1);
  if (lua_getfield(L, -1, "polynomial") != LUA_TNIL) read_polynomial(L, d, s->memory);
  lua_pop(L, 1);
  if (lua_getfield(L, -1, "additive") != LUA_TNIL) read_additive(L, d, s->memory);
  lua_pop(L, 1);
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
