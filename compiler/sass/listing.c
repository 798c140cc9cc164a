/* sass/listing: from a listing's text to instructions; see sass/code.h. */
#include "sass/code.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const sass_pipe_names[SASS_PIPE_COUNT] = {"tensor", "FMA", "ALU", "XU", "LSU", "uniform", "control"};

/* Opcodes by their first letters, longer ones first where one begins like another. Cycles are those of 32 lanes on one
 * of four schedulers; the LSU is the multiprocessor's, of which a scheduler has a quarter: 4 cycles for 128 bytes. */
static const struct {
  const char *opcode;
  sass_pipe pipe;
  int cycles, latency;
} kinds[] = {
    {"HMMA", SASS_TENSOR, 0, 33},  {"FFMA", SASS_FMA, 1, 4},       {"FADD", SASS_FMA, 1, 4},
    {"FMUL", SASS_FMA, 1, 4},      {"HFMA2", SASS_FMA, 1, 4},      {"HADD2", SASS_FMA, 1, 4},
    {"HMUL2", SASS_FMA, 1, 4},     {"IMAD", SASS_FMA, 2, 4},       {"DFMA", SASS_FMA, 2, 8},
    {"DADD", SASS_FMA, 2, 8},      {"DMUL", SASS_FMA, 2, 8},       {"DSETP", SASS_FMA, 2, 8},
    {"MUFU", SASS_XU, 8, 20},      {"I2FP", SASS_ALU, 2, 5},       {"I2F", SASS_XU, 8, 20},
    {"F2I", SASS_XU, 8, 20},       {"F2FP", SASS_ALU, 2, 5},       {"F2F", SASS_XU, 8, 20},
    {"FRND", SASS_XU, 8, 20},      {"POPC", SASS_XU, 8, 20},       {"FLO", SASS_XU, 8, 20},
    {"LDSM", SASS_LSU, 4, 33},     {"LDS", SASS_LSU, 4, 30},       {"STS", SASS_LSU, 4, 30},
    {"ATOMS", SASS_LSU, 4, 30},    {"LDGSTS", SASS_LSU, 4, 500},   {"LDGDEPBAR", SASS_CONTROL, 0, 1},
    {"LDG", SASS_LSU, 4, 500},     {"STG", SASS_LSU, 4, 30},       {"LDL", SASS_LSU, 4, 30},
    {"STL", SASS_LSU, 4, 30},      {"SHFL", SASS_LSU, 4, 25},      {"LDC", SASS_CONTROL, 0, 30},
    {"S2R", SASS_CONTROL, 0, 30},  {"CS2R", SASS_CONTROL, 0, 30},  {"R2UR", SASS_UNIFORM, 2, 12},
    {"BRA", SASS_CONTROL, 0, 1},   {"BAR", SASS_CONTROL, 0, 1},    {"BSSY", SASS_CONTROL, 0, 1},
    {"BSYNC", SASS_CONTROL, 0, 1}, {"EXIT", SASS_CONTROL, 0, 1},   {"WARPSYNC", SASS_CONTROL, 0, 1},
    {"NOP", SASS_CONTROL, 0, 1},   {"DEPBAR", SASS_CONTROL, 0, 1}, {"CALL", SASS_CONTROL, 0, 1},
    {"RET", SASS_CONTROL, 0, 1},   {"MEMBAR", SASS_CONTROL, 0, 1}, {"BREAK", SASS_CONTROL, 0, 1},
    {"U", SASS_UNIFORM, 2, 12},    {"", SASS_ALU, 2, 5},
};

bool sass_is(const sass_instruction *i, const char *opcode) {
  size_t length = strlen(opcode);
  return !strncmp(i->opcode, opcode, length) && !isalnum((unsigned char)i->opcode[length]);
}

static bool has(const char *opcode, const char *modifier) {
  const char *found = strstr(opcode, modifier), *end = opcode + strcspn(opcode, " ");
  return found && found < end;
}

static int bytes_of(const char *opcode) {
  return has(opcode, ".128") || has(opcode, ".M88.4")                            ? 16
         : has(opcode, ".64") || has(opcode, ".M88.2") || has(opcode, ".M88.x2") ? 8
         : has(opcode, ".U16") || has(opcode, ".S16")                            ? 2
         : has(opcode, ".U8") || has(opcode, ".S8")                              ? 1
                                                                                 : 4;
}

static void set_kind(sass_instruction *i) {
  int k = 0;
  while (strncmp(i->opcode, kinds[k].opcode, strlen(kinds[k].opcode))) k++;
  i->pipe = kinds[k].pipe;
  i->cycles = kinds[k].cycles;
  i->latency = kinds[k].latency;
  if (i->pipe != SASS_LSU || sass_is(i, "SHFL")) return;
  if (!strncmp(i->text, "@!PT", 4)) { /* never executed: ptxas lets time pass by it */
    i->pipe = SASS_CONTROL;
    return;
  }
  i->bytes = bytes_of(i->opcode);
  if (i->bytes > 4) i->cycles *= i->bytes / 4;
}

/* Bits 105 to 125 of an instruction: reuse flags apart, what ptxas has scheduled. */
static void set_control(sass_instruction *i, uint64_t high) {
  unsigned control = (unsigned)(high >> 41);
  int sets = control >> 5 & 7, frees = control >> 8 & 7;
  i->stall = control & 15;
  i->sets = sets < SASS_SCOREBOARDS ? sets : -1;
  i->frees = frees < SASS_SCOREBOARDS ? frees : -1;
  i->waits = control >> 11 & 63;
}

typedef struct label {
  const char *name;
  int length, at;
} label;

typedef struct parser {
  arena *a;
  sass_code *code; /* entries before and with the one that is read */
  int n_codes, code_room, room, label_room, n_labels;
  label *labels;
} parser;

static void *grown(arena *a, const void *old, size_t size, int count, int *room) {
  if (count < *room) return (void *)old;
  *room = *room ? 2 * *room : 64;
  void *larger = arena_alloc(a, size * (size_t)*room);
  if (count) memcpy(larger, old, size * (size_t)count);
  return larger;
}

/* Jumps name a label, `(.L_x_7), or an address. */
static int find_target(const parser *p, const sass_instruction *i) {
  const char *dot = strstr(i->text, ".L_");
  if (dot) {
    int length = (int)strcspn(dot, ") ,;");
    for (int l = 0; l < p->n_labels; l++)
      if (p->labels[l].length == length && !strncmp(p->labels[l].name, dot, (size_t)length)) return p->labels[l].at;
    return -1;
  }
  const char *address = strstr(i->text, "0x");
  return address ? (int)(strtol(address, NULL, 16) / 16) : -1;
}

static void end_code(parser *p) {
  if (!p->n_codes) return;
  sass_code *code = &p->code[p->n_codes - 1];
  for (int i = 0; i < code->count; i++) {
    sass_instruction *at = &code->at[i];
    if (sass_is(at, "BRA")) at->target = find_target(p, at);
    if (at->target > code->count) at->target = -1;
  }
}

static void begin_code(parser *p, const char *name, int length) {
  end_code(p);
  p->code = grown(p->a, p->code, sizeof *p->code, p->n_codes, &p->code_room);
  p->code[p->n_codes++] = (sass_code){.name = arena_printf(p->a, "%.*s", length, name)};
  p->room = p->n_labels = 0;
}

static void add_label(parser *p, const char *name, int length) {
  p->labels = grown(p->a, p->labels, sizeof *p->labels, p->n_labels, &p->label_room);
  p->labels[p->n_labels++] = (label){name, length, p->code[p->n_codes - 1].count};
}

/* The address of an instruction, its text up to the semicolon, and the low half of its encoding. */
static void add_instruction(parser *p, const char *line, int length) {
  const char *end = memchr(line, ';', (size_t)length), *begin = strstr(line, "*/");
  if (!end || !begin || begin > end) return;
  begin += 2 + strspn(begin + 2, " \t{");
  sass_code *code = &p->code[p->n_codes - 1];
  code->at = grown(p->a, code->at, sizeof *code->at, code->count, &p->room);
  sass_instruction *i = &code->at[code->count++];
  *i = (sass_instruction){
      .text = arena_printf(p->a, "%.*s", (int)(end - begin), begin), .target = -1, .sets = -1, .frees = -1, .stall = 1};
  i->opcode = *i->text == '@' ? i->text + strcspn(i->text, " ") : i->text;
  i->opcode += strspn(i->opcode, " ");
  i->predicated = i->opcode > i->text || has(i->opcode, ".DIV");
  set_kind(i);
}

static void read_line(parser *p, const char *line, int length) {
  const char *word = line + strspn(line, " \t");
  int rest = length - (int)(word - line);
  static const char section[] = ".text.", function[] = "Function : ";
  if (rest <= 0) return;
  if (!strncmp(line, section, sizeof section - 1) && line[length - 1] == ':') {
    begin_code(p, line + sizeof section - 1, length - (int)sizeof section);
  } else if (!strncmp(word, function, sizeof function - 1)) {
    begin_code(p, word + sizeof function - 1, rest - (int)sizeof function + 1);
  } else if (p->n_codes && !strncmp(word, ".L_", 3) && word[rest - 1] == ':') {
    add_label(p, word, rest - 1);
  } else if (p->n_codes && !strncmp(word, "/* 0x", 5)) {
    sass_code *code = &p->code[p->n_codes - 1];
    if (code->count) set_control(&code->at[code->count - 1], strtoull(word + 3, NULL, 16));
  } else if (p->n_codes && !strncmp(word, "/*", 2)) {
    add_instruction(p, word, rest);
  }
}

int sass_parse(arena *a, const char *listing, sass_code **out) {
  parser p = {.a = a};
  for (const char *line = listing; *line;) {
    int length = (int)strcspn(line, "\n");
    read_line(&p, line, length);
    line += length + (line[length] != 0);
  }
  end_code(&p);
  *out = p.code;
  return p.n_codes;
}
