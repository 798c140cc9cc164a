/* bench/report: figures as one JSON object; see bench/report.h. */
#include "bench/report.h"

#include "base/diag.h"
#include "bench/machine.h"

#include <stdlib.h>

struct bench_report {
  json_writer writer;
  char *text;
  size_t size;
};

bench_report *report_create(const char *command) {
  bench_report *r = calloc(1, sizeof *r);
  if (r) r->writer.out = open_memstream(&r->text, &r->size);
  if (!r || !r->writer.out) {
    diag_error(NULL, 0, "bench: not enough memory");
    free(r);
    return NULL;
  }
  json_writer *w = &r->writer;
  json_begin(w, NULL, '{');
  json_text(w, "pegen", PEGEN_VERSION);
  json_text(w, "command", command);
  machine_json(w);
  json_begin(w, "rows", '[');
  return r;
}

int report_finish(bench_report *r, int status) {
  json_end(&r->writer, ']');
  json_end(&r->writer, '}');
  bool whole = fclose(r->writer.out) == 0;
  if (!status && (!whole || fwrite(r->text, 1, r->size, stdout) != r->size || fflush(stdout))) {
    diag_error(NULL, 0, "bench: the figures could not be written");
    status = STATUS_ERROR;
  }
  free(r->text);
  free(r);
  return status;
}

json_writer *report_row(const bench_options *bench) {
  if (!bench->report) return NULL;
  json_begin(&bench->report->writer, NULL, '{');
  return &bench->report->writer;
}

void report_row_end(json_writer *w) { json_end(w, '}'); }

void report_kernel(json_writer *w, const char *name, const char *options, const char *targets, const char *dtype) {
  json_text(w, "kernel", name);
  json_text(w, "options", options);
  json_text(w, "targets", targets);
  json_text(w, "dtype", dtype);
}

void report_sizes(json_writer *w, const char *shape, int64_t batch, int64_t tokens, int64_t heads, int64_t head_dim) {
  json_text(w, "shape", shape);
  json_integer(w, "batch", batch);
  json_integer(w, "tokens", tokens);
  json_integer(w, "heads", heads);
  json_integer(w, "head_dim", head_dim);
}

void bench_print_time(double seconds) {
  if (seconds < 1e-3) printf(" %9.2f us", seconds * 1e6);
  else printf(" %9.2f ms", seconds * 1e3);
}
