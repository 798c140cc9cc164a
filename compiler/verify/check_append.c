/* verify/check_append: what serves a token (NAME_append): rows that are normalised and encoded, q in its place, k and v
 * at slots of their caches.
 *
 * Without norms k and q are encode's to the bit, which is compared with the reference beside this. With them they are
 * the reference's of rows normalised in long double, from which float64 takes nothing that the bounds could see.
 */
#include "verify/check_kind.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 5, LEFT_OUT = 4 }; /* slots of a page; one token in so many has none */

static const double EPSILON = 1e-3; /* large enough that leaving it out is seen */

/* One number type's call. */
typedef struct appended {
  checker *c;
  const append_call *call;
  number_type type, cached; /* of rows, of caches */
  const char *name;
  const DLTensor *scales[2]; /* of k's cache and v's; NULL: none */
  DLTensor *q, *k, *v;
  int64_t *slots; /* [tokens] */
  DLTensor slots_tensor;
  int64_t slots_shape[2];
} appended;

/* ---- caches ---- */

/* Places for twice the tokens, so that half of them must stay as they were: [pages][PAGE][heads][channels], with gaps,
 * so that no page is where the one before it would go on. */
static DLTensor *new_cache(const appended *t) {
  int64_t pages = (2 * t->k->shape[2] + PAGE - 1) / PAGE;
  return tensor_rows(t->c->memory, t->cached, ROWS_GAPS, pages, PAGE, t->k->shape[1], t->k->shape[3]);
}

static void *in_cache(const DLTensor *cache, int64_t slot, int64_t head) {
  return tensor_at(cache, slot / PAGE, slot % PAGE, head, 0);
}

/* Every second place, in an order without runs; with `gaps` some tokens have none. */
static void choose_slots(appended *t, bool gaps) {
  int64_t tokens = t->k->shape[2];
  for (int64_t n = 0; n < tokens; n++) t->slots[n] = 2 * n + 1;
  for (int64_t n = tokens - 1; n > 0; n--) {
    int64_t other = (int64_t)random_below(&t->c->random, (uint64_t)n + 1), held = t->slots[n];
    t->slots[n] = t->slots[other];
    t->slots[other] = held;
  }
  for (int64_t n = LEFT_OUT - 1; gaps && n < tokens; n += LEFT_OUT) t->slots[n] = -1;
}

/* The cache as it should be: what rooms hold before a call, and rows at their slots. */
static DLTensor *placed(const appended *t, const DLTensor *rows) {
  DLTensor *cache = new_cache(t);
  size_t bytes = (size_t)rows->shape[3] * number_bytes(t->cached);
  for (int64_t h = 0; h < rows->shape[1]; h++)
    for (int64_t n = 0; n < rows->shape[2]; n++)
      if (t->slots[n] >= 0) memcpy(in_cache(cache, t->slots[n], h), tensor_at(rows, 0, h, n, 0), bytes);
  return cache;
}

/* The rows of a cache where every token has a slot. */
static DLTensor *taken(const appended *t, const DLTensor *cache) {
  DLTensor *rows = tensor_copy(t->c->memory, t->k);
  size_t bytes = (size_t)rows->shape[3] * number_bytes(t->type);
  for (int64_t h = 0; h < rows->shape[1]; h++)
    for (int64_t n = 0; n < rows->shape[2]; n++)
      memcpy(tensor_at(rows, 0, h, n, 0), in_cache(cache, t->slots[n], h), bytes);
  return rows;
}

/* ---- norms ---- */

/* Learned weights of the type, of both signs and none near 0. */
static DLTensor *random_weights(const appended *t, number_type type) {
  int64_t width = t->c->spec->head_dim;
  double *values = arena_array(t->c->memory, double, width);
  for (int64_t i = 0; i < width; i++)
    values[i] = random_uniform(&t->c->random, 0.5, 2) * (random_below(&t->c->random, 2) ? 1 : -1);
  return tensor_contiguous(t->c->memory, type, 1, &width, values);
}

/* x w / sqrt(mean(x^2) + epsilon), in float64. */
static DLTensor *normalised(const appended *t, const DLTensor *x, const DLTensor *weights) {
  number_type of = number_type_of(weights->dtype);
  int64_t width = x->shape[3];
  DLTensor *y = tensor_like(t->c->memory, x, NUMBER_F64, ROWS_BHND);
  for (int64_t h = 0; h < x->shape[1]; h++)
    for (int64_t n = 0; n < x->shape[2]; n++) {
      long double sum = 0;
      for (int64_t i = 0; i < width; i++) {
        long double value = tensor_get(x, 0, h, n, i);
        sum += value * value;
      }
      long double factor = 1 / sqrtl(sum / width + EPSILON);
      for (int64_t i = 0; i < width; i++) {
        long double w = number_load(of, (const char *)weights->data + i * (int64_t)number_bytes(of));
        tensor_set(y, 0, h, n, i, (double)(tensor_get(x, 0, h, n, i) * factor * w));
      }
    }
  return y;
}

/* ---- calls ---- */

/* q in its place, or NULL, v beside k; weights NULL: no norms. From the last part to the first; the first error. */
static int call_append(const appended *t, DLTensor *q, DLTensor *k_cache, DLTensor *v_cache, const DLTensor *q_norm,
                       const DLTensor *k_norm) {
  const pegen_kernel *kernel = t->c->kernel;
  const trial_operands *operands = t->call->operands;
  pegen_args args = trial_args(kernel, operands, t->call->positions);
  args.q = args.q_out = q, args.q_norm = q_norm;
  args.k = t->k, args.k_out = k_cache, args.k_norm = k_norm, args.k_scale = t->scales[0];
  args.v = t->v, args.v_out = v_cache, args.v_scale = t->scales[1];
  args.slots = &t->slots_tensor;
  args.norm_epsilon = q_norm || k_norm ? EPSILON : 0;
  if (kernel->n_inputs && !args.inputs)
    args.inputs = trial_repeated_inputs(t->c->memory, kernel, operands, t->k->shape[2]);
  return trial_run(&args, kernel->workspace, kernel->append, NULL, CHECK_PARTS);
}

static void check_plain(appended *t) {
  arena *a = t->c->memory;
  DLTensor *q_out = tensor_copy(a, t->q), *k_out = tensor_copy(a, t->k), *q = tensor_copy(a, t->q);
  DLTensor *k_cache = new_cache(t), *v_cache = new_cache(t);
  choose_slots(t, true);
  int error = trial_call(t->c->kernel, t->call->positions, t->call->operands, t->q, q_out, t->k, k_out, 1);
  if (!error) error = call_append(t, q, k_cache, v_cache, NULL, NULL);
  if (!check_called(t->c, t->name, "append", error)) return;
  check_report_bits(t->c, t->name, "append, encode's rows at their slots",
                    tensor_identical(q, q_out) && tensor_identical(k_cache, placed(t, k_out)));
  check_report_bits(t->c, t->name, "append, v at the same slots", tensor_identical(v_cache, placed(t, t->v)));
}

/* Each side's rows are what they are of calls that treat the other otherwise. */
static void check_one_norm(const appended *t, const DLTensor *both[2], const DLTensor *q_norm, const DLTensor *k_norm) {
  arena *a = t->c->memory;
  DLTensor *plain_q = tensor_copy(a, t->q), *plain_k = new_cache(t), *v_cache = new_cache(t);
  int error = call_append(t, plain_q, plain_k, v_cache, NULL, NULL);
  bool same = true;
  for (int side = 0; side < 2 && !error; side++) {
    DLTensor *q = tensor_copy(a, t->q), *k_cache = new_cache(t);
    error = call_append(t, q, k_cache, v_cache, side ? NULL : q_norm, side ? k_norm : NULL);
    same = same && tensor_identical(q, side ? plain_q : both[0]) && tensor_identical(k_cache, side ? both[1] : plain_k);
  }
  if (check_called(t->c, t->name, "append, q or k normalised", error))
    check_report_bits(t->c, t->name, "append, q or k alone normalised", same);
}

static void check_norms(appended *t) {
  DLTensor *q = tensor_copy(t->c->memory, t->q), *k_cache = new_cache(t), *v_cache = new_cache(t);
  const DLTensor *q_norm = random_weights(t, NUMBER_F32), *k_norm = random_weights(t, t->type);
  choose_slots(t, false);
  if (!check_called(t->c, t->name, "append, rows normalised", call_append(t, q, k_cache, v_cache, q_norm, k_norm)))
    return;
  trial_error worst = {0};
  const DLTensor *k = taken(t, k_cache);
  t->call->compare(t->c, false, normalised(t, t->q, q_norm), q, &worst);
  t->call->compare(t->c, true, normalised(t, t->k, k_norm), k, &worst);
  check_report(t->c, t->name, "append, rows normalised", t->call->bound + trial_product_rounding(t->c->spec, t->type),
               &worst);
  check_report_bits(t->c, t->name, "append, other slots as they were",
                    tensor_identical(k_cache, placed(t, k)) && tensor_identical(v_cache, placed(t, t->v)));
  check_one_norm(t, (const DLTensor *[]){q, k_cache}, q_norm, k_norm);
}

/* ---- caches of another number type ---- */

/* The rows in another type, divided by the scale (NULL: by nothing): by the slow conversion of base/number. */
static DLTensor *rounded(const appended *t, const DLTensor *rows, number_type type, const DLTensor *scale) {
  return tensor_converted(t->c->memory, rows, type, ROWS_BHND, scale ? 1 / *(const float *)scale->data : 1);
}

/* k and v as encode and the slow conversion make them, q in its own type where the kernel has that. */
static void check_plain_caches(appended *t) {
  const pegen_kernel *kernel = t->c->kernel;
  bool has_q = kernel->dtypes & number_pair(t->type, t->type);
  DLTensor *q = has_q ? tensor_copy(t->c->memory, t->q) : NULL, *q_out = has_q ? tensor_copy(t->c->memory, t->q) : NULL;
  DLTensor *k_out = tensor_like(t->c->memory, t->k, t->cached, ROWS_BHND), *k_cache = new_cache(t),
           *v_cache = new_cache(t);
  choose_slots(t, true);
  int error = trial_call_scaled(kernel, t->call->positions, t->call->operands, has_q ? t->q : NULL, q_out, t->k, k_out,
                                NULL, t->scales[0], 1);
  if (!error) error = call_append(t, q, k_cache, v_cache, NULL, NULL);
  if (!check_called(t->c, t->name, "append, k and v converted", error)) return;
  check_report_bits(t->c, t->name, "append, encode's rows at their slots",
                    (!has_q || tensor_identical(q, q_out)) && tensor_identical(k_cache, placed(t, k_out)));
  check_report_bits(t->c, t->name, "append, v scaled and rounded",
                    tensor_identical(v_cache, placed(t, rounded(t, t->v, t->cached, t->scales[1]))));
}

/* Rows that are normalised are rounded once: what float32 rows of the same numbers give, which stand in float32 caches.
 * Rows of sums and parts may differ in their last place. */
static void check_normalised_caches(appended *t) {
  const spec *s = t->c->spec;
  appended wide = *t;
  if (s->additive || s->n_parts || !(t->c->kernel->dtypes & number_pair(NUMBER_F32, NUMBER_F32))) return;
  const DLTensor *k_norm = random_weights(t, NUMBER_F32);
  wide.type = wide.cached = NUMBER_F32;
  wide.scales[0] = wide.scales[1] = NULL;
  wide.k = rounded(t, t->k, NUMBER_F32, NULL);
  wide.v = rounded(t, t->v, NUMBER_F32, NULL);
  DLTensor *k_cache = new_cache(t), *v_cache = new_cache(t), *k_wide = new_cache(&wide), *v_wide = new_cache(&wide);
  choose_slots(t, false);
  int error = call_append(&wide, NULL, k_wide, v_wide, NULL, k_norm);
  if (!error) error = call_append(t, NULL, k_cache, v_cache, NULL, k_norm);
  if (!check_called(t->c, t->name, "append, k normalised and converted", error)) return;
  DLTensor *wanted = rounded(t, taken(&wide, k_wide), t->cached, t->scales[0]);
  check_report_bits(t->c, t->name, "append, float32's normalised, rounded",
                    tensor_identical(k_cache, placed(t, wanted)));
}

static void check_caches(const appended *rows) {
  static float values[] = {0.0013f, 3.0f}; /* some elements too large, others subnormal */
  const DLTensor scales[] = {{.data = &values[0], .device = {kDLCPU, 0}, .dtype = {kDLFloat, 32, 1}},
                             {.data = &values[1], .device = {kDLCPU, 0}, .dtype = {kDLFloat, 32, 1}}};
  for (int out = NUMBER_CHANNEL_TYPES; out < NUMBER_OUT_TYPES; out++) {
    appended t = *rows;
    if (!(t.c->kernel->dtypes & number_pair(t.type, out))) continue;
    t.cached = (number_type)out;
    t.name = number_name(t.cached);
    t.scales[0] = &scales[0], t.scales[1] = &scales[1];
    check_plain_caches(&t);
    check_normalised_caches(&t);
  }
}

/* Whether there are rows of the type, whatever they are written as. */
static bool has_rows(const pegen_kernel *kernel, int type) {
  bool has = kernel->dtypes & number_type_info((number_type)type)->dtype;
  for (int out = NUMBER_CHANNEL_TYPES; out < NUMBER_OUT_TYPES; out++)
    has = has || kernel->dtypes & number_pair(type, out);
  return has;
}

void check_append(checker *c, const append_call *call) {
  if (!c->kernel->append || c->kernel->ptx) return; /* GPUs have none: beside their code it is the processor's */
  uint64_t before = c->random; /* what follows has the numbers that it has of kernels without the entry */
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) {
    if (!has_rows(c->kernel, type)) continue;
    appended t = {.c = c, .call = call, .type = (number_type)type, .name = number_name((number_type)type)};
    t.cached = t.type;
    int channels = c->spec->head_dim;
    t.q = tensor_rows(c->memory, t.type, ROWS_BNHD, 1, call->heads, call->tokens, channels);
    t.k = tensor_rows(c->memory, t.type, ROWS_GAPS, 1, call->k_heads, call->tokens, channels);
    t.v = tensor_rows(c->memory, t.type, ROWS_BNHD, 1, call->k_heads, call->tokens, channels);
    tensor_randomize(t.q, &c->random);
    tensor_randomize(t.k, &c->random);
    tensor_randomize(t.v, &c->random);
    t.slots = arena_array(c->memory, int64_t, call->tokens + 1);
    t.slots_shape[0] = 1, t.slots_shape[1] = call->tokens;
    t.slots_tensor = (DLTensor){.data = t.slots, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 64, 1}};
    t.slots_tensor.shape = t.slots_shape;
    if (c->kernel->dtypes & number_type_info(t.type)->dtype) {
      check_plain(&t);
      check_norms(&t);
    }
    check_caches(&t);
  }
  c->random = before;
}
