/* sass/banks: which lanes of a warp meet one bank of shared memory; see sass/code.h. */
#include "sass/code.h"

#include <stdlib.h>
#include <string.h>

enum { BANKS = 32, WORD = 4, MOST_OPERANDS = 5, MOST_DEPTH = 200 };

/* One instruction of PTX. */
typedef struct statement {
  const char *opcode;
  int opcode_length, n_operands;
  const char *operand[MOST_OPERANDS];
  int length[MOST_OPERANDS];
} statement;

typedef struct value {
  uint64_t bits;
  bool known;
} value;

/* A register and the first instruction that writes it, with its value for each lane. */
typedef struct definition {
  const char *name;
  int length, order;
  statement of;
  value lane[SASS_LANES];
  bool done[SASS_LANES];
} definition;

typedef struct body {
  definition *definition;
  int count;
} body;

/* ---- reading ---- */

static bool read_statement(const char *line, const char *end, statement *out) {
  const char *at = line + strspn(line, " \t"), *stop = memchr(line, ';', (size_t)(end - line));
  *out = (statement){.opcode = NULL};
  if (at < end && *at == '@') at += strcspn(at, " "), at += strspn(at, " ");
  if (!stop || at >= stop || *at < 'a' || *at > 'z') return false;
  out->opcode = at;
  out->opcode_length = (int)strcspn(at, " \t;");
  at += out->opcode_length;
  while (at < stop && out->n_operands < MOST_OPERANDS) {
    at += strspn(at, " \t,");
    int length = *at == '{'   ? (int)strcspn(at, "}") + 1
                 : *at == '[' ? (int)strcspn(at, "]") + 1
                              : (int)strcspn(at, ",;");
    if (at >= stop) break;
    out->operand[out->n_operands] = at;
    out->length[out->n_operands++] = length;
    at += length;
  }
  return true;
}

static bool has_word(const statement *s, const char *word) {
  const char *found = strstr(s->opcode, word);
  return found && found + strlen(word) <= s->opcode + s->opcode_length;
}

static bool begins(const statement *s, const char *opcode) {
  size_t length = strlen(opcode);
  return !strncmp(s->opcode, opcode, length) && (s->opcode[length] == '.' || (int)length == s->opcode_length);
}

static int compare_names(const definition *x, const definition *y) {
  int shorter = x->length < y->length ? x->length : y->length, by_name = strncmp(x->name, y->name, (size_t)shorter);
  return by_name ? by_name : x->length - y->length;
}

static int compare(const void *x, const void *y) {
  int by_name = compare_names(x, y);
  return by_name ? by_name : ((const definition *)x)->order - ((const definition *)y)->order;
}

static definition *find(const body *b, const char *name, int length) {
  definition key = {.name = name, .length = length};
  int low = 0, high = b->count;
  while (low < high) { /* the first of those of that name */
    int middle = (low + high) / 2;
    if (compare_names(&b->definition[middle], &key) < 0) low = middle + 1;
    else high = middle;
  }
  return low < b->count && !compare_names(&b->definition[low], &key) ? &b->definition[low] : NULL;
}

/* ---- values of a lane ---- */

static value value_of(body *b, const char *text, int length, int lane, int depth);

static uint64_t narrowed(const statement *s, uint64_t bits) {
  return has_word(s, "32") && !has_word(s, "64") && !has_word(s, ".wide") ? (uint32_t)bits : bits;
}

static uint64_t extended(const statement *s, uint64_t bits) {
  return has_word(s, ".s32") ? (uint64_t)(int64_t)(int32_t)bits : bits;
}

/* The result of an instruction of integers; false: none of them. */
static bool compute(const statement *s, const uint64_t *x, uint64_t *out) {
  if (begins(s, "mov") || begins(s, "cvta") || begins(s, "selp")) *out = x[0];
  else if (begins(s, "cvt")) *out = has_word(s, ".s64.s32") ? extended(s, x[0]) : narrowed(s, x[0]);
  else if (begins(s, "add")) *out = x[0] + x[1];
  else if (begins(s, "sub")) *out = x[0] - x[1];
  else if (begins(s, "mul") && !has_word(s, ".hi")) *out = extended(s, x[0]) * extended(s, x[1]);
  else if (begins(s, "mad") && !has_word(s, ".hi")) *out = extended(s, x[0]) * extended(s, x[1]) + x[2];
  else if (begins(s, "shl")) *out = x[0] << (x[1] & 63);
  else if (begins(s, "shr"))
    *out = has_word(s, ".s") ? (uint64_t)((int64_t)extended(s, x[0]) >> (x[1] & 63)) : x[0] >> (x[1] & 63);
  else if (begins(s, "and")) *out = x[0] & x[1];
  else if (begins(s, "or")) *out = x[0] | x[1];
  else if (begins(s, "xor")) *out = x[0] ^ x[1];
  else if (begins(s, "div") && x[1]) *out = x[0] / x[1];
  else if (begins(s, "rem") && x[1]) *out = x[0] % x[1];
  else if (begins(s, "min")) *out = x[0] < x[1] ? x[0] : x[1];
  else if (begins(s, "max")) *out = x[0] > x[1] ? x[0] : x[1];
  else if (begins(s, "bfe")) *out = x[0] >> (x[1] & 63) & ((1ULL << (x[2] & 63)) - 1);
  else return false;
  *out = narrowed(s, *out);
  return true;
}

static value evaluate(body *b, const statement *s, int lane, int depth) {
  uint64_t x[MOST_OPERANDS] = {0}, bits;
  if (begins(s, "ld") && has_word(s, ".param")) return (value){0, true};
  if (has_word(s, ".f32") || has_word(s, ".f64")) return (value){0, false};
  int read = begins(s, "selp") ? 2 : s->n_operands; /* a choice is one of stages: the first */
  for (int i = 1; i < read; i++) {
    value operand = value_of(b, s->operand[i], s->length[i], lane, depth + 1);
    if (!operand.known) return operand;
    x[i - 1] = operand.bits;
  }
  return compute(s, x, &bits) ? (value){bits, true} : (value){0, false};
}

/* A register, a number, or a variable, whose address is the same of all lanes. */
static value value_of(body *b, const char *text, int length, int lane, int depth) {
  if (depth > MOST_DEPTH) return (value){0, false};
  if (!strncmp(text, "%tid.x", 6)) return (value){(uint64_t)lane, true};
  if (*text != '%') return (value){(uint64_t)strtoll(text, NULL, 0), true};
  if (!strncmp(text, "%ctaid", 6)) return (value){0, true};
  definition *of = find(b, text, length);
  if (!of) return (value){0, false};
  if (!of->done[lane]) {
    of->done[lane] = true; /* a register that follows from itself is not known */
    of->lane[lane] = evaluate(b, &of->of, lane, depth);
  }
  return of->lane[lane];
}

/* [%rd87+2304] or [variable+16]. */
static value address_of(body *b, const char *text, int length, int lane) {
  const char *name = text + 1, *plus = memchr(text, '+', (size_t)length);
  value base = {0, true};
  if (*name == '%') base = value_of(b, name, (int)strcspn(name, "+]"), lane, 0);
  if (plus) base.bits += (uint64_t)strtoll(plus + 1, NULL, 0);
  return base;
}

/* ---- conflicts ---- */

/* Passes that so many lanes' accesses of so many bytes take: the most words that one bank has of them. */
static int count_passes(const uint64_t *address, int lanes, int bytes) {
  uint64_t words[BANKS][SASS_LANES * WORD];
  int count[BANKS] = {0}, most = 0;
  for (int i = 0; i < lanes; i++)
    for (int byte = 0; byte < bytes; byte += WORD) {
      uint64_t word = (address[i] + (uint64_t)byte) / WORD;
      int bank = (int)(word % BANKS), k = 0;
      while (k < count[bank] && words[bank][k] != word) k++;
      if (k == count[bank]) words[bank][count[bank]++] = word;
      if (count[bank] > most) most = count[bank];
    }
  return most;
}

static int bytes_of(const statement *s) {
  int numbers = has_word(s, ".v4") ? 4 : has_word(s, ".v2") ? 2 : 1;
  return begins(s, "cp") || begins(s, "ldmatrix")   ? 16
         : has_word(s, "64")                        ? 8 * numbers
         : has_word(s, "16")                        ? 2 * numbers
         : has_word(s, ".b8") || has_word(s, ".u8") ? 1
                                                    : WORD * numbers;
}

static bool is_access(const statement *s) {
  return begins(s, "ldmatrix") || (begins(s, "cp") && has_word(s, ".shared")) ||
         ((begins(s, "ld") || begins(s, "st")) && has_word(s, ".shared"));
}

static void count_access(body *b, const statement *s, sass_banks *out) {
  int bytes = bytes_of(s), lanes = !begins(s, "ldmatrix") || has_word(s, ".x4") ? SASS_LANES
                                   : has_word(s, ".x2")                         ? 16
                                                                                : 8;
  int at_once = bytes > WORD ? SASS_LANES * WORD / bytes : SASS_LANES, operand = 0;
  uint64_t address[SASS_LANES];
  while (operand < s->n_operands && *s->operand[operand] != '[') operand++;
  out->accesses++;
  for (int lane = 0; lane < lanes && operand < s->n_operands; lane++) {
    value at = address_of(b, s->operand[operand], s->length[operand], lane);
    if (!at.known) return;
    address[lane] = at.bits;
  }
  out->known++;
  for (int first = 0; first < lanes; first += at_once) {
    int some = lanes - first < at_once ? lanes - first : at_once;
    out->wavefronts += count_passes(address + first, some, bytes);
    out->least++;
  }
}

sass_banks sass_find_conflicts(arena *a, const char *ptx, const char *entry) {
  sass_banks banks = {.accesses = 0};
  const char *begin = strstr(ptx, arena_printf(a, ".entry %s(", entry)), *end = begin ? strstr(begin, "\n}") : NULL;
  int lines = 0;
  if (!end) return banks;
  for (const char *at = begin; at < end; at++) lines += *at == '\n';
  body b = {.definition = arena_array(a, definition, lines + 1)};
  statement *accesses = arena_array(a, statement, lines + 1), s;
  int n_accesses = 0;
  for (const char *line = begin, *next; line < end; line = next + 1) {
    next = line + strcspn(line, "\n");
    if (!read_statement(line, next, &s)) continue;
    if (is_access(&s)) accesses[n_accesses++] = s;
    else if (s.n_operands > 1 && *s.operand[0] == '%') {
      b.definition[b.count] = (definition){.name = s.operand[0], .length = s.length[0], .order = b.count, .of = s};
      b.count++;
    }
  }
  qsort(b.definition, (size_t)b.count, sizeof *b.definition, compare);
  for (int i = 0; i < n_accesses; i++) count_access(&b, &accesses[i], &banks);
  return banks;
}
