/* bench/report: where figures go. Lines for people are printed by whoever measures; with --json all figures become one
 * object on the standard output, written when everything has been measured, and nothing where something failed:
 *
 *     {"pegen": version, "command": "...", "machine": {...}, "rows": [{...}, ...]}
 *
 * A row says all of itself (kernel, options, targets, number type, shape), so that rows of several machines can be put
 * side by side. docs/speed.md has the members.
 */
#pragma once

#include "base/json.h"
#include "bench/request.h"

#include <stdint.h>

typedef struct bench_report bench_report;

/* NULL after a message where there is no memory. */
bench_report *report_create(const char *command);
/* Writes the object where status is STATUS_OK; returns the exit code. */
int report_finish(bench_report *r, int status);

/* Where to: a row's object that is open now, or NULL, and lines are to be printed. A row ends with report_row_end. */
json_writer *report_row(const bench_options *bench);
void report_row_end(json_writer *w);

/* A time, on a line for people, in the unit that fits it. */
void bench_print_time(double seconds);

/* Members that many rows have. */
void report_kernel(json_writer *w, const char *name, const char *options, const char *targets, const char *dtype);
void report_sizes(json_writer *w, const char *shape, int64_t batch, int64_t tokens, int64_t heads, int64_t head_dim);
