/* bench/append: see bench/append.h. */
#include "bench/append.h"

#include "base/diag.h"
#include "base/number.h"
#include "bench/report.h"
#include "bench/turns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 16, NORMED = 0, PLAIN, SEPARATE, FIRST_LIMIT, CONTENDERS_MOST = 12 };
static const double EPSILON = 1e-6;

/* All that the calls of one shape need. */
typedef struct serving {
  bed rows; /* q and k, and an encode of them */
  bench_layout layout;
  int64_t key_heads, k_dims[4], k_strides[4];
  size_t k_bytes; /* of k, of v */
  void *v, *cache[2]; /* of k, of v */
  int64_t *slots;     /* [B,N] */
  int64_t slots_dims[2], cache_dims[4], norm_dims[1];
  DLTensor v_tensor, slots_tensor, cache_tensor[2], norm;
  pegen_args normed, plain;
} serving;

/* What a contender that moves rows by itself is told: by which loop. */
typedef struct moving {
  const serving *of;
  limit_function *copy;
} moving;

/* ---- rows and slots ---- */

/* Pages of a sequence in no order, its tokens in theirs. */
static void choose_slots(serving *v, int64_t batches, int64_t tokens, int64_t *page) {
  int64_t of_sequence = (tokens + PAGE - 1) / PAGE, pages = batches * of_sequence;
  uint64_t seed = 3;
  for (int64_t i = 0; i < pages; i++) page[i] = i;
  for (int64_t i = pages - 1; i > 0; i--) {
    int64_t other = (int64_t)random_below(&seed, (int)i + 1), held = page[i];
    page[i] = page[other];
    page[other] = held;
  }
  for (int64_t b = 0; b < batches; b++)
    for (int64_t n = 0; n < tokens; n++) v->slots[b * tokens + n] = page[b * of_sequence + n / PAGE] * PAGE + n % PAGE;
}

static void lay_calls(arena *a, serving *v) {
  const bench_shape *size = &v->rows.size;
  float *weights = arena_array(a, float, size->head_dim);
  for (int64_t i = 0; i < size->head_dim; i++) weights[i] = 1 + (float)(i % 8) / 64;
  v->norm_dims[0] = size->head_dim;
  v->norm = bed_tensor(weights, NUMBER_F32, 1, v->norm_dims, NULL);
  v->slots_tensor = bed_tensor(v->slots, NUMBER_F32, 2, v->slots_dims, NULL);
  v->slots_tensor.dtype = (DLDataType){kDLInt, 64, 1};
  v->v_tensor = bed_tensor(v->v, v->rows.type, 4, v->k_dims, v->k_strides);
  for (int i = 0; i < 2; i++) v->cache_tensor[i] = bed_tensor(v->cache[i], v->rows.type, 4, v->cache_dims, NULL);
  v->plain = v->rows.args;
  v->plain.k_out = &v->cache_tensor[0];
  v->plain.v = &v->v_tensor;
  v->plain.v_out = &v->cache_tensor[1];
  v->plain.slots = &v->slots_tensor;
  v->normed = v->plain;
  v->normed.q_norm = v->normed.k_norm = &v->norm;
  v->normed.norm_epsilon = EPSILON;
}

static void clear(serving *v) {
  bed_clear(&v->rows);
  free(v->v);
  for (int i = 0; i < 2; i++) free(v->cache[i]);
}

/* k of fewer heads than q. */
static void group_heads(serving *v, int64_t group) {
  bench_shape keys = v->rows.size;
  keys.heads = v->key_heads = v->rows.size.heads / group;
  memcpy(v->k_dims, (int64_t[]){keys.batches, keys.heads, keys.tokens, keys.head_dim}, sizeof v->k_dims);
  bench_strides(&keys, v->layout, v->k_strides);
  v->k_bytes = v->rows.bytes / (size_t)group;
  v->rows.moved -= 2 * (v->rows.bytes - v->k_bytes);
  for (int t = TENSOR_K; t <= TENSOR_K_OUT; t += TENSOR_K_OUT - TENSOR_K) {
    v->rows.tensor[t].shape = v->k_dims;
    v->rows.tensor[t].strides = v->k_strides;
  }
}

/* v and the caches beside rows that are laid; false where memory ran out, of which nothing is left then. */
static bool lay(arena *a, serving *v, bench_layout layout, int64_t group) {
  v->layout = layout;
  group_heads(v, group);
  int64_t B = v->rows.size.batches, N = v->rows.size.tokens, H = v->key_heads, D = v->rows.size.head_dim;
  int64_t pages = B * ((N + PAGE - 1) / PAGE);
  size_t cache_bytes = (size_t)(pages * PAGE * H * D) * (size_t)number_type_info(v->rows.type)->bytes;
  v->v = bed_allocate(v->k_bytes);
  for (int i = 0; i < 2; i++) v->cache[i] = bed_allocate(cache_bytes);
  if (!v->v || !v->cache[0] || !v->cache[1]) {
    clear(v);
    return false;
  }
  bed_fill(&v->rows);
  size_t element = (size_t)number_type_info(v->rows.type)->bytes; /* by which v is k's values, so that they differ */
  memcpy(v->v, (const char *)v->rows.data[TENSOR_K] + element, v->k_bytes - element);
  memcpy((char *)v->v + v->k_bytes - element, v->rows.data[TENSOR_K], element);
  memcpy(v->slots_dims, (int64_t[]){B, N}, sizeof v->slots_dims);
  memcpy(v->cache_dims, (int64_t[]){pages, PAGE, H, D}, sizeof v->cache_dims);
  v->slots = arena_array(a, int64_t, B *N);
  choose_slots(v, B, N, arena_array(a, int64_t, pages));
  lay_calls(a, v);
  return true;
}

/* ---- contenders ---- */

/* Bytes that follow each other in rows and in a cache: of a token's heads, or of one row. */
static size_t piece_bytes(const serving *v) {
  size_t row = (size_t)v->rows.size.head_dim * (size_t)number_type_info(v->rows.type)->bytes;
  return v->layout == LAYOUT_BNHD ? row * (size_t)v->key_heads : row;
}

/* A part of the tokens' rows to their slots; those of tokens that are adjacent on both sides at once. */
static void place(const moving *m, const void *rows, void *cache, int part, int parts) {
  const serving *v = m->of;
  int64_t N = v->rows.size.tokens, H = v->key_heads, items = v->rows.size.batches * N;
  int64_t end = items * (part + 1) / parts, next;
  size_t bytes = piece_bytes(v);
  for (int64_t item = items * part / parts; item < end; item = next) {
    next = item + 1;
    if (v->layout == LAYOUT_BNHD) {
      while (next < end && v->slots[next] == v->slots[next - 1] + 1) next++;
      m->copy((char *)cache + (size_t)v->slots[item] * bytes, (const char *)rows + (size_t)item * bytes,
              (size_t)(next - item) * bytes);
    } else
      for (int64_t h = 0; h < H; h++)
        m->copy((char *)cache + (size_t)(v->slots[item] * H + h) * bytes,
                (const char *)rows + (size_t)((item / N * H + h) * N + item % N) * bytes, bytes);
  }
}

/* After an encode: k, from where that left it, and v. */
static void work_copy(void *context, int part, int parts) {
  const contender *c = context;
  const moving *m = c->with;
  place(m, c->on->tensor[TENSOR_K_OUT].data, m->of->cache[0], part, parts);
  place(m, m->of->v, m->of->cache[1], part, parts);
}

/* q's part is cut at cache lines, as rows are. */
static void work_limit(void *context, int part, int parts) {
  const contender *c = context;
  const moving *m = c->with;
  const bed *b = c->on;
  size_t lines = (b->bytes + 63) / 64;
  size_t begin = lines * (size_t)part / (size_t)parts * 64, end = lines * (size_t)(part + 1) / (size_t)parts * 64;
  if (end > b->bytes) end = b->bytes;
  c->limit((char *)b->tensor[TENSOR_Q_OUT].data + begin, (const char *)b->data[TENSOR_Q] + begin, end - begin);
  place(m, b->data[TENSOR_K], m->of->cache[0], part, parts);
  place(m, m->of->v, m->of->cache[1], part, parts);
  for (int i = 0; i < SPEC_MAX_INPUTS; i++)
    if (b->input[i]) turns_read_part(b->input[i], b->input_bytes[i], part, parts);
  if (b->table) turns_read_part(b->table, b->table_bytes, part, parts);
}

/* Loops of q with loops of rows: in place each with a plain and a streaming copy, elsewhere those of the same name.
 * How many contenders there are then. */
static int add_limits(arena *a, const serving *v, bool in_place, moving *by, contender *contenders) {
  const limit_loop *of_q, *of_rows;
  int n_q = limit_loops(in_place, &of_q), n_rows = limit_loops(false, &of_rows), count = FIRST_LIMIT;
  for (int i = 0; i < n_q; i++)
    for (int j = in_place ? 0 : i; j < (in_place ? 2 : i + 1) && j < n_rows; j++) {
      if (of_rows[j].whole_lines && piece_bytes(v) % 64) continue;
      by[count] = (moving){v, of_rows[j].run};
      contenders[count] = (contender){.name = of_q[i].name, .work = work_limit, .with = &by[count], .on = &v->rows};
      if (in_place) contenders[count].name = arena_printf(a, "%s, %s", of_q[i].name, of_rows[j].name);
      contenders[count++].limit = of_q[i].run;
    }
  return count;
}

/* How many there are. */
static int enter(arena *a, const serving *v, const pegen_kernel *kernel, bool in_place, moving *by,
                 contender *contenders) {
  const limit_loop *copies;
  limit_loops(false, &copies);
  by[SEPARATE] = (moving){v, copies[0].run};
  contenders[NORMED] = (contender){.name = "normed", .entry = kernel->append, .args = &v->normed};
  contenders[PLAIN] = (contender){.name = "plain", .entry = kernel->append, .args = &v->plain};
  contenders[SEPARATE] =
      (contender){.name = "separate", .entry = kernel->encode, .then = work_copy, .with = &by[SEPARATE]};
  for (int i = 0; i < FIRST_LIMIT; i++) contenders[i].work = turns_call_kernel, contenders[i].on = &v->rows;
  return v->rows.size.time_only ? FIRST_LIMIT : add_limits(a, v, in_place, by, contenders);
}

/* ---- figures ---- */

/* q, k and v, inputs and the table read; q, k and v written. */
static double bytes_of(const serving *v) { return (double)(v->rows.moved + 2 * v->k_bytes + v->rows.table_bytes); }

static void print_row(const serving *v, bool in_place, const contender *contenders, int count) {
  const contender *limit = turns_limit(contenders, count);
  bench_print_shape(&v->rows.size, v->layout, in_place);
  for (int i = NORMED; i <= SEPARATE; i++) bench_print_time(contenders[i].seconds);
  printf(" %8.2f", contenders[PLAIN].seconds / contenders[SEPARATE].seconds);
  if (limit) {
    bench_print_time(limit->seconds);
    printf(" %6.2f %7.2f  %-17s %8.2f MB", limit->seconds / contenders[NORMED].seconds,
           limit->seconds / contenders[PLAIN].seconds, limit->name, bytes_of(v) * 1e-6);
  }
  puts("");
  fflush(stdout);
}

static void write_row(json_writer *w, const serving *v, const pegen_kernel *kernel, bool in_place, int threads,
                      const contender *contenders, int count) {
  const bench_shape *size = &v->rows.size;
  const contender *limit = turns_limit(contenders, count);
  report_kernel(w, kernel->name, kernel->options, kernel->targets, number_type_info(v->rows.type)->name);
  report_sizes(w, size->name, size->batches, size->tokens, size->heads, size->head_dim);
  json_text(w, "entry", "append");
  json_integer(w, "key_heads", v->key_heads);
  json_text(w, "layout", v->layout == LAYOUT_BNHD ? "bnhd" : "bhnd");
  json_bool(w, "in_place", in_place);
  json_integer(w, "threads", threads);
  json_integer(w, "samples", TURNS_MOST);
  json_number(w, "seconds", contenders[NORMED].seconds);
  json_number(w, "without_norms_seconds", contenders[PLAIN].seconds);
  json_number(w, "separate_seconds", contenders[SEPARATE].seconds);
  json_number(w, "without_norms_of_separate", contenders[PLAIN].seconds / contenders[SEPARATE].seconds);
  json_number(w, "bytes", bytes_of(v));
  if (v->rows.table) json_integer(w, "table_bytes", (long long)v->rows.table_bytes);
  if (limit) {
    turns_json_limits(w, contenders, count);
    json_number(w, "ratio", limit->seconds / contenders[NORMED].seconds);
    json_number(w, "without_norms_ratio", limit->seconds / contenders[PLAIN].seconds);
  }
  report_row_end(w);
}

static void print_head(const turns_request *r) {
  const pegen_kernel *kernel = r->kernel;
  const bench_options *bench = r->bench;
  printf(
      "%s %s\n%s, %s, %d thread%s; times are medians of %d; NAME_append with norms of q and k, and without; separate: "
      "NAME_encode, then a copy of k and v to their slots; the limit moves the same bytes%s%s\n",
      kernel->name, kernel->options, kernel->targets, number_type_info(r->type)->name, bench->threads,
      bench->threads > 1 ? "s" : "", TURNS_MOST, bench->table ? " and reads the table" : "",
      bench->group > 1 ? arena_printf(r->memory, "; %d heads of q for each of k and v", bench->group) : "");
  printf("%-8s %-16s %-4s %-3s %12s %12s %12s %8s %12s %6s %7s  %-17s %11s\n", "shape", "[B,N,H,D]", "mem", "to",
         "norms", "without", "separate", "of that", "limit", "norms", "without", "(loop)", "bytes");
}

/* ---- shapes ---- */

static int visit(void *context, const bench_shape *size, bench_layout layout, bool in_place) {
  const turns_request *r = context;
  contender *contenders = arena_array(r->memory, contender, CONTENDERS_MOST);
  moving by[CONTENDERS_MOST];
  serving v = {0};
  int group = r->bench->group ? r->bench->group : 1;
  if (size->heads % group) {
    diag_error(NULL, 0, "bench: --group %d: the shape %s has %lld heads of q; expected a multiple", group, size->name,
               (long long)size->heads);
    return STATUS_ERROR;
  }
  if (!bed_lay(r->memory, &v.rows, r->spec, r->kernel, size, r->type, layout, in_place)) return bench_no_memory(size);
  int error = r->bench->table ? bed_lay_table(&v.rows, r->kernel) : 0;
  if (r->bench->table && !v.rows.table) {
    clear(&v);
    return bench_no_memory(size);
  }
  if (!lay(r->memory, &v, layout, group)) return bench_no_memory(size);
  int count = enter(r->memory, &v, r->kernel, in_place, by, contenders);
  for (int i = 0; i < count; i++) contenders[i].threads = r->threads;
  if (!error) error = turns_measure(contenders, count, &v.rows, TURNS_MOST);
  json_writer *w = error ? NULL : report_row(r->bench);
  if (w) write_row(w, &v, r->kernel, in_place, r->bench->threads, contenders, count);
  else if (!error) print_row(&v, in_place, contenders, count);
  else diag_error(NULL, 0, "bench: the kernel refused the shape %s: %s", size->name, pegen_strerror(error));
  clear(&v);
  return error ? STATUS_ERROR : STATUS_OK;
}

int bench_refuse_append(const spec *s, const char *what) {
  diag_error(s->file, s->line,
             "bench: --append, but %s of '%s' has no NAME_append; a rotation, or what is added to rows, for a "
             "processor, was expected",
             what, s->name);
  return STATUS_ERROR;
}

int bench_append(arena *a, const spec *s, const pegen_kernel *kernel, unsigned dtype, const bench_options *bench) {
  if (!kernel->append) return bench_refuse_append(s, "the kernel");
  return turns_each_shape(a, s, kernel, dtype, bench, print_head, visit);
}
