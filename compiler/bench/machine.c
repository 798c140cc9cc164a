/* bench/machine: reads what Linux says of the first processor; see bench/machine.h. */
#include "bench/machine.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Lines of /proc/cpuinfo; x86 and aarch64 name different things. */
typedef enum value_kind { VALUE_TEXT, VALUE_NUMBER, VALUE_WORDS } value_kind;
static const struct {
  const char *line, *key;
  value_kind kind;
} lines[] = {
    {"vendor_id", "vendor", VALUE_TEXT},    {"model name", "processor", VALUE_TEXT},
    {"cpu family", "family", VALUE_NUMBER}, {"model", "model", VALUE_NUMBER},
    {"stepping", "stepping", VALUE_NUMBER}, {"CPU implementer", "implementer", VALUE_TEXT},
    {"CPU part", "part", VALUE_TEXT},       {"flags", "flags", VALUE_WORDS},
    {"Features", "flags", VALUE_WORDS},
};
enum { LINE_COUNT = sizeof lines / sizeof *lines, CACHES_MOST = 16 };

static void words_json(json_writer *w, const char *key, char *text) {
  char *rest = NULL;
  json_begin(w, key, '[');
  for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) json_text(w, NULL, word);
  json_end(w, ']');
}

/* "name \t: value", value without the spaces around it; NULL: not that name. */
static char *value_of(char *line, const char *name) {
  size_t length = strlen(name);
  if (strncmp(line, name, length)) return NULL;
  char *at = line + length;
  while (*at == ' ' || *at == '\t') at++;
  if (*at++ != ':') return NULL;
  while (*at == ' ') at++;
  at[strcspn(at, "\n")] = 0;
  return at;
}

static void processor_json(json_writer *w) {
  FILE *in = fopen("/proc/cpuinfo", "r");
  char *line = NULL;
  size_t room = 0;
  /* An empty line ends the first processor. */
  while (in && getline(&line, &room, in) > 1)
    for (int i = 0; i < LINE_COUNT; i++) {
      char *value = value_of(line, lines[i].line);
      if (!value) continue;
      if (lines[i].kind == VALUE_TEXT) json_text(w, lines[i].key, value);
      else if (lines[i].kind == VALUE_NUMBER) json_integer(w, lines[i].key, strtoll(value, NULL, 10));
      else words_json(w, lines[i].key, value);
      break;
    }
  free(line);
  if (in) fclose(in);
}

/* A file of the i-th cache without its newline. */
static bool read_cache(int i, const char *name, char *text, int size) {
  char path[128];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", i, name);
  FILE *in = fopen(path, "r");
  bool read = in && fgets(text, size, in);
  if (in) fclose(in);
  if (read) text[strcspn(text, "\n")] = 0;
  return read;
}

static void caches_json(json_writer *w) {
  char level[32], type[32], size[32], shared[128];
  json_begin(w, "caches", '[');
  for (int i = 0; i < CACHES_MOST && read_cache(i, "level", level, sizeof level); i++) {
    if (!read_cache(i, "type", type, sizeof type) || !read_cache(i, "size", size, sizeof size)) continue;
    char *unit;
    long long bytes = strtoll(size, &unit, 10);
    for (char *c = type; *c; c++) *c = (char)tolower((unsigned char)*c);
    json_begin(w, NULL, '{');
    json_integer(w, "level", strtoll(level, NULL, 10));
    json_text(w, "type", type);
    json_integer(w, "bytes", *unit == 'K' ? bytes << 10 : *unit == 'M' ? bytes << 20 : bytes);
    if (read_cache(i, "shared_cpu_list", shared, sizeof shared)) json_text(w, "shared_by", shared);
    json_end(w, '}');
  }
  json_end(w, ']');
}

void machine_json(json_writer *w) {
  struct utsname system;
  json_begin(w, "machine", '{');
  if (uname(&system) == 0) {
    json_text(w, "architecture", system.machine);
    json_text(w, "system", system.sysname);
    json_text(w, "release", system.release);
  }
  json_integer(w, "processors", sysconf(_SC_NPROCESSORS_ONLN));
  processor_json(w);
  caches_json(w);
  json_end(w, '}');
}
