/* sass/explain: facts of each entry, as text and as JSON; see sass/explain.h. */
#include "sass/explain.h"

#include "base/diag.h"
#include "base/json.h"
#include "base/number.h"
#include "base/status.h"
#include "compile.h"
#include "gpu/tools.h"
#include "sass/code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 12, ROWS = 2 * HEADS }; /* of q and k, that an encoding's figures are for */

typedef struct entry_facts {
  const char *name;
  bool encodes; /* its turn is all of a thread */
  sass_resources resources;
  sass_occupancy occupancy;
  sass_turn turn;
  double cycles; /* of a scheduler, for a turn of one warp */
  sass_banks banks;
} entry_facts;

/* ---- what follows from them ---- */

/* TFLOP/s of products as the schedule has it, and as measured kernels are expected to reach it; 0: there are none. */
static double scheduled_rate(const sass_chip *chip, const entry_facts *f) {
  double flops = f->turn.products ? 2.0 * 16 * 8 * 16 * f->turn.products : 2.0 * SASS_LANES * f->turn.multiply_adds;
  if (f->encodes || f->turn.loops || !f->cycles) return 0;
  return flops * SASS_SCHEDULERS * chip->multiprocessors * chip->gigahertz * 1e-3 / f->cycles;
}

static double expected_rate(const sass_chip *chip, const entry_facts *f) {
  return scheduled_rate(chip, f) * (f->turn.products ? chip->reach : 1);
}

/* The time that a copy of the rows takes, of the kernel's. */
static double share_of_copy(const sass_chip *chip, const entry_facts *f) {
  double share = f->cycles && !f->turn.loops ? sass_copy_cycles(chip, &f->turn) / f->cycles : 0;
  return share > 1 ? 1 : share;
}

static int64_t bytes_in_flight(const entry_facts *f) {
  int64_t bytes = f->turn.copies ? f->turn.copied_bytes : f->turn.loaded_bytes;
  return bytes * SASS_LANES * f->occupancy.warps;
}

static double busy_share(const sass_chip *chip, const entry_facts *f, int pipe) {
  double cycles = 0;
  for (int i = 0; i < f->turn.count; i++)
    if (f->turn.at[i]->pipe == (sass_pipe)pipe)
      cycles += pipe == SASS_TENSOR ? sass_product_cycles(chip) : f->turn.at[i]->cycles;
  return f->cycles ? cycles / f->cycles : 0;
}

static double issue_share(const entry_facts *f) { return f->cycles ? f->turn.count / f->cycles : 0; }

/* What issue slots are counted for, and how many of it a turn has. */
static int unit_of(const entry_facts *f, const char **name) {
  *name = f->turn.products ? "mma" : f->encodes ? "row" : "multiply-add of products";
  return f->turn.products ? f->turn.products : f->encodes ? ROWS : f->turn.multiply_adds;
}

/* The next chip of the target, with the entry's warps scheduled there; false after the last. */
static bool next_chip(int *index, const sass_chip *first, const entry_facts *f, entry_facts *there) {
  const sass_chip *chip;
  while ((chip = sass_chip_at(++*index)) && strcmp(chip->target, first->target)) continue;
  if (!chip) return false;
  *there = *f;
  there->occupancy = sass_occupancy_of(chip, &f->resources);
  there->cycles = sass_schedule(chip, &f->turn, there->occupancy.warps / SASS_SCHEDULERS, f->encodes);
  return true;
}

static void add_entry(arena *a, const sass_chip *chip, const char *ptx, const sass_code *code, entry_facts *f) {
  f->name = code->name;
  f->encodes = strstr(code->name, "_encode_") && !strstr(code->name, "_gradient");
  f->turn = f->encodes ? sass_rows(a, code, ROWS) : sass_main_loop(a, code);
  f->occupancy = sass_occupancy_of(chip, &f->resources);
  f->cycles = sass_schedule(chip, &f->turn, f->occupancy.warps / SASS_SCHEDULERS, f->encodes);
  f->banks = sass_find_conflicts(a, ptx, code->name);
}

/* ---- text ---- */

static void print_slots(arena *a, const entry_facts *f) {
  const char *unit, *text = "";
  int count = unit_of(f, &unit);
  for (int p = 0; count && p < SASS_PIPE_COUNT; p++)
    if (f->turn.issued[p])
      text = arena_printf(a, "%s%s%s %.2f", text, *text ? ", " : "", sass_pipe_names[p],
                          (double)f->turn.issued[p] / count);
  if (count) printf("  issue slots     of each %s %.2f: %s\n", unit, (double)f->turn.count / count, text);
}

static void print_busy(arena *a, const sass_chip *chip, const entry_facts *f) {
  const char *text = arena_printf(a, "issue %.0f %%", 100 * issue_share(f));
  for (int p = 0; p < SASS_CONTROL; p++)
    if (f->turn.issued[p])
      text = arena_printf(a, "%s, %s %.0f %%", text, sass_pipe_names[p], 100 * busy_share(chip, f, p));
  printf("  busy            %s\n", text);
}

static void print_bounds(const sass_chip *first, const entry_facts *f) {
  entry_facts there;
  for (int c = -1; next_chip(&c, first, f, &there);) {
    const sass_chip *chip = sass_chip_at(c);
    double expected = expected_rate(chip, &there);
    if (f->turn.loops)
      printf("  bound, %s     none: %d loops inside have numbers of turns that are not in the code\n", chip->name,
             f->turn.loops);
    else if (f->encodes && f->turn.row_bytes)
      printf("  bound, %s     %.2f of the speed of a copy of the rows (%d of a token)\n", chip->name,
             share_of_copy(chip, &there), ROWS);
    else if (f->turn.products)
      printf(
          "  bound, %s     %.0f TFLOP/s of products scheduled, %.0f expected: %.2f of the peak, %.2f of mma.sync's\n",
          chip->name, scheduled_rate(chip, &there), expected, expected / chip->peak,
          expected / chip->peak / chip->mma_share);
    else if (expected > 0) printf("  bound, %s     %.0f TFLOP/s of products in float32\n", chip->name, expected);
  }
}

static void print_entry(arena *a, const sass_chip *chip, const entry_facts *f) {
  const sass_resources *r = &f->resources;
  printf("\n%s\n", f->name);
  printf("  registers       %d, %d bytes of spills stored, %d loaded\n", r->registers, r->spill_stores, r->spill_loads);
  printf("  shared memory   %lld bytes of a block of %d threads\n", (long long)r->shared, r->threads);
  printf("  occupancy       %d block%s a multiprocessor, %d of %d warps, limited by %s\n", f->occupancy.blocks,
         f->occupancy.blocks == 1 ? "" : "s", f->occupancy.warps, chip->warps, f->occupancy.limit);
  if (!f->turn.count) return;
  printf("  %-15s %d instructions, %d mma; a scheduler takes %.0f cycles for a warp\n",
         f->encodes ? "a thread" : "a turn", f->turn.count, f->turn.products, f->cycles);
  print_slots(a, f);
  print_busy(a, chip, f);
  if (f->banks.accesses)
    printf("  bank conflicts  %s\n",
           f->banks.wavefronts == f->banks.least
               ? arena_printf(a, "none in %d of %d accesses to shared memory", f->banks.known, f->banks.accesses)
               : arena_printf(a, "%d wavefronts in place of %d, in %d of %d accesses to shared memory",
                              f->banks.wavefronts, f->banks.least, f->banks.known, f->banks.accesses));
  if (f->turn.stages) printf("  stages          %d\n", f->turn.stages);
  if (bytes_in_flight(f)) printf("  bytes in flight %lld of a multiprocessor\n", (long long)bytes_in_flight(f));
  print_bounds(chip, f);
}

/* ---- JSON ---- */

static void write_pipes(json_writer *w, const sass_chip *chip, const entry_facts *f) {
  json_begin(w, "issued", '{');
  for (int p = 0; p < SASS_PIPE_COUNT; p++) json_integer(w, sass_pipe_names[p], f->turn.issued[p]);
  json_end(w, '}');
  json_begin(w, "busy", '{');
  json_number(w, "issue", issue_share(f));
  for (int p = 0; p < SASS_CONTROL; p++) json_number(w, sass_pipe_names[p], busy_share(chip, f, p));
  json_end(w, '}');
}

static void write_bounds(json_writer *w, const sass_chip *first, const entry_facts *f) {
  entry_facts there;
  json_begin(w, "bounds", '[');
  for (int c = -1; next_chip(&c, first, f, &there);) {
    const sass_chip *chip = sass_chip_at(c);
    json_begin(w, NULL, '{');
    json_text(w, "chip", chip->name);
    json_number(w, "scheduled_tflops", scheduled_rate(chip, &there));
    json_number(w, "tflops", expected_rate(chip, &there));
    json_number(w, "of_peak", expected_rate(chip, &there) / chip->peak);
    json_number(w, "of_copy", f->encodes ? share_of_copy(chip, &there) : 0);
    json_end(w, '}');
  }
  json_end(w, ']');
}

static void write_entry(json_writer *w, const sass_chip *chip, const entry_facts *f) {
  const struct {
    const char *name;
    int64_t value;
  } numbers[] = {{"registers", f->resources.registers},
                 {"spill_stores", f->resources.spill_stores},
                 {"spill_loads", f->resources.spill_loads},
                 {"shared", f->resources.shared},
                 {"threads", f->resources.threads},
                 {"blocks", f->occupancy.blocks},
                 {"warps", f->occupancy.warps},
                 {"instructions", f->turn.count},
                 {"products", f->turn.products},
                 {"multiply_adds", f->turn.multiply_adds},
                 {"stages", f->turn.stages},
                 {"loops", f->turn.loops},
                 {"accesses", f->banks.accesses},
                 {"accesses_known", f->banks.known},
                 {"wavefronts", f->banks.wavefronts},
                 {"wavefronts_least", f->banks.least},
                 {"bytes_in_flight", bytes_in_flight(f)}};
  json_begin(w, NULL, '{');
  json_text(w, "name", f->name);
  json_text(w, "limit", f->occupancy.limit);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) json_integer(w, numbers[i].name, numbers[i].value);
  json_number(w, "cycles", f->cycles);
  write_pipes(w, chip, f);
  write_bounds(w, chip, f);
  json_end(w, '}');
}

static void print_all(arena *a, const spec *s, const sass_chip *chip, const entry_facts *facts, int count, bool json) {
  json_writer w = {.out = stdout};
  if (json) {
    json_begin(&w, NULL, '{');
    json_text(&w, "name", s->name);
    json_text(&w, "target", chip->target);
    json_begin(&w, "entries", '[');
  } else {
    printf("%s, %s\n", s->name, chip->target);
  }
  for (int i = 0; i < count; i++)
    if (json) write_entry(&w, chip, &facts[i]);
    else print_entry(a, chip, &facts[i]);
  if (!json) return;
  json_end(&w, ']');
  json_end(&w, '}');
}

/* ---- the command ---- */

static const sass_chip *find_chip(const char *targets) {
  for (int c = 0; sass_chip_at(c); c++)
    if (!targets || !strcmp(targets, sass_chip_at(c)->target)) return sass_chip_at(c);
  diag_error(NULL, 0, "explain --sass has no figures of '%s'; expected --target %s", targets, sass_chip_at(0)->target);
  return NULL;
}

int sass_explain(arena *a, const spec *s, const compile_options *options, bool json) {
  const sass_chip *chip = find_chip(options->targets);
  compile_options asked = *options;
  compile_output ptx;
  sass_listing listing;
  sass_code *code;
  if (!chip) return STATUS_ERROR;
  asked.emit = EMIT_PTX;
  asked.targets = chip->target;
  if (!asked.dtypes) asked.dtypes = NUMBER_BIT(NUMBER_BF16);
  if (!compile(a, s, &asked, &ptx)) return STATUS_ERROR;
  const char *text = arena_printf(a, "%.*s", (int)ptx.size, ptx.data);
  free(ptx.data);
  if (!gpu_tools_list(a, text, strlen(text), chip->target, &listing)) return STATUS_ERROR;
  int count = sass_parse(a, listing.code, &code), known = 0;
  entry_facts *facts = arena_array(a, entry_facts, count + 1);
  for (int i = 0; i < count; i++)
    if (sass_read_resources(a, text, listing.log, code[i].name, &facts[known].resources))
      add_entry(a, chip, text, &code[i], &facts[known++]);
  print_all(a, s, chip, facts, known, json);
  return STATUS_OK;
}
