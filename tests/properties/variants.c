/* variants: specs and their options; see variants.h. */

#include "variants.h"
#include "test.h"

#include <dirent.h>
#include <lauxlib.h>
#include <lua.h>
#include <stdio.h>
#include <string.h>

static int is_spec(const struct dirent *entry) {
  const char *dot = strrchr(entry->d_name, '.');
  return dot && dot != entry->d_name && strcmp(dot, ".lua") == 0;
}

/* Options of the table on top of the stack. */
static void read_options(arena *a, lua_State *L, variant *v) {
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    loader_define *define = &v->define[v->n_defines++];
    define->name = arena_strdup(a, lua_tostring(L, -2));
    define->value = arena_strdup(a, luaL_tolstring(L, -1, NULL));
    lua_pop(L, 1);
    v->name = arena_printf(a, "%s %s=%s", v->name, define->name, define->value);
  }
}

int variants_read(arena *a, const char *specs_dir, const char *table, const char *only, variant **variants) {
  lua_State *L = luaL_newstate();
  if (!L || luaL_dofile(L, table)) {
    fprintf(stderr, "%s: %s\n", table, L ? lua_tostring(L, -1) : "out of memory");
    exit(1);
  }
  struct dirent **entries;
  int n_files = scandir(specs_dir, &entries, is_spec, alphasort), count = 0;
  if (n_files <= 0) {
    fprintf(stderr, "%s: no specs\n", specs_dir);
    exit(1);
  }
  variant *all = arena_array(a, variant, n_files * 8);
  const char **targets;
  int n_targets = trial_targets(a, NULL, &targets);
  for (int i = 0; i < n_files; i++) {
    const char *file = arena_printf(a, "%s/%s", specs_dir, entries[i]->d_name);
    const char *name = arena_printf(a, "%.*s", (int)strlen(entries[i]->d_name) - 4, entries[i]->d_name);
    const char *target = n_targets ? targets[0] : NULL;
    free(entries[i]);
    if (only && strcmp(only, name) != 0) continue;
    all[count++] = (variant){.memory = a, .name = name, .file = file, .target = target};
    lua_getfield(L, -1, name);
    for (int k = 1; lua_istable(L, -1) && k <= (int)luaL_len(L, -1) && k < 8; k++) {
      variant *v = &all[count++];
      *v = (variant){.memory = a, .name = name, .file = file, .target = target};
      lua_geti(L, -1, k);
      read_options(a, L, v);
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
  }
  free(entries);
  lua_close(L);
  *variants = all;
  return count;
}

static spec *variant_spec(variant *v) {
  if (!v->spec) v->spec = loader_load(v->memory, v->file, DSL_DIR, v->n_defines, v->define);
  assert_non_null(v->spec);
  return v->spec;
}

const pegen_kernel *variant_kernel(variant *v) {
  if (!v->loaded) v->loaded = trial_load(v->memory, variant_spec(v), v->target, VARIANT_DTYPES, VARIANT_OPTIMIZE);
  assert_non_null(v->loaded);
  return run_kernel(v->loaded);
}

/* Loads the variant's description with one or two more options. */
static loaded_kernel *load_with(const variant *v, arena *a, loader_define first, loader_define second, spec **s) {
  loader_define define[VARIANT_MAX_DEFINES + 2];
  int n = v->n_defines;
  memcpy(define, v->define, sizeof v->define);
  define[n++] = first;
  if (second.name) define[n++] = second;
  *s = loader_load(a, v->file, DSL_DIR, n, define);
  assert_non_null(*s);
  loaded_kernel *loaded = trial_load(a, *s, v->target, VARIANT_DTYPES, VARIANT_OPTIMIZE);
  assert_non_null(loaded);
  return loaded;
}

const pegen_kernel *variant_inverse(variant *v) {
  spec *s;
  if (!v->inverse)
    v->inverse = load_with(v, v->memory, (loader_define){"inverse", "true"}, (loader_define){NULL, NULL}, &s);
  return run_kernel(v->inverse);
}

static loader_define skip_define(arena *a) {
  return (loader_define){"skip_tokens", arena_printf(a, "%d", SKIPPED_TOKENS)};
}

const pegen_kernel *variant_skipping(variant *v) {
  spec *s;
  if (!v->skipping) v->skipping = load_with(v, v->memory, skip_define(v->memory), (loader_define){NULL, NULL}, &s);
  return run_kernel(v->skipping);
}

loaded_kernel *variant_grid(variant *v, arena *a, const char *grid, spec **s) {
  return load_with(v, a, skip_define(a), (loader_define){"grid", grid}, s);
}

void variant_close(variant *v) {
  loaded_kernel *all[] = {v->loaded, v->inverse, v->skipping};
  for (int i = 0; i < 3; i++)
    if (all[i]) run_unload(all[i]);
}
