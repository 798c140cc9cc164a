/* planted_test DSL_DIR [SLOWER]: a spec that runs native code in its process (plant.c) reaches nothing, whatever it
 * tries, and is refused in words that say how it ended. That the hole is there is seen without the walls: run in this
 * process, it makes a file. SLOWER: how much longer a process may take, where the machine is an emulated one. */
#include "plant.h"

#include "base/diag.h"
#include "loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char said[8192];
static int messages;

static void hear(diag_kind kind, const char *file, int line, const char *text) {
  (void)line;
  snprintf(said, sizeof said, "%s%s: %s", kind == DIAG_ERROR ? "" : "not an error: ", file ? file : "", text);
  messages++;
  if (kind == DIAG_BUG || kind == DIAG_MEMORY) {
    printf("%s\n", said);
    _exit(1);
  }
}

static char folder[] = "/tmp/planted_XXXXXX", spec_path[64], witness[64];

/* An honest one without an attempt. */
static void write_spec(const char *attempt) {
  FILE *out = fopen(spec_path, "w");
  if (!out) exit(2);
  if (attempt) fprintf(out, "native(\"%s\", \"%s\")\n", attempt, witness);
  fputs("local pe = require \"pegen\"\n"
        "return pe.encoding { name = \"planted\", axes = { \"x\" }, head_dim = 4, block = pe.plane(),\n"
        "  generators = pe.turn \"e12\", phase = 1 }\n",
        out);
  fclose(out);
}

static const char *judge(const spec *s, const char *outcome) {
  if (s) return "was accepted";
  if (messages != 1) return "did not give one message";
  if (strncmp(said, spec_path, strlen(spec_path)) || !strstr(said, ": refused: ")) return "was not refused";
  if (!strcmp(outcome, "SIGSYS")) outcome = "asked the system for what no description needs";
  if (!strstr(said, outcome)) return "ended otherwise";
  if (!access(witness, F_OK)) return "made a file";
  return NULL;
}

static int attempt(const char *dsl, const plant_row *row, double slower) {
  arena *a = arena_create();
  write_spec(row->name);
  messages = 0;
  *said = 0;
  const spec *s = loader_load_isolated(a, spec_path, dsl, 0, NULL,
                                       &(loader_bounds){.processor = 0.2 * slower, .clock = 4 * slower});
  const char *wrong = judge(s, row->outcome);
  if (!wrong && waitpid(-1, NULL, WNOHANG) >= 0) wrong = "left a process behind";
  if (wrong) printf("%s: %s: %s\n", row->name, wrong, said);
  arena_destroy(a);
  return wrong != NULL;
}

int main(int count, char **arguments) {
  double slower = count == 3 ? atof(arguments[2]) : 1;
  if (count < 2 || slower < 1 || !mkdtemp(folder)) return 2;
  setsid(); /* kill(0) is meant for this group, were it to get through */
  snprintf(spec_path, sizeof spec_path, "%s/spec.lua", folder);
  snprintf(witness, sizeof witness, "%s/witness", folder);
  diag_send_to(hear);
  /* Without walls. */
  arena *a = arena_create();
  write_spec("create");
  int failures = !loader_load(a, spec_path, arguments[1], 0, NULL) || access(witness, F_OK);
  if (failures) printf("there is no hole: %s\n", said);
  unlink(witness);
  arena_destroy(a);
  /* Within them an honest description is read. */
  a = arena_create();
  write_spec(NULL);
  if (!loader_load_isolated(a, spec_path, arguments[1], 0, NULL,
                            &(loader_bounds){.processor = slower, .clock = 4 * slower})) {
    printf("an honest description is refused: %s\n", said);
    failures++;
  }
  arena_destroy(a);
  const plant_row *rows;
  int n = plant_rows(&rows);
  for (int i = 0; i < n; i++) failures += attempt(arguments[1], &rows[i], slower);
  unlink(spec_path);
  rmdir(folder);
  printf("%d attempts, %d failures\n", n, failures);
  return failures > 0 || n < 40;
}
