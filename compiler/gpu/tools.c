/* gpu/tools: finds and runs NVIDIA's programs; see gpu/tools.h. */
#include "gpu/tools.h"

#include "base/diag.h"

#include "runtime/compiler/spawn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- where they are ---- */

/* Folders below what an environment variable names, or below the root; of Python 3.%d with Triton, which brings all. */
#define TRITON "triton/backends/nvidia/bin"
static const struct {
  const char *variable, *folder;
} places[] = {
    {"CUDA_HOME", "bin"},
    {"CUDA_PATH", "bin"},
    {NULL, "/usr/local/cuda/bin"},
    {"VIRTUAL_ENV", "lib/python3.%d/site-packages/" TRITON},
    {"HOME", ".local/lib/python3.%d/site-packages/" TRITON},
    {NULL, "/usr/local/lib/python3.%d/dist-packages/" TRITON},
    {NULL, "/usr/local/lib/python3.%d/site-packages/" TRITON},
    {NULL, "/usr/lib/python3.%d/site-packages/" TRITON},
};
enum { PLACES = sizeof places / sizeof *places, FIRST_PYTHON = 8, LAST_PYTHON = 20 };

static const char *in_folder(arena *a, const char *folder, int length, const char *name) {
  const char *path = arena_printf(a, "%.*s/%s", length, folder, name);
  return access(path, X_OK) ? NULL : path;
}

static const char *on_path(arena *a, const char *name) {
  const char *path = getenv("PATH"), *found = NULL;
  while (path && *path && !found) {
    int length = (int)strcspn(path, ":");
    found = length ? in_folder(a, path, length, name) : NULL;
    path += length + (path[length] != 0);
  }
  return found;
}

/* A folder of the table, for one Python. */
static const char *in_place(arena *a, int place, int python, const char *name) {
  const char *root = places[place].variable ? getenv(places[place].variable) : NULL, *folder = places[place].folder,
             *number = strstr(folder, "%d");
  if (places[place].variable && (!root || !*root)) return NULL;
  int before = number ? (int)(number - folder) : (int)strlen(folder);
  folder = arena_printf(a, "%s%s%.*s", root ? root : "", root ? "/" : "", before, folder);
  if (number) folder = arena_printf(a, "%s%d%s", folder, python, number + 2);
  return in_folder(a, folder, (int)strlen(folder), name);
}

static const char *in_places(arena *a, const char *name) {
  const char *found = NULL;
  for (int place = 0; place < PLACES; place++)
    for (int python = LAST_PYTHON; python >= FIRST_PYTHON && !found; python--) found = in_place(a, place, python, name);
  return found;
}

static const char *find_program(arena *a, const char *name) {
  const char *found = on_path(a, name);
  return found ? found : in_places(a, name);
}

static void report_missing(arena *a, const char *who, const char *what) {
  const char *list = "";
  for (int i = 0; i < PLACES; i++) {
    const char *variable = places[i].variable, *folder = places[i].folder, *number = strstr(folder, "%d");
    int before = number ? (int)(number - folder) : (int)strlen(folder);
    list = arena_printf(a, "%s%s%s%s%s%.*s%s%s", list, i ? ", " : "", variable ? "$" : "", variable ? variable : "",
                        variable ? "/" : "", before, folder, number ? "*" : "", number ? number + 2 : "");
  }
  diag_error(NULL, 0,
             "%s needs %s, which is not on PATH, nor in any of %s; CUDA's toolkit has it, and so has the "
             "Python package triton",
             who, what, list);
}

/* ---- running them ---- */

/* What the program printed, both streams or the first alone; NULL after a diag_error. */
static const char *run_program(arena *a, const char *who, const char *program, const char **arguments, bool both) {
  spawned done = {.status = -1};
  const char *text = NULL;
  if (!pegen_spawn_run(program, (char *const *)arguments, NULL, &done)) {
    diag_error(NULL, 0, "%s: %s cannot be started", who, program);
    return NULL;
  }
  const char *output = done.stream[SPAWN_OUTPUT].data, *messages = done.stream[SPAWN_MESSAGES].data;
  output = output ? output : "", messages = messages ? messages : "";
  if (!WIFEXITED(done.status) || WEXITSTATUS(done.status))
    diag_error(NULL, 0, "%s: %s failed: %.*s", who, program, (int)strcspn(messages, "\n"), messages);
  else text = arena_printf(a, "%s%s", output, both ? messages : "");
  pegen_spawn_free(&done);
  return text;
}

static bool write_file(const char *path, const char *data, size_t size) {
  FILE *file = fopen(path, "w");
  bool written = file && fwrite(data, 1, size, file) == size;
  if (file && fclose(file)) written = false;
  if (!written) diag_error(NULL, 0, "cannot write '%s'", path);
  return written;
}

/* A folder of this call's own; NULL after a diag_error. */
static const char *make_folder(arena *a) {
  const char *temporary = getenv("TMPDIR");
  char *folder = arena_printf(a, "%s/pegen-ptx-XXXXXX", temporary && *temporary ? temporary : "/tmp");
  if (mkdtemp(folder)) return folder;
  diag_error(NULL, 0, "cannot make the folder '%s'", folder);
  return NULL;
}

/* What ptxas -v printed; NULL after a diag_error. `to` is there then, or not. */
static const char *assemble(arena *a, const char *who, const char *ptxas, const char *folder, const char *ptx,
                            size_t size, const char *chip, const char *to) {
  const char *from = arena_printf(a, "%s/k.ptx", folder);
  const char *arguments[] = {ptxas, "-v", arena_printf(a, "-arch=%s", chip), from, "-o", to, NULL};
  const char *log = write_file(from, ptx, size) ? run_program(a, who, ptxas, arguments, true) : NULL;
  unlink(from);
  return log;
}

static void remove_folder(const char *folder, const char *cubin) {
  unlink(cubin);
  rmdir(folder);
}

bool gpu_tools_list(arena *a, const char *ptx, size_t size, const char *chip, sass_listing *out) {
  static const char who[] = "explain --sass";
  const char *ptxas = find_program(a, "ptxas"), *disassembler = find_program(a, "nvdisasm");
  if (!disassembler) disassembler = find_program(a, "cuobjdump");
  if (!ptxas || !disassembler) {
    report_missing(a, who, ptxas ? "nvdisasm or cuobjdump" : "ptxas");
    return false;
  }
  const char *folder = make_folder(a), *cubin = arena_printf(a, "%s/k.cubin", folder ? folder : "");
  if (!folder) return false;
  bool is_nvdisasm = strstr(disassembler, "nvdisasm") != NULL;
  const char *nvdisasm[] = {disassembler, "-hex", "-c", cubin, NULL},
             *cuobjdump[] = {disassembler, "-sass", cubin, NULL};
  out->log = assemble(a, who, ptxas, folder, ptx, size, chip, cubin);
  out->code = out->log ? run_program(a, who, disassembler, is_nvdisasm ? nvdisasm : cuobjdump, false) : NULL;
  remove_folder(folder, cubin);
  return out->code != NULL;
}

/* A file's bytes; NULL after a diag_error. */
static const char *read_file(arena *a, const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  long length = file && !fseek(file, 0, SEEK_END) ? ftell(file) : -1;
  char *data = length > 0 ? arena_alloc(a, (size_t)length) : NULL;
  if (data) rewind(file);
  if (data && fread(data, 1, (size_t)length, file) != (size_t)length) data = NULL;
  if (file) fclose(file);
  if (!data) diag_error(NULL, 0, "cannot read '%s'", path);
  *size = data ? (size_t)length : 0;
  return data;
}

bool gpu_tools_assemble(arena *a, const char *ptx, size_t size, const char *chip, const char **cubin,
                        size_t *cubin_size) {
  static const char who[] = "--cubin";
  const char *ptxas = find_program(a, "ptxas"), *folder = NULL;
  if (!ptxas) report_missing(a, who, "ptxas");
  if (!ptxas || !(folder = make_folder(a))) return false;
  const char *path = arena_printf(a, "%s/k.cubin", folder);
  *cubin = assemble(a, who, ptxas, folder, ptx, size, chip, path) ? read_file(a, path, cubin_size) : NULL;
  remove_folder(folder, path);
  return *cubin != NULL;
}
