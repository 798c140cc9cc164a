/* object/driver: the driver's assembly, cut to what is called; see object/driver.h. */
#include "object/driver.h"

#include <llvm-c/Core.h>
#include <stdint.h>
#include <string.h>

typedef struct piece {
  const char *text;
  size_t length;
} piece;

typedef struct cut {
  piece of;
  bool is_needed;
} cut;

typedef struct label {
  piece name; /* text NULL: a free place of the table */
  int cut;
} label;

typedef struct cuts {
  cut *list;
  int count;
  int *waiting; /* needed, and not yet looked through */
  int n_waiting;
  label *labels; /* open addressing, at most half full */
  size_t places; /* a power of two */
} cuts;

static bool in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '$';
}

static piece name_at(const char *at, const char *end) {
  const char *from = at;
  while (at < end && in_name(*at)) at++;
  return (piece){from, (size_t)(at - from)};
}

/* The name's place, or where it would be. */
static label *place_of(const cuts *c, piece name) {
  uint64_t hash = 1469598103934665603u; /* FNV-1a */
  for (size_t i = 0; i < name.length; i++) hash = (hash ^ (unsigned char)name.text[i]) * 1099511628211u;
  for (size_t at = (size_t)hash;; at++) {
    label *l = &c->labels[at & (c->places - 1)];
    if (!l->name.text || (l->name.length == name.length && !memcmp(l->name.text, name.text, name.length))) return l;
  }
}

static void need(cuts *c, int which) {
  if (c->list[which].is_needed) return;
  c->list[which].is_needed = true;
  c->waiting[c->n_waiting++] = which;
}

static bool is_cut_before(piece line) {
  static const char *const directives[] = {"\t.section\t", "\t.text\n", "\t.data\n", "\t.bss\n"};
  for (size_t i = 0; i < sizeof directives / sizeof *directives; i++) {
    size_t length = strlen(directives[i]);
    if (line.length >= length && !memcmp(line.text, directives[i], length)) return true;
  }
  return false;
}

static piece line_at(const char *at, const char *end) {
  const char *newline = memchr(at, '\n', (size_t)(end - at));
  return (piece){at, (size_t)((newline ? newline + 1 : end) - at)};
}

/* Cuts without labels (what the text begins with) are always needed. */
static void cut_text(cuts *c, piece text) {
  const char *end = text.text + text.length;
  int labels = 0;
  for (const char *at = text.text; at < end;) {
    piece line = line_at(at, end), name = name_at(at, end);
    if (at == text.text || is_cut_before(line)) {
      if (at != text.text && !labels) need(c, c->count - 1);
      c->list[c->count++] = (cut){.of = {at, 0}};
      labels = 0;
    }
    cut *last = &c->list[c->count - 1];
    last->of.length += line.length;
    if (name.length && name.length < line.length && at[name.length] == ':') {
      *place_of(c, name) = (label){name, c->count - 1};
      labels++;
    }
    at += line.length;
  }
  if (text.length && !labels) need(c, c->count - 1);
}

static void need_name(cuts *c, piece name) {
  const label *l = place_of(c, name);
  if (l->name.text) need(c, l->cut);
}

static void need_names_in(cuts *c, piece text) {
  const char *end = text.text + text.length;
  for (const char *at = text.text; at < end;) {
    piece name = name_at(at, end);
    if (name.length) need_name(c, name);
    at += name.length ? name.length : 1;
  }
}

static void need_declared(cuts *c, LLVMValueRef value) {
  piece name;
  if (!LLVMIsDeclaration(value)) return;
  name.text = LLVMGetValueName2(value, &name.length);
  need_name(c, name);
}

static piece text_of(const driver_text *of, bool x86) {
  return (piece){(const char *)(x86 ? of->x86_64 : of->aarch64), x86 ? *of->x86_64_size : *of->aarch64_size};
}

/* Room for as many cuts and labels as there can be: lines that a colon stands in are more. */
static cuts cuts_create(arena *a, const driver_text *const *texts, int n_texts, bool x86) {
  size_t lines = 0, colons = 0;
  for (int i = 0; i < n_texts; i++) {
    piece text = text_of(texts[i], x86);
    for (size_t at = 0; at < text.length; at++) lines += text.text[at] == '\n', colons += text.text[at] == ':';
  }
  cuts c = {.places = 16};
  while (c.places < 2 * colons + 2) c.places *= 2;
  c.labels = arena_array(a, label, c.places);
  c.list = arena_array(a, cut, lines + (size_t)n_texts);
  c.waiting = arena_array(a, int, lines + (size_t)n_texts);
  return c;
}

void driver_add(arena *a, LLVMModuleRef module, const driver_text *const *texts, int n_texts, bool x86) {
  cuts c = cuts_create(a, texts, n_texts, x86);
  for (int i = 0; i < n_texts; i++) cut_text(&c, text_of(texts[i], x86));
  for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f)) need_declared(&c, f);
  for (LLVMValueRef g = LLVMGetFirstGlobal(module); g; g = LLVMGetNextGlobal(g)) need_declared(&c, g);
  while (c.n_waiting) need_names_in(&c, c.list[c.waiting[--c.n_waiting]].of);
  for (int i = 0; i < c.count; i++)
    if (c.list[i].is_needed) LLVMAppendModuleInlineAsm(module, c.list[i].of.text, c.list[i].of.length);
}
