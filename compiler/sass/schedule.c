/* sass/schedule: chips, how many warps one holds, and the cycles of a turn; see sass/code.h. */
#include "sass/code.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Peaks and clocks are NVIDIA's data sheets'; copies of H200 are measured (docs/speed.md), of H100 in proportion to its
 * memory's 3.35 of 4.8 TB/s. mma.sync: Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via
 * Microbenchmarking", 2024: .629 of wgmma. */
static const sass_chip chips[] = {
    {"H200", "sm_90", 132, 1.83, 65536, 228 << 10, 64, 32, 990, .63, 4.1, .84},
    {"H100", "sm_90", 132, 1.83, 65536, 228 << 10, 64, 32, 990, .63, 2.9, .84},
};
enum { CHIPS = sizeof chips / sizeof *chips };

const sass_chip *sass_chip_at(int index) { return index < CHIPS ? &chips[index] : NULL; }

double sass_product_cycles(const sass_chip *chip) {
  double flops = 2.0 * 16 * 8 * 16 * SASS_SCHEDULERS * chip->multiprocessors * chip->gigahertz * 1e-3;
  return flops / (chip->peak * chip->mma_share);
}

/* ---- occupancy ---- */

enum { REGISTER_UNIT = 8, SHARED_UNIT = 128, SHARED_OF_SYSTEM = 1024 };

static int rounded(int x, int unit) { return (x + unit - 1) / unit * unit; }

sass_occupancy sass_occupancy_of(const sass_chip *chip, const sass_resources *r) {
  int warps = rounded(r->threads, SASS_LANES) / SASS_LANES, lanes = SASS_LANES * rounded(r->registers, REGISTER_UNIT);
  int of_scheduler = lanes ? chip->registers / SASS_SCHEDULERS / lanes : chip->warps;
  int64_t shared = rounded((int)r->shared, SHARED_UNIT) + SHARED_OF_SYSTEM;
  const struct {
    int blocks;
    const char *what;
  } limits[] = {{chip->warps / warps, "warps"},
                {chip->blocks, "blocks"},
                {of_scheduler * SASS_SCHEDULERS / warps, "registers"},
                {(int)(chip->shared / shared), "shared memory"}};
  int least = 0;
  for (int i = 1; i < 4; i++)
    if (limits[i].blocks < limits[least].blocks) least = i;
  return (sass_occupancy){limits[least].blocks, limits[least].blocks * warps, limits[least].what};
}

/* ---- warps of a scheduler, cycle by cycle ---- */

enum {
  TURNS = 12, /* of each warp; the second half is counted, when they have drifted apart */
  QUEUE = 4, /* instructions that wait for the LSU and the XU outside of their warps */
  GROUPS = 8, /* of copies on the way that a wait may leave */
  BARRIER = 18, /* cycles of one where nobody is late */
  READ = 6, /* from the pipe's turn until operands are read */
  MOST_WARPS = 16, /* of a scheduler */
  MEMORY_LATENCY = 700, /* behind the bytes' own time */
  MEMORY_QUEUE = 600 /* cycles of accesses that wait for memory before warps do */
};

typedef struct scoreboard {
  double all; /* when all that set it is there */
  double group[GROUPS]; /* the last ones, one by one */
  int n_groups;
} scoreboard;

typedef struct warp {
  int at;
  double ready, copies; /* next instruction; copies that were begun have come */
  scoreboard board[SASS_SCOREBOARDS];
} warp;

typedef struct scheduler {
  double now, product_cycles, free[SASS_PIPE_COUNT];
  double memory_rate, memory_free; /* 0: caches hold all */
  int n_warps;
  warp of[MOST_WARPS];
} scheduler;

/* Bytes of a scheduler and cycle. */
static double memory_rate(const sass_chip *chip) {
  return chip->copy * 1e3 / (chip->multiprocessors * SASS_SCHEDULERS * chip->gigahertz);
}

double sass_copy_cycles(const sass_chip *chip, const sass_turn *turn) {
  return (double)turn->row_bytes * SASS_LANES / memory_rate(chip);
}

static bool is_queued(const sass_instruction *i) { return i->pipe == SASS_LSU || i->pipe == SASS_XU; }

static double cycles_of(const scheduler *s, const sass_instruction *i) {
  return i->pipe == SASS_TENSOR ? s->product_cycles : i->cycles;
}

static bool is_of_memory(const scheduler *s, const sass_instruction *i) {
  return s->memory_rate > 0 && i->bytes == 16 && (sass_is(i, "LDG") || sass_is(i, "STG"));
}

/* DEPBAR.LE SB0, 0x1: all but the last so many are there. */
static double waited_groups(const warp *w, const sass_instruction *i) {
  const char *name = strstr(i->text, "SB"), *comma = name ? strchr(name, ',') : NULL;
  if (!comma) return 0;
  const scoreboard *board = &w->board[strtoul(name + 2, NULL, 10) % SASS_SCOREBOARDS];
  long left = strtol(comma + 1, NULL, 0);
  return left >= board->n_groups || left >= GROUPS ? 0 : board->group[(board->n_groups - 1 - left) % GROUPS];
}

static double begins_at(const scheduler *s, const warp *w, const sass_instruction *i) {
  double at = w->ready;
  for (int b = 0; b < SASS_SCOREBOARDS; b++)
    if (i->waits >> b & 1) at = fmax(at, w->board[b].all);
  if (sass_is(i, "DEPBAR")) at = fmax(at, waited_groups(w, i));
  if (is_of_memory(s, i)) at = fmax(at, s->memory_free - MEMORY_QUEUE);
  return i->pipe == SASS_CONTROL ? at : fmax(at, s->free[i->pipe] - (is_queued(i) ? QUEUE * cycles_of(s, i) : 0));
}

static void set_board(scoreboard *board, double at) {
  board->all = fmax(board->all, at);
  board->group[board->n_groups++ % GROUPS] = at;
}

static void issue(scheduler *s, warp *w, const sass_instruction *i) {
  bool has_pipe = i->pipe != SASS_CONTROL;
  double begin = has_pipe ? fmax(s->now, s->free[i->pipe]) : s->now, cycles = cycles_of(s, i);
  double end = begin + i->latency + (is_queued(i) ? cycles : 0);
  if (is_of_memory(s, i)) {
    s->memory_free = fmax(begin, s->memory_free) + i->bytes * SASS_LANES / s->memory_rate;
    end = s->memory_free + MEMORY_LATENCY;
  }
  if (has_pipe) s->free[i->pipe] = begin + cycles;
  if (sass_is(i, "LDGSTS")) w->copies = fmax(w->copies, end);
  if (sass_is(i, "LDGDEPBAR")) end = fmax(s->now, w->copies);
  if (i->sets >= 0) set_board(&w->board[i->sets], end);
  if (i->frees >= 0) set_board(&w->board[i->frees], begin + cycles + READ);
  w->ready = s->now + (i->stall > 1 ? i->stall : 1) + (sass_is(i, "BAR") ? BARRIER : 0);
}

/* The warp that issued last goes on while it can; the others follow in a circle. -1: none can, and *next says when. */
static int choose_warp(const scheduler *s, const sass_turn *turn, int last, double *next) {
  *next = INFINITY;
  for (int k = 0; k < s->n_warps; k++) {
    int w = (last + k) % s->n_warps;
    double at = begins_at(s, &s->of[w], turn->at[s->of[w].at]);
    if (at <= s->now) return w;
    *next = fmin(*next, at);
  }
  return -1;
}

double sass_schedule(const sass_chip *chip, const sass_turn *turn, int warps, bool rows_in_memory) {
  scheduler s = {.memory_rate = rows_in_memory ? memory_rate(chip) : 0,
                 .product_cycles = sass_product_cycles(chip),
                 .n_warps = warps < 1            ? 1
                            : warps > MOST_WARPS ? MOST_WARPS
                                                 : warps};
  double half = 0;
  int done = 0, before = s.n_warps * TURNS / 2, last = 0;
  while (turn->count && done < s.n_warps * TURNS) {
    double next;
    int chosen = choose_warp(&s, turn, last, &next);
    if (chosen < 0) {
      s.now = fmax(s.now + 1, next);
      continue;
    }
    warp *w = &s.of[last = chosen];
    issue(&s, w, turn->at[w->at]);
    if (++w->at == turn->count) {
      w->at = 0;
      if (++done == before) half = s.now;
    }
    s.now++;
  }
  return turn->count ? (s.now - half) / (done - before) : 0;
}
