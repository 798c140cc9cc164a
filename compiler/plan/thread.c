/* plan/thread: channels closed under blocks, laid over one template; see plan/thread.h. */
#include "plan/thread.h"

#include "base/diag.h"

/* Registers for a unit's channels and coefficients. Staged units are as many as one likes, so they are small: three
 * blocks of three, with which ptxas takes 64 to 72 registers a thread where four took 96. */
enum { WIDEST_ACCESS = 16, REGISTER_BUDGET = 120, STAGED_REGISTER_BUDGET = 36, MAX_MERGED = 8 };

/* Registers of a thread that has two rows at a time, coefficients and torques, and expressions to evaluate beside them.
 */
enum { GRADIENT_REGISTER_BUDGET = 56 };
enum {
  WARP = 32,
  BANKS = 32,
  WORD = 4,
  SECTOR = 32
}; /* threads; of shared memory, and their bytes; bytes that memory is written in */

static const expr *entry(const plan *p, int row, int column) {
  return p->program->matrix.entry[row * p->spec->n_components + column];
}

/* Whether a component is changed, or changes another one; where channels are mapped, all are. */
static bool is_active(const plan *p, int component) {
  if (p->spec->pre) return true;
  for (int j = 0; j < p->spec->n_components; j++)
    if (!expr_is_const(entry(p, component, j), component == j) ||
        (j != component && !expr_is_const(entry(p, j, component), 0)))
      return true;
  return false;
}

/* Block of a channel, -1 where the channel passes through. */
static int active_block(const plan *p, int channel) {
  int component = p->component_of[channel];
  return component >= 0 && is_active(p, component) ? p->block_of[channel] : -1;
}

/* ---- units ---- */

/* The accesses of the plan's channels, those that share a block under one label: the smallest of them. */
static int *label_accesses(arena *a, const plan *p, int lanes, int count) {
  int *label = arena_array(a, int, count), *of_block = arena_array(a, int, p->spec->n_blocks + 1);
  for (int i = 0; i < count; i++) label[i] = i;
  for (int i = 0; i < p->spec->n_blocks; i++) of_block[i] = -1;
  for (int channel = p->begin; channel < p->end; channel++) {
    int block = active_block(p, channel), access = (channel - p->begin) / lanes;
    if (block < 0) continue;
    if (of_block[block] < 0) of_block[block] = access;
    int x = label[of_block[block]], y = label[access];
    int keep = x < y ? x : y, drop = x < y ? y : x;
    for (int i = 0; keep != drop && i < count; i++)
      if (label[i] == drop) label[i] = keep;
  }
  return label;
}

static bool passes_through(const plan *p, int lanes, int access) {
  for (int lane = 0; lane < lanes; lane++)
    if (active_block(p, p->begin + access * lanes + lane) >= 0) return false;
  return true;
}

/* Rows of access_at, one column a unit: units with blocks first, in the order of their channels; accesses
 * that pass through fill what is free in the last unit's column and then columns of their own, or are left out. */
static void gather_units(arena *a, const plan *p, thread_tile *t, bool all) {
  int count = (p->end - p->begin) / t->lanes, *label = label_accesses(a, p, t->lanes, count);
  int *size = arena_array(a, int, count), *unit = arena_array(a, int, count), *filled = arena_array(a, int, count + 1);
  t->n_accesses = 1;
  for (int i = 0; i < count; i++)
    if (!passes_through(p, t->lanes, i) && ++size[label[i]] > t->n_accesses) t->n_accesses = size[label[i]];
  t->access_at = arena_array(a, int, t->n_accesses *count);
  int *at = arena_array(a, int, t->n_accesses *count); /* [unit][access] while the number of units is open */
  for (int i = 0; i < t->n_accesses * count; i++) at[i] = -1;
  for (int i = 0; i < count; i++) {
    if (passes_through(p, t->lanes, i)) continue;
    if (label[i] == i) unit[i] = t->n_units++;
    int u = unit[label[i]];
    at[u * t->n_accesses + filled[u]++] = p->begin + i * t->lanes;
  }
  int open = t->n_units;
  for (int i = 0; all && i < count; i++) {
    if (!passes_through(p, t->lanes, i)) continue;
    at[open * t->n_accesses + filled[open]++] = p->begin + i * t->lanes;
    t->n_units = open + 1;
    if (filled[open] == t->n_accesses) open++;
  }
  for (int u = 0; u < t->n_units; u++)
    for (int k = 0; k < t->n_accesses; k++) t->access_at[k * t->n_units + u] = at[u * t->n_accesses + k];
}

/* ---- the template ---- */

/* The unit with the most accesses that has blocks: its channels say what the template's are. */
static int template_unit(const plan *p, const thread_tile *t) {
  int best = 0, most = -1;
  for (int u = 0; u < t->n_units; u++) {
    int channels = 0;
    for (int i = 0; i < t->n_accesses * t->lanes; i++) {
      int first = t->access_at[i / t->lanes * t->n_units + u];
      channels += first >= 0 && active_block(p, first + i % t->lanes) >= 0;
    }
    if (channels > most) best = u, most = channels;
  }
  return best;
}

static void make_template(arena *a, const plan *p, thread_tile *t) {
  int width = t->n_accesses * t->lanes, u = template_unit(p, t), *block = arena_array(a, int, width);
  t->role_block = arena_array(a, int, width);
  t->role_component = arena_array(a, int, width);
  for (int i = 0; i < width; i++) {
    int first = t->access_at[i / t->lanes * t->n_units + u];
    int found = first < 0 ? -1 : active_block(p, first + i % t->lanes), slot = 0;
    t->role_block[i] = t->role_component[i] = -1;
    if (found < 0) continue;
    while (slot < t->n_blocks && block[slot] != found) slot++;
    if (slot == t->n_blocks) block[t->n_blocks++] = found;
    t->role_block[i] = slot;
    t->role_component[i] = p->component_of[first + i % t->lanes];
  }
  t->block_at = arena_array(a, int, t->n_blocks * t->n_units + 1);
  for (int i = 0; i < t->n_blocks * t->n_units; i++) t->block_at[i] = -1;
}

/* Lays a unit over the template: a block is where all its channels are what the template says, or absent. */
static bool fit_unit(const plan *p, thread_tile *t, int u) {
  int width = t->n_accesses * t->lanes;
  for (int pass = 0; pass < 2; pass++) /* first the blocks, then what would contradict them */
    for (int i = 0; i < width; i++) {
      int first = t->access_at[i / t->lanes * t->n_units + u], channel = first + i % t->lanes;
      int block = first < 0 ? -1 : active_block(p, channel), slot = t->role_block[i];
      int *at = slot < 0 ? NULL : &t->block_at[slot * t->n_units + u];
      if (block >= 0 && (!at || p->component_of[channel] != t->role_component[i] || (*at >= 0 && *at != block)))
        return false;
      if (block >= 0) *at = block;
      if (pass == 1 && block < 0 && at && *at >= 0) return false;
    }
  return true;
}

/* Coefficients of a block that differ by more than their sign. */
static int count_coefficients(const plan *p) {
  int n = p->spec->n_components, count = 0;
  const expr *seen[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  for (int i = 0; i < n * n; i++) {
    const expr *x = p->program->matrix.entry[i];
    if (x->op == EXPR_NEG) x = x->arg[0];
    bool known = x->op == EXPR_CONST;
    for (int k = 0; k < count; k++) known = known || seen[k] == x;
    if (!known) seen[count++] = x;
  }
  return count;
}

/* Registers that a row and its coefficients take. */
static int count_registers(const plan *p, const thread_tile *t) {
  return t->n_blocks * count_coefficients(p) + t->n_accesses * t->lanes;
}

static thread_tile *lay_units(arena *a, const plan *p, int element, int access, bool all) {
  if (p->begin * element % access || p->end * element % access || access < element) return NULL;
  thread_tile *t = arena_new(a, thread_tile);
  t->element = element;
  t->access = access;
  t->lanes = access / element;
  gather_units(a, p, t, all);
  make_template(a, p, t);
  for (int u = 0; u < t->n_units; u++)
    if (!fit_unit(p, t, u)) return NULL;
  return t;
}

thread_tile *thread_tile_build(arena *a, const plan *p, int element, int access) {
  thread_tile *t = lay_units(a, p, element, access, true);
  return t && access > element && count_registers(p, t) > REGISTER_BUDGET ? NULL : t;
}

thread_tile *thread_tile_widest(arena *a, const plan *p, int element) {
  thread_tile *t = NULL;
  for (int access = WIDEST_ACCESS; access >= element && !t; access /= 2) t = thread_tile_build(a, p, element, access);
  if (!t) diag_bug("plan", "blocks of '%s' do not lie over one another", p->spec->name);
  return t;
}

thread_tile *thread_tile_of_gradient(arena *a, const plan *p, int element, int of_block) {
  for (int access = WIDEST_ACCESS; access > element; access /= 2) {
    thread_tile *t = lay_units(a, p, element, access, true);
    if (!t) continue;
    int channels = t->n_accesses * t->lanes, more = p->spec->pre ? 2 * channels : channels; /* and what they map to */
    if (count_registers(p, t) + more + t->n_blocks * of_block <= GRADIENT_REGISTER_BUDGET) return t;
  }
  return thread_tile_build(a, p, element, element);
}

/* ---- staged rows ---- */

thread_tile *thread_tile_of_blocks(arena *a, int blocks, int element, int access) {
  thread_tile *t = arena_new(a, thread_tile);
  *t = (thread_tile){.element = element,
                     .access = access,
                     .lanes = access / element,
                     .n_units = blocks,
                     .n_accesses = 1,
                     .n_blocks = 1,
                     .block_at = arena_array(a, int, blocks + 1)};
  for (int i = 0; i < blocks; i++) t->block_at[i] = i;
  return t;
}

bool thread_tile_fills_sectors(const thread_tile *t, int head_dim) {
  int per_sector = SECTOR / t->element, sectors = head_dim / per_sector;
  for (int k = 0; k < t->n_accesses; k++)
    for (int s = 0; s < sectors; s++) {
      int covered = 0;
      for (int u = 0; u < t->n_units; u++) {
        int first = t->access_at[k * t->n_units + u];
        if (first >= 0 && first / per_sector == s) covered += t->lanes;
      }
      if (covered && covered < per_sector) return false;
    }
  return true;
}

/* Every n-th unit of `t` in one: what its threads share is spread over the row, so that lanes stay neighbours. */
static thread_tile *merge_units(arena *a, const thread_tile *t, int merged) {
  thread_tile *m = arena_new(a, thread_tile);
  *m = *t;
  m->n_units = (t->n_units + merged - 1) / merged;
  m->n_accesses = t->n_accesses * merged;
  m->n_blocks = t->n_blocks * merged;
  m->access_at = arena_array(a, int, m->n_accesses * m->n_units);
  m->block_at = arena_array(a, int, m->n_blocks * m->n_units + 1);
  m->role_block = arena_array(a, int, m->n_accesses * t->lanes);
  m->role_component = arena_array(a, int, m->n_accesses * t->lanes);
  int width = t->n_accesses * t->lanes;
  for (int i = 0; i < merged; i++) {
    for (int u = 0; u < m->n_units; u++) {
      int from = u + i * m->n_units;
      for (int k = 0; k < t->n_accesses; k++)
        m->access_at[(i * t->n_accesses + k) * m->n_units + u] =
            from < t->n_units ? t->access_at[k * t->n_units + from] : -1;
      for (int s = 0; s < t->n_blocks; s++)
        m->block_at[(i * t->n_blocks + s) * m->n_units + u] =
            from < t->n_units ? t->block_at[s * t->n_units + from] : -1;
    }
    for (int j = 0; j < width; j++) {
      m->role_block[i * width + j] = t->role_block[j] < 0 ? -1 : t->role_block[j] + i * t->n_blocks;
      m->role_component[i * width + j] = t->role_component[j];
    }
  }
  return m;
}

/* Times that the banks of shared memory are gone through for all accesses of a warp: lanes of 128 bytes at
 * a time, as often as one bank has different words to give. */
static int bank_turns(const thread_tile *t, int pitch) {
  int turns = 0, together = BANKS * WORD / t->access;
  if (together > WARP) together = WARP;
  for (int k = 0; k < t->n_accesses; k++)
    for (int group = 0; group < WARP; group += together) {
      int word[BANKS][WARP], count[BANKS] = {0}, most = 0;
      for (int lane = group; lane < group + together && lane < t->owners * t->n_units; lane++) {
        int first = t->access_at[k * t->n_units + lane % t->n_units];
        if (first < 0) continue;
        int begin = (lane / t->n_units * pitch + first * t->element) / WORD,
            end = begin + (t->access > WORD ? t->access / WORD : 1);
        for (int w = begin; w < end; w++) {
          int bank = w % BANKS, known = 0;
          while (known < count[bank] && word[bank][known] != w) known++;
          if (known == count[bank] && count[bank] < WARP) word[bank][count[bank]++] = w;
          if (count[bank] > most) most = count[bank];
        }
      }
      turns += most;
    }
  return turns;
}

static int best_pitch(const thread_tile *t, int row_bytes) {
  int best = row_bytes;
  for (int pitch = row_bytes; pitch < row_bytes + BANKS * WORD; pitch += THREAD_PIECE)
    if (bank_turns(t, pitch) < bank_turns(t, best)) best = pitch;
  return best;
}

thread_tile *thread_tile_staged(arena *a, const plan *p, int element) {
  int row_bytes = p->spec->head_dim * element, pieces = row_bytes / THREAD_PIECE;
  thread_tile *best = NULL;
  if (row_bytes % THREAD_PIECE || p->spec->n_blocks == 0) return NULL;
  for (int i = 0; i < pieces; i++)
    if (passes_through(p, THREAD_PIECE / element, i)) return NULL;
  for (int access = WIDEST_ACCESS; access >= element; access /= 2) {
    const thread_tile *single = lay_units(a, p, element, access, false);
    for (int merged = 1; single && merged <= MAX_MERGED; merged++) {
      thread_tile *t = merge_units(a, single, merged);
      if (count_registers(p, t) > STAGED_REGISTER_BUDGET) break;
      t->owners = WARP / t->n_units;
      if (t->owners && (!best || t->owners * t->n_units > best->owners * best->n_units)) best = t;
    }
  }
  if (best) best->pitch = best_pitch(best, row_bytes);
  return best;
}
