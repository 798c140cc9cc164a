/* tile/build: values and ops of a tile program, and attention's own; see tile/tile.h. */
#include "tile/tile.h"

#include "base/diag.h"

static const struct {
  const char *name;
  bool of_queries;
  tile_space width;
} tensors[] = {
#define TENSOR(word, name, of_queries, width) {name, of_queries, width},
    TILE_TENSORS(TENSOR)
#undef TENSOR
};

static const struct {
  const char *name;
  int arguments;
} kinds[] = {
#define KIND(word, name, arguments) {name, arguments},
    TILE_OPS(KIND)
#undef KIND
};

const char *tile_kind_name(tile_kind kind) { return kinds[kind].name; }
const char *tile_tensor_name(tile_tensor tensor) { return tensors[tensor].name; }
int tile_arguments(tile_kind kind) { return kinds[kind].arguments; }
bool tile_is_of_queries(tile_tensor tensor) { return tensors[tensor].of_queries; }
bool tile_is_of_columns(tile_tensor tensor) { return tensors[tensor].width == TILE_PARTS; }
tile_space tile_width_of(tile_tensor tensor) { return tensors[tensor].width; }

int tile_size(const tile_shape *shape, tile_space space) {
  const int sizes[] = {[TILE_ONE] = 1,
                       [TILE_OWN] = shape->own,
                       [TILE_STREAMED] = shape->streamed,
                       [TILE_CHANNELS] = shape->channels,
                       [TILE_VALUES] = shape->values,
                       [TILE_PARTS] = shape->parts};
  return sizes[space];
}

int tile_add_value(tile_program *p, const char *name, tile_space rows, tile_space columns, bool is_sum) {
  if (p->n_values == TILE_MOST_VALUES) diag_bug("tile", "more than %d values", TILE_MOST_VALUES);
  p->value[p->n_values] =
      (tile_value){.name = name, .rows = rows, .columns = columns, .is_sum = is_sum, .stages = is_sum ? 0 : 1};
  return p->n_values++;
}

tile_op *tile_add_op(tile_program *p, tile_kind kind, int value) {
  if (p->n_ops == TILE_MOST_OPS) diag_bug("tile", "more than %d ops", TILE_MOST_OPS);
  tile_op *op = &p->op[p->n_ops++];
  *op = (tile_op){.kind = kind, .value = value, .arg = {TILE_NONE, TILE_NONE, TILE_NONE}};
  return op;
}

tile_op *tile_add_unary(tile_program *p, tile_kind kind, int value, int argument) {
  tile_op *op = tile_add_op(p, kind, value);
  op->arg[0] = argument;
  return op;
}

tile_op *tile_add_binary(tile_program *p, tile_kind kind, int value, int first, int second) {
  tile_op *op = tile_add_unary(p, kind, value, first);
  op->arg[1] = second;
  return op;
}

tile_op *tile_add_mma(tile_program *p, int value, int first, int second, bool transposed, bool adds) {
  tile_op *op = tile_add_binary(p, TILE_MMA, value, first, second);
  op->transposed = transposed;
  op->adds = adds;
  return op;
}

tile_op *tile_add_rotated(tile_program *p, tile_kind kind, int value, int first, int second) {
  tile_op *op = tile_add_mma(p, value, first, second, kind == TILE_ROTATED_PRODUCT, true);
  op->kind = kind;
  return op;
}

int tile_add_load(tile_program *p, const char *name, tile_tensor tensor) {
  bool is_own = tile_is_of_queries(tensor) != p->owns_keys;
  int value = tile_add_value(p, name, is_own ? TILE_OWN : TILE_STREAMED, tile_width_of(tensor), false);
  tile_add_op(p, TILE_LOAD, value)->tensor = tensor;
  return value;
}

tile_op *tile_add_store(tile_program *p, tile_tensor tensor, int value) {
  tile_op *op = tile_add_unary(p, TILE_STORE, TILE_NONE, value);
  op->tensor = tensor;
  return op;
}

const tile_program *tile_forward(arena *a, bool columns) {
  tile_program *p = arena_new(a, tile_program);
  p->name = "attention";
  int out = tile_add_value(p, "O", TILE_OWN, TILE_VALUES, true), q = tile_add_load(p, "Q", TILE_Q);
  int own_columns = columns ? tile_add_load(p, "Qc", TILE_Q_COLUMNS) : TILE_NONE;
  tile_add_op(p, TILE_EACH, TILE_NONE);
  int k = tile_add_load(p, "K", TILE_K), v = tile_add_load(p, "V", TILE_V);
  int streamed_columns = columns ? tile_add_load(p, "Kc", TILE_K_COLUMNS) : TILE_NONE;
  int product = tile_add_value(p, "S", TILE_OWN, TILE_STREAMED, true);
  int score = tile_add_value(p, "T", TILE_OWN, TILE_STREAMED, true);
  int weights = tile_add_value(p, "P", TILE_OWN, TILE_STREAMED, true);
  tile_add_mma(p, product, q, k, true, false);
  if (columns) tile_add_mma(p, product, own_columns, streamed_columns, true, true);
  tile_add_unary(p, TILE_SCORE, score, product);
  tile_add_binary(p, TILE_ONLINE, weights, score, out);
  tile_add_mma(p, out, weights, v, false, true);
  tile_add_op(p, TILE_END, TILE_NONE);
  tile_add_store(p, TILE_OUT, out);
  return p;
}

const tile_program *tile_few(arena *a, const tile_program *forward) {
  tile_program *p = arena_new(a, tile_program);
  *p = *forward;
  p->name = "attention_few";
  p->owns_group = true;
  return p;
}

const tile_program *tile_sunk(arena *a, const tile_program *forward) {
  tile_program *p = arena_new(a, tile_program);
  *p = *forward;
  for (int i = 0; i < p->n_ops; i++) p->op[i].sinks = p->op[i].kind == TILE_ONLINE;
  return p;
}
