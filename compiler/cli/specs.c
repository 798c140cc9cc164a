/* cli/specs: see cli/specs.h. What is told of a description is its own word: its `doc` and its `models`. */
#include "cli/specs.h"

#include "base/diag.h"
#include "base/json.h"
#include "base/status.h"
#include "dsl/loader.h"
#include "dsl/sources.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STOCK_MOST = 1024 };
static const int64_t WHOLE = INT64_MAX; /* how new what was asked for by its whole name is */

/* Below the folder of descriptions: those with a kernel in libpegen_kernels, and those without. */
static const char *const folders[] = {"", "more/"};
enum { FOLDERS = sizeof folders / sizeof *folders };

typedef struct stock {
  const char *name, *file;
  const spec *spec;
  bool named;         /* what was asked for is in its name or text */
  const bool *models; /* [n_models]: the same of its models */
  const int *order;   /* [n_models]: indices of models, the newest first */
  int64_t newest;     /* how new the newest of the models is that were asked for: newness_of */
} stock;

/* Below which the folders lie. */
static const char *root_of(arena *a, const char *dsl) {
  const char *path = arena_printf(a, "%s/../specs", dsl);
  char whole[PATH_MAX];
  return realpath(path, whole) ? arena_strdup(a, whole) : path;
}

static const char *file_of(arena *a, const char *root, int folder, const char *name) {
  return arena_printf(a, "%s/%s%s.lua", root, folders[folder], name);
}

const char *specs_find(arena *a, const char *dsl, const char *name) {
  const char *root = root_of(a, dsl);
  for (int i = 0; source_is_plain(name) && i < FOLDERS; i++) {
    const char *file = file_of(a, root, i, name);
    if (!access(file, R_OK)) return file;
  }
  return NULL;
}

/* ---- what there is ---- */

static int by_name(const void *x, const void *y) { return strcmp(((const stock *)x)->name, ((const stock *)y)->name); }

static int read_folder(arena *a, const char *root, int folder, stock *list, int count) {
  DIR *directory = opendir(arena_printf(a, "%s/%s", root, folders[folder]));
  if (!directory) return count;
  for (struct dirent *entry; count < STOCK_MOST && (entry = readdir(directory));) {
    size_t length = strlen(entry->d_name);
    if (length < 5 || strcmp(entry->d_name + length - 4, ".lua")) continue;
    const char *name = arena_printf(a, "%.*s", (int)length - 4, entry->d_name);
    if (source_is_plain(name)) list[count++] = (stock){.name = name, .file = file_of(a, root, folder, name)};
  }
  closedir(directory);
  return count;
}

const char *specs_nearest(arena *a, const char *dsl, const char *word) {
  stock *list = arena_array(a, stock, STOCK_MOST);
  const char *root = root_of(a, dsl);
  int count = 0;
  for (int i = 0; i < FOLDERS; i++) count = read_folder(a, root, i, list, count);
  const char **names = arena_array(a, const char *, count + 1);
  for (int i = 0; i < count; i++) names[i] = list[i].name;
  return diag_nearest(word, names, count);
}

/* All of them, in the order of their names; a description that does not load has said so. They are the program's own,
 * as the vocabulary is: the sandbox of Lua is all that they run in. */
static int read_stock(arena *a, const char *dsl, stock *list) {
  int found = 0, count = 0;
  const char *root = root_of(a, dsl);
  for (int i = 0; i < FOLDERS; i++) found = read_folder(a, root, i, list, found);
  qsort(list, (size_t)found, sizeof *list, by_name);
  for (int i = 0; i < found; i++) {
    list[count] = list[i];
    if ((list[count].spec = loader_load(a, list[i].file, dsl, 0, NULL))) count++;
  }
  return count;
}

/* ---- what was asked for ---- */

/* Letters and digits, small: "Llama 3.1" and "llama-3.1" are llama31. */
static const char *plain(arena *a, const char *text) {
  char *result = arena_strdup(a, text), *end = result;
  for (const char *c = result; *c; c++)
    if (isalnum((unsigned char)*c)) *end++ = (char)tolower((unsigned char)*c);
  *end = 0;
  return result;
}

static bool is_sign(char c) { return !isalnum((unsigned char)c); }

/* Where a plain word ends with which text goes on here, signs left out; NULL: it goes on with another. A number is
 * meant as a whole: 1 is not 12. */
static const char *begins(const char *text, const char *word) {
  const char *last = text;
  for (; *word && *text; text++) {
    if (is_sign(*text)) continue;
    if (tolower((unsigned char)*text) != *word++) return NULL;
    last = text;
  }
  return *word || (isdigit((unsigned char)*last) && isdigit((unsigned char)last[1])) ? NULL : last + 1;
}

/* Where one of the text's words begins what was asked for, or NULL: "wan" is not in "Vaswani". */
static const char *find(const char *text, const char *word) {
  for (const char *at = text; *at; at++)
    if (!is_sign(*at) && (at == text || is_sign(at[-1])) && begins(at, word)) return at;
  return NULL;
}

/* Reads the version that a name has from `at` on, before other words than those up to `end`: 3.1 as 3 and 1; 0 where
 * there is none. A size is no version: Mistral 7B v0.3 has 0 and 3. */
static int64_t read_version(const char *at, const char *end) {
  enum { MOST = 1 << 20 };
  for (; *at && (at < end || is_sign(*at) || tolower((unsigned char)*at) == 'v' || isdigit((unsigned char)*at)); at++) {
    if (!isdigit((unsigned char)*at)) continue;
    char *next;
    long major = strtol(at, &next, 10), minor = 0;
    if (*next == '.' && isdigit((unsigned char)next[1])) minor = strtol(next + 1, &next, 10);
    bool is_size = tolower((unsigned char)*next) == 'b' && !isalnum((unsigned char)next[1]);
    if (!is_size) return 1 + (int64_t)(major < MOST ? major : MOST) * MOST + (minor < MOST ? minor : MOST - 1);
    at = next;
  }
  return 0;
}

/* How new a model of this name is among those that a word finds, by the family's number that follows: of "qwen",
 * Qwen3.5 is newer than Qwen3. A name that is what was asked for as a whole stands before all. -1: the word does not
 * find it. */
static int64_t newness_of(arena *a, const char *name, const char *word) {
  const char *at = word ? find(name, word) : name;
  if (!at || !word) return at ? 0 : -1;
  return strcmp(plain(a, name), word) ? read_version(at, begins(at, word)) : WHOLE;
}

/* Finds the word in a description, and puts its models in order. */
static bool matches(arena *a, stock *s, const char *word) {
  int n = s->spec->n_models, *order = arena_array(a, int, n + 1);
  int64_t *newness = arena_array(a, int64_t, n + 1);
  bool *models = arena_array(a, bool, n + 1);
  s->newest = -1;
  for (int i = 0; i < n; i++) {
    newness[i] = -1;
    for (int k = 0; k < s->spec->model[i].n_names; k++) {
      int64_t one = newness_of(a, s->spec->model[i].name[k], word);
      if (one > newness[i]) newness[i] = one;
    }
    models[i] = newness[i] >= 0;
    if (newness[i] > s->newest) s->newest = newness[i];
    int at = i;
    for (; at && newness[order[at - 1]] < newness[i]; at--) order[at] = order[at - 1];
    order[at] = i;
  }
  s->models = models;
  s->order = order;
  s->named = !word || find(s->name, word) || find(s->spec->doc, word);
  bool found = s->named || s->newest >= 0;
  if (word && !strcmp(plain(a, s->name), word)) s->newest = WHOLE;
  return found;
}

/* Those with the newest models first, then in the order of names. */
static int by_newness(const void *x, const void *y) {
  int64_t one = ((const stock *)x)->newest, other = ((const stock *)y)->newest;
  return one == other ? by_name(x, y) : one < other ? 1 : -1;
}

/* Whether two words have the same digits. Another number is another model, and no misspelling. */
static bool have_same_digits(const char *x, const char *y) {
  for (;; x++, y++) {
    while (*x && !isdigit((unsigned char)*x)) x++;
    while (*y && !isdigit((unsigned char)*y)) y++;
    if (*x != *y) return false;
    if (!*x) return true;
  }
}

/* The name of a description or a model that is nearest to the word. */
static const char *nearest(arena *a, const stock *list, int count, const char *word) {
  int most = 0, n = 0;
  for (int i = 0; i < count; i++) {
    most++;
    for (int k = 0; k < list[i].spec->n_models; k++) most += list[i].spec->model[k].n_names;
  }
  const char **names = arena_array(a, const char *, most + 1), **plains = arena_array(a, const char *, most + 1);
  for (int i = 0; i < count; i++) {
    names[n++] = list[i].name;
    for (int k = 0; k < list[i].spec->n_models; k++)
      for (int j = 0; j < list[i].spec->model[k].n_names; j++) names[n++] = list[i].spec->model[k].name[j];
  }
  int likely = 0;
  for (int i = 0; i < n; i++) {
    names[likely] = names[i];
    plains[likely] = plain(a, names[i]);
    likely += have_same_digits(plains[likely], word);
  }
  const char *found = diag_nearest(word, plains, likely);
  for (int i = 0; found && i < likely; i++)
    if (plains[i] == found) return names[i];
  return NULL;
}

/* ---- told ---- */

static void print_names(const spec_model *m) {
  for (int i = 0; i < m->n_names; i++) printf("%s%s", i ? ", " : "", m->name[i]);
}

/* word: models are told, too; those asked for, or all where the description itself was. */
static void print_text(const stock *s, bool models) {
  printf("%-20s %s\n", s->name, s->spec->doc);
  bool some = false;
  for (int i = 0; i < s->spec->n_models; i++) some = some || s->models[i];
  for (int i = 0; models && i < s->spec->n_models; i++) {
    const spec_model *m = &s->spec->model[s->order[i]];
    if (some && !s->models[s->order[i]]) continue;
    printf("  ");
    print_names(m);
    printf("\n    pegen %s", s->name);
    for (int k = 0; k < m->n_defines; k++) printf(" -D %s", m->define[k]);
    printf(" -o %s.o\n", s->name);
  }
}

static void print_model(arena *a, json_writer *w, const spec_model *m) {
  json_begin(w, NULL, '{');
  json_begin(w, "names", '[');
  for (int i = 0; i < m->n_names; i++) json_text(w, NULL, m->name[i]);
  json_end(w, ']');
  json_begin(w, "options", '{');
  for (int i = 0; i < m->n_defines; i++) {
    const char *equals = strchr(m->define[i], '=');
    json_text(w, arena_printf(a, "%.*s", (int)(equals - m->define[i]), m->define[i]), equals + 1);
  }
  json_end(w, '}');
  json_end(w, '}');
}

static void print_json(arena *a, json_writer *w, const stock *s) {
  json_begin(w, NULL, '{');
  json_text(w, "name", s->name);
  json_text(w, "doc", s->spec->doc);
  json_text(w, "file", s->file);
  json_begin(w, "axes", '[');
  for (int i = 0; i < s->spec->n_axes; i++) json_text(w, NULL, s->spec->axis[i]);
  json_end(w, ']');
  json_begin(w, "options", '[');
  for (int i = 0; i < s->spec->n_options; i++) {
    json_begin(w, NULL, '{');
    json_text(w, "name", s->spec->option[i].name);
    json_text(w, "default", s->spec->option[i].value);
    json_text(w, "doc", s->spec->option[i].doc);
    json_end(w, '}');
  }
  json_end(w, ']');
  json_begin(w, "models", '[');
  for (int i = 0; i < s->spec->n_models; i++)
    if (s->models[s->order[i]] || s->named) print_model(a, w, &s->spec->model[s->order[i]]);
  json_end(w, ']');
  json_end(w, '}');
}

int specs_list(arena *a, const char *dsl, const char *word, bool json) {
  stock *list = arena_array(a, stock, STOCK_MOST);
  int count = read_stock(a, dsl, list), told = 0;
  const char *asked = word ? plain(a, word) : NULL;
  if (!count) {
    diag_error(NULL, 0, "there are no descriptions in '%s'", root_of(a, dsl));
    return STATUS_ERROR;
  }
  if (asked && !*asked) {
    diag_error(NULL, 0, "'%s' has no letter or digit to look for", word);
    return STATUS_ERROR;
  }
  stock *found = arena_array(a, stock, count);
  for (int i = 0; i < count; i++)
    if (matches(a, &list[i], asked)) found[told++] = list[i];
  if (asked) qsort(found, (size_t)told, sizeof *found, by_newness);
  json_writer w = {.out = stdout};
  if (json) json_begin(&w, NULL, '[');
  for (int i = 0; i < told; i++) {
    if (json) print_json(a, &w, &found[i]);
    else print_text(&found[i], asked != NULL);
  }
  if (json) json_end(&w, ']');
  if (told) return STATUS_OK;
  const char *near = nearest(a, list, count, asked);
  if (near) diag_error(NULL, 0, "no description and no model of one is called '%s', did you mean '%s'?", word, near);
  else diag_error(NULL, 0, "no description and no model of one is called '%s'; pegen specs lists them", word);
  return STATUS_ERROR;
}
