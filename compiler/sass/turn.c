/* sass/turn: the main loop of an entry, and the instructions of one turn; see sass/code.h. */
#include "sass/code.h"

#include <stdlib.h>
#include <string.h>

/* A jump backwards, from `tail` to `head`. */
typedef struct loop {
  int head, tail;
  int turns; /* 0: not in the code */
} loop;

static bool jumps_back(const sass_code *code, int i) {
  return code->at[i].target >= 0 && code->at[i].target < i; /* an entry ends in a jump to itself */
}

/* ---- loops whose number of turns is in the code ---- */

/* Operand `index` of an instruction, counted from 0: its length. */
static int operand(const sass_instruction *i, int index, const char **out) {
  const char *at = i->opcode + strcspn(i->opcode, " ");
  for (; index > 0; index--) {
    at += strcspn(at, ",");
    at += *at == ',';
  }
  at += strspn(at, " ");
  *out = at;
  return (int)strcspn(at, ",. ");
}

static bool operand_is(const sass_instruction *i, int index, const char *word, int length) {
  const char *at;
  return operand(i, index, &at) == length && !strncmp(at, word, (size_t)length);
}

static bool read_number(const sass_instruction *i, int index, long *out) {
  const char *at;
  char *end;
  int length = operand(i, index, &at);
  if (length == 2 && !strncmp(at, "RZ", 2)) {
    *out = 0;
    return true;
  }
  *out = strtol(at, &end, 0);
  return end == at + length && length > 0;
}

/* HFMA2.MMA counter, -RZ, RZ, 0, 1.7881e-07 moves the bits of two halves: here 0 and a denormal, 3. */
static bool read_halves(const sass_instruction *i, long *out) {
  const char *at;
  operand(i, 4, &at);
  double low = strtod(at, NULL);
  *out = (long)(low * 0x1p24);
  return operand_is(i, 1, "-RZ", 3) && operand_is(i, 3, "0", 1) && low >= 0 && low < 0x1p-14;
}

/* CS2R R148, SRZ: 0 in R148 and in R149. */
static bool clears_pair(const sass_instruction *i, const char *counter) {
  const char *first;
  if (!sass_is(i, "CS2R") || strstr(i->opcode, ".32") || counter[0] != 'R') return false;
  operand(i, 0, &first);
  return first[0] == 'R' && strtol(first + 1, NULL, 10) + 1 == strtol(counter + 1, NULL, 10);
}

/* What a counter begins with: 0 or a number that is moved there. */
static bool read_beginning(const sass_code *code, int before, const char *counter, int length, long *out) {
  for (int i = before; i >= 0; i--) {
    const sass_instruction *at = &code->at[i];
    if (clears_pair(at, counter)) {
      *out = 0;
      return true;
    }
    if (!operand_is(at, 0, counter, length)) continue;
    if (sass_is(at, "HFMA2")) return read_halves(at, out);
    return (sass_is(at, "MOV") && read_number(at, 1, out)) || (sass_is(at, "CS2R") && (*out = 0, true));
  }
  return false;
}

/* counter += step: IADD3 counter, [carry,] counter, step, RZ, or VIADD counter, counter, step. */
static bool read_step(const sass_code *code, const loop *of, const char *counter, int length, long *out) {
  for (int i = of->tail; i >= of->head; i--) {
    const sass_instruction *at = &code->at[i];
    if (!operand_is(at, 0, counter, length)) continue;
    for (int from = 1; from < 3; from++)
      if (operand_is(at, from, counter, length)) return read_number(at, from + 1, out) && *out > 0;
    return false;
  }
  return false;
}

/* Whether a loop goes on below a limit: @!P0 BRA behind ISETP.GE, or @P0 BRA behind ISETP.LT or .NE. */
static bool goes_on_below(const sass_instruction *compare, const sass_instruction *jump) {
  const char *word = compare->opcode + strlen("ISETP.");
  bool negated = jump->text[1] == '!';
  return negated ? !strncmp(word, "GE", 2) : !strncmp(word, "LT", 2) || !strncmp(word, "NE", 2);
}

/* @!P0 BRA behind ISETP.GE P0, PT, counter, limit, PT, where all four are found; else 0. */
static int count_turns(const sass_code *code, const loop *of) {
  const sass_instruction *jump = &code->at[of->tail];
  const char *predicate = jump->text + 1 + (jump->text[1] == '!'), *counter;
  long limit, step, beginning;
  if (!jump->predicated) return 0;
  for (int i = of->tail - 1; i >= of->head; i--) {
    const sass_instruction *at = &code->at[i];
    if (strncmp(at->opcode, "ISETP.", 6) || strstr(at->opcode, ".EX") || !operand_is(at, 0, predicate, 2)) continue;
    int length = operand(at, 2, &counter);
    if (!goes_on_below(at, jump) || !read_number(at, 3, &limit) || !read_step(code, of, counter, length, &step) ||
        !read_beginning(code, of->head - 1, counter, length, &beginning))
      return 0;
    return limit > beginning ? (int)((limit - beginning + step - 1) / step) : 0;
  }
  return 0;
}

/* ---- the loops of an entry ---- */

static int count_in(const sass_code *code, const loop *of, const char *opcode) {
  int count = 0;
  for (int i = of->head; i <= of->tail; i++) count += sass_is(&code->at[i], opcode);
  return count;
}

static bool holds(const loop *outer, const loop *inner) {
  return outer != inner && outer->head <= inner->head && inner->tail <= outer->tail;
}

static int find_loops(const sass_code *code, loop *loops) {
  int count = 0;
  for (int i = 0; i < code->count; i++)
    if (jumps_back(code, i)) {
      loops[count] = (loop){.head = code->at[i].target, .tail = i};
      loops[count].turns = count_turns(code, &loops[count]);
      count++;
    }
  return count;
}

/* The innermost with the most of an opcode, or without any the longest. */
static loop *find_main(const sass_code *code, loop *loops, int count, const char *opcode) {
  loop *best = NULL;
  int most = -1, longest = 0;
  for (int l = 0; l < count; l++) {
    int found = count_in(code, &loops[l], opcode), length = loops[l].tail - loops[l].head;
    bool outer = loops[l].turns > 0;
    for (int k = 0; k < count && !outer; k++)
      outer = holds(&loops[l], &loops[k]) && !loops[k].turns && count_in(code, &loops[k], opcode) == found;
    if (outer || found < most || (found == most && length < longest)) continue;
    best = &loops[l], most = found, longest = length;
  }
  return best;
}

/* ---- the way through a loop ---- */

/* From an instruction to the loop's end. */
typedef struct way {
  int needed;  /* products, copies and stores on it; -1: it does not lead there */
  int length;
  int next;
} way;

static void take_better(way *best, const way *ways, int next, const sass_instruction *i) {
  const way *from = &ways[next];
  bool is_needed = sass_is(i, "HMMA") || sass_is(i, "LDGSTS") || sass_is(i, "STG");
  if (from->needed < 0) return;
  way here = {from->needed + is_needed, from->length + 1, next};
  if (here.needed > best->needed || (here.needed == best->needed && here.length < best->length)) *best = here;
}

/* is_whole: it is no loop but the entry, which ends at an EXIT of all. */
static way *find_ways(arena *a, const sass_code *code, const loop *of, bool is_whole) {
  way *ways = arena_array(a, way, code->count + 1);
  ways[of->tail + 1] = (way){0, 0, -1};
  for (int i = of->tail; i >= of->head; i--) {
    const sass_instruction *at = &code->at[i];
    bool jumps = at->target >= 0, back = jumps_back(code, i), ends = sass_is(at, "EXIT");
    way best = {.needed = -1, .next = -1};
    if (i == of->tail || back || at->predicated || !(jumps || ends)) take_better(&best, ways, i + 1, at);
    if (ends && is_whole && !at->predicated) take_better(&best, ways, of->tail + 1, at);
    if (jumps && !back && at->target <= of->tail) take_better(&best, ways, at->target, at);
    ways[i] = best;
  }
  return ways;
}

typedef struct walk {
  arena *a;
  const sass_code *code;
  const loop *loops, *rows; /* rows: the loop that takes all rows, whatever stands around it; NULL: none is */
  int n_loops;
  const way *ways;
  sass_turn *turn;
  int room;
} walk;

enum { MOST_INSTRUCTIONS = 1 << 18 };

/* Rows are read and written by the widest accesses; positions and operands are narrower, and caches serve them. */
static bool is_row(const sass_instruction *i) { return i->bytes == 16 && (sass_is(i, "LDG") || sass_is(i, "STG")); }

static void add(walk *w, const sass_instruction *i) {
  sass_turn *t = w->turn;
  if (t->count == w->room) {
    const sass_instruction **larger = arena_array(w->a, const sass_instruction *, w->room = 2 * w->room + 1024);
    if (t->count) memcpy(larger, t->at, (size_t)t->count * sizeof *larger);
    t->at = larger;
  }
  t->at[t->count++] = i;
  t->issued[i->pipe]++;
  t->products += sass_is(i, "HMMA");
  t->multiply_adds += sass_is(i, "FFMA");
  if (sass_is(i, "LDGSTS")) t->copies++, t->copied_bytes += i->bytes;
  if (sass_is(i, "LDG")) t->loaded_bytes += i->bytes;
  if (is_row(i)) t->row_bytes += i->bytes;
  const char *left = sass_is(i, "DEPBAR") ? strchr(i->text, ',') : NULL;
  if (left && t->stages < 2 + (int)strtol(left + 1, NULL, 0)) t->stages = 2 + (int)strtol(left + 1, NULL, 0);
}

static const loop *find_inner(const walk *w, const loop *outer, int head) {
  const loop *largest = NULL;
  for (int l = 0; l < w->n_loops; l++) {
    const loop *of = &w->loops[l];
    if (of->head == head && holds(outer, of) && (!largest || holds(of, largest))) largest = of;
  }
  return largest;
}

/* A turn of a loop, with all turns of those inside. */
static void add_turn(walk *w, const loop *of) {
  for (int i = of->head; i >= 0 && i <= of->tail && w->turn->count < MOST_INSTRUCTIONS; i = w->ways[i].next) {
    const loop *inner = find_inner(w, of, i);
    if (inner && !inner->turns && !(w->rows && holds(inner, w->rows))) w->turn->loops++;
    for (int turn = 0; inner && w->turn->count < MOST_INSTRUCTIONS && (turn < inner->turns || !turn); turn++)
      add_turn(w, inner);
    if (inner) i = inner->tail;
    else add(w, &w->code->at[i]);
  }
}

/* What is on the way through a loop, or, where is_whole, through an entry. */
static sass_turn walk_through(walk *w, const loop *of, bool is_whole) {
  sass_turn turn = {.count = 0};
  w->turn = &turn;
  w->room = 0;
  w->ways = find_ways(w->a, w->code, of, is_whole);
  add_turn(w, of);
  if (!turn.copies) turn.stages = 0;
  return turn;
}

static walk begin_walk(arena *a, const sass_code *code, loop **loops) {
  *loops = arena_array(a, loop, code->count + 1);
  return (walk){.a = a, .code = code, .loops = *loops, .n_loops = find_loops(code, *loops)};
}

sass_turn sass_main_loop(arena *a, const sass_code *code) {
  loop *loops;
  walk w = begin_walk(a, code, &loops);
  const loop all = {0, code->count - 1, 1};
  const loop *of = find_main(code, loops, w.n_loops, count_in(code, &all, "HMMA") ? "HMMA" : "FFMA");
  return of ? walk_through(&w, of, false) : (sass_turn){.count = 0};
}

sass_turn sass_rows(arena *a, const sass_code *code, int rows) {
  loop *loops, whole = {0, code->count - 1, 1};
  walk w = begin_walk(a, code, &loops);
  loop *of = find_main(code, loops, w.n_loops, "STG");
  int loaded = 0;
  for (int i = 0; i < code->count; i++) /* behind the end stands a jump to itself */
    if (code->at[i].target == i) whole.tail = i - 1;
  if (of && count_in(code, of, "STG")) {
    loaded = walk_through(&w, of, false).row_bytes / 2; /* the other half is written */
    of->turns = loaded ? (16 * rows + loaded - 1) / loaded : 1;
    w.rows = of;
  }
  sass_turn turn = walk_through(&w, &whole, true);
  turn.loaded_bytes = loaded;
  return turn;
}
