/* bench/rows: measures a kernel through its C interface; see bench/rows.h.
 * Contenders are the kernel and limit loops over the same buffers, which take turns (bench/turns.h).
 */
#include "bench/rows.h"

#include "base/diag.h"
#include "base/number.h"
#include "bench/report.h"
#include "bench/turns.h"

#include <stdio.h>

enum { REPETITIONS = TURNS_MOST, REPETITIONS_PREPARING = 7, CONTENDERS_MOST = 10 };

/* ---- contenders --------------------------------------------------------------------- */

/* What comes next: an attention reads the outputs once. */
static void work_reader(void *context, int part, int parts) {
  const contender *c = context;
  const bed *b = c->on;
  bool is_apart = c->limit && b->scratch[0];
  for (int t = TENSOR_Q_OUT; t <= TENSOR_K_OUT; t++)
    turns_read_part(is_apart ? b->scratch[t] : b->tensor[t].data, is_apart ? b->moved / 4 : b->out_bytes, part, parts);
}

/* A part is the same share of q and of k, cut at cache lines as rows are. */
static void work_limit(void *context, int part, int parts) {
  const contender *c = context;
  const bed *b = c->on;
  size_t bytes = b->scratch[0] ? b->moved / 4 : b->bytes, lines = (bytes + 63) / 64;
  size_t begin = lines * (size_t)part / (size_t)parts * 64, end = lines * (size_t)(part + 1) / (size_t)parts * 64;
  if (end > bytes) end = bytes;
  for (int t = TENSOR_Q; t <= TENSOR_K; t++)
    if (b->scratch[t])
      c->limit((char *)b->scratch[t + TENSOR_Q_OUT] + begin, (const char *)b->scratch[t] + begin, end - begin);
    else c->limit((char *)b->tensor[t + TENSOR_Q_OUT].data + begin, (const char *)b->data[t] + begin, end - begin);
  if (b->table) turns_read_part(b->table, b->table_bytes, part, parts);
}

/* ---- the table ---------------------------------------------------------------------- */

static double bytes_of(const bed *b, const contender *kernel) {
  return (double)(b->moved + b->table_bytes + (kernel->then ? 2 * b->out_bytes : 0));
}

static const char *gained_words(const pegen_grad_args *all) {
  if (all->table) return "and to a table of them";
  if (all->inputs) return all->operands ? "of inputs and operands" : "of inputs";
  return all->operands ? "and of operands" : "and of positions";
}

/* Rows alone move what encode moves; with operands what encode wrote is read, too. */
static void print_backward(const bed *b, const contender *forward, const contender *backward,
                           const contender *preparing) {
  const char *const names[] = {"gradients of rows", gained_words(&b->backward.all_grad)};
  for (int i = 0; i < (b->backward.rows_alone ? 1 : 2); i++) {
    printf("         %-25s", names[i]);
    bench_print_time(backward[i].seconds);
    printf(" %8.2fx of encode\n", backward[i].seconds / forward->seconds);
  }
  if (!b->backward.torques) return;
  printf("         %-25s", "prepare_backward");
  bench_print_time(preparing[1].seconds);
  printf(" %8.2fx of prepare, from %.2f MB\n", preparing[1].seconds / preparing[0].seconds,
         (double)b->backward.torque_bytes * 1e-6);
}

static void print_row(const bed *b, bench_layout layout, bool in_place, const contender *contenders, int count,
                      int n_kernels, const contender *preparing, const contender *backward) {
  bench_print_shape(&b->size, layout, in_place);
  const contender *kernel = &contenders[n_kernels - 1];
  bench_print_time(kernel->seconds);
  if (!b->size.time_only) {
    const contender *limit = turns_limit(contenders, count);
    double bytes = bytes_of(b, kernel); /* q, k, inputs and table read, outputs written, and read where they are */
    printf(" %8.2f MB %7.1f %7.1f  %-9s %5.2f", bytes * 1e-6, bytes / kernel->seconds * 1e-9,
           bytes / limit->seconds * 1e-9, limit->name, limit->seconds / kernel->seconds);
  }
  if (n_kernels > 1)
    printf("%s  %.2fx of one thread", b->size.time_only ? "    " : "", contenders[0].seconds / kernel->seconds);
  if (b->table) {
    printf("  table %.2f MB, prepared in", (double)b->table_bytes * 1e-6);
    bench_print_time(preparing->seconds);
  }
  puts("");
  if (b->backward.workspace) print_backward(b, kernel, backward, preparing);
  fflush(stdout);
}

static void write_row(json_writer *w, const pegen_kernel *kernel, const bed *b, bench_layout layout, bool in_place,
                      int threads, const contender *contenders, int count, int n_kernels, const contender *preparing,
                      const contender *backward) {
  report_kernel(w, kernel->name, kernel->options, kernel->targets, number_type_info(b->type)->name);
  report_sizes(w, b->size.name, b->size.batches, b->size.tokens, b->size.heads, b->size.head_dim);
  json_text(w, "layout", layout == LAYOUT_BNHD ? "bnhd" : "bhnd");
  json_bool(w, "in_place", in_place);
  json_integer(w, "threads", threads);
  json_integer(w, "samples", REPETITIONS);
  json_number(w, "seconds", contenders[n_kernels - 1].seconds);
  if (n_kernels > 1) json_number(w, "seconds_of_one_thread", contenders[0].seconds);
  json_bool(w, "then_read", contenders[0].then != NULL);
  if (b->size.shares_inputs) json_bool(w, "shared_inputs", true);
  json_number(w, "bytes", bytes_of(b, &contenders[0]));
  if (b->table) {
    json_integer(w, "table_bytes", (long long)b->table_bytes);
    json_number(w, "prepare_seconds", preparing->seconds);
  }
  if (b->backward.workspace) {
    json_number(w, "backward_rows_seconds", backward[0].seconds);
    if (!b->backward.rows_alone) json_number(w, "backward_seconds", backward[1].seconds);
  }
  if (b->backward.torques) {
    json_integer(w, "gradient_table_bytes", (long long)b->backward.torque_bytes);
    json_number(w, "prepare_backward_seconds", preparing[1].seconds);
  }
  if (!b->size.time_only) {
    turns_json_limits(w, contenders, count);
    json_number(w, "ratio", turns_limit(contenders, count)->seconds / contenders[n_kernels - 1].seconds);
  }
  report_row_end(w);
}

static int visit(void *context, const bench_shape *size, bench_layout layout, bool in_place) {
  const turns_request *r = context;
  const bench_options *bench = r->bench;
  const pegen_kernel *kernel = r->kernel;
  crew *threads = r->threads;
  bool tabled = bench->table;
  contender *contenders = arena_array(r->memory, contender, CONTENDERS_MOST);
  bed b;
  if (!bed_lay(r->memory, &b, r->spec, kernel, size, r->type, layout, in_place)) return bench_no_memory(size);
  int error = tabled ? bed_lay_table(&b, kernel) : 0;
  bool has_room = !tabled || b.table;
  if (!error && has_room && bench->backward) {
    error = bed_lay_backward(r->memory, &b, r->spec, kernel);
    has_room = b.backward.workspace != NULL;
  }
  if (!has_room) {
    bed_clear(&b);
    return bench_no_memory(size);
  }
  int count = 0;
  for (int shared = 0; shared <= (threads != NULL); shared++)
    contenders[count++] = (contender){.name = "kernel", .entry = kernel->encode, .threads = shared ? threads : NULL};
  int n_kernels = count;
  const contender *backward = &contenders[count];
  int n_backward = !bench->backward ? 0 : b.backward.rows_alone ? 1 : 2;
  for (int i = 0; i < n_backward; i++)
    contenders[count++] = (contender){.name = "backward",
                                      .entry = kernel->encode_backward,
                                      .args = i ? &b.backward.all : &b.backward.rows,
                                      .finish = i ? kernel->encode_backward_finish : NULL,
                                      .threads = threads};
  const limit_loop *loops;
  int n_loops = size->time_only ? 0 : limit_loops(in_place, &loops);
  for (int i = 0; i < n_loops; i++)
    contenders[count++] = (contender){.name = loops[i].name, .limit = loops[i].run, .threads = threads};
  for (int i = 0; i < count; i++) {
    contenders[i].on = &b;
    contenders[i].work = contenders[i].limit ? work_limit : turns_call_kernel;
    contenders[i].then = bench->then_read ? work_reader : NULL;
  }
  contender *preparing = arena_array(r->memory, contender, 2);
  preparing[0] =
      (contender){.name = "prepare", .work = turns_call_kernel, .on = &b, .entry = kernel->prepare, .threads = threads};
  preparing[1] = (contender){.name = "prepare_backward",
                             .work = turns_call_kernel,
                             .on = &b,
                             .entry = kernel->prepare_backward,
                             .args = &b.backward.prepare,
                             .finish = kernel->prepare_backward_finish,
                             .threads = threads};
  if (!error && tabled) error = turns_measure(preparing, b.backward.torques ? 2 : 1, &b, REPETITIONS_PREPARING);
  if (!error) error = turns_measure(contenders, count, &b, REPETITIONS);
  json_writer *w = error ? NULL : report_row(bench);
  if (w) write_row(w, kernel, &b, layout, in_place, bench->threads, contenders, count, n_kernels, preparing, backward);
  else if (!error) print_row(&b, layout, in_place, contenders, count, n_kernels, preparing, backward);
  else diag_error(NULL, 0, "bench: the kernel refused the shape %s: %s", size->name, pegen_strerror(error));
  bed_clear(&b);
  return error ? STATUS_ERROR : STATUS_OK;
}

static void print_head(const turns_request *r) {
  const pegen_kernel *kernel = r->kernel;
  const bench_options *bench = r->bench;
  printf("%s %s\n%s, %s, %d thread%s; times are medians of %d; the limit moves the same bytes%s%s%s\n", kernel->name,
         kernel->options, kernel->targets, number_type_info(r->type)->name, bench->threads,
         bench->threads > 1 ? "s" : "", REPETITIONS, bench->table ? " and reads the table" : "",
         bench->then_read ? "; each is followed by one reading of q and k" : "",
         bench->shared_inputs ? "; heads share inputs" : "");
  printf("%-8s %-16s %-4s %-3s %12s %11s %7s %7s  %-9s %5s\n", "shape", "[B,N,H,D]", "mem", "to", "a call", "bytes",
         "GB/s", "limit", "(loop)", "ratio");
}

int bench_refuse_table(const spec *s, const char *what) {
  diag_error(
      s->file, s->line,
      "bench: --table, but %s of '%s' has no NAME_prepare; the kernel of a rotation, for a processor, was expected",
      what, s->name);
  return STATUS_ERROR;
}

int bench_kernel(arena *a, const spec *s, const pegen_kernel *kernel, unsigned dtype, const bench_options *bench) {
  if (bench->table && !kernel->prepare) return bench_refuse_table(s, "the kernel");
  if (bench->backward && !kernel->encode_backward) {
    diag_error(s->file, s->line, "bench: --backward, but the kernel has no NAME_encode_backward");
    return STATUS_ERROR;
  }
  return turns_each_shape(a, s, kernel, dtype, bench, print_head, visit);
}
