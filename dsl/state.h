/* state: what the parts of the loader share; private to dsl/.
 *
 * One dsl_state lives as long as one loader_load. The Lua state points to it
 * (lua_getextraspace), it points to the arena; everything that outlives the
 * Lua state is copied there.
 */
#pragma once

#include "loader.h"
#include "sources.h"

#include <lauxlib.h>
#include <lua.h>
#include <time.h>

/* A fuzzer meets endless loops all the time. */
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
enum { DSL_MEMORY_MIB = 16, DSL_INSTRUCTIONS_MILLIONS = 2 };
#else
enum { DSL_MEMORY_MIB = 64, DSL_INSTRUCTIONS_MILLIONS = 50 };
#endif

/* What one spec may use. Ten seconds are for the one case instructions do not see: long strings. */
enum {
  DSL_STRING_BYTES = 64 * 1024,
  DSL_SECONDS = 10,
  DSL_SOURCES = 64,
  DSL_REQUESTS = 256, /* for files, those that are not there among them */
  DSL_OPTIONS = 256,
  DSL_TRACE_NODES = 1 << 20,  /* operations of all traced expressions together */
  DSL_TRACE_DEPTH = 200,      /* nesting of one expression */
  DSL_TRACE_SIZE = 10000,     /* operations of one expression written out as a tree */
  DSL_MAX_ROWS = 1 << 16,     /* heads times blocks */
  DSL_TABLE_LENGTH = 1 << 20, /* longest table that table.* works on */
  DSL_SORT_LENGTH = 1 << 16
};

typedef struct dsl_source {
  const char *path; /* as opened, for messages and depfiles */
  const char *text;
  bool vocabulary;      /* a file of dsl_dir: errors are the caller's, not its own */
  char id[LUA_IDSIZE];  /* how Lua's own messages call it: the path, shortened where long */
} dsl_source;

typedef struct dsl_place {
  const char *file;
  int line;
} dsl_place;

typedef struct dsl_state {
  arena *memory;
  const char *file;      /* the spec */
  source_store *store;
  int n_defines;
  const loader_define *defines;
  bool *define_used;

  int n_sources;
  dsl_source source[DSL_SOURCES];
  const char *loading[DSL_SOURCES]; /* names of modules being required, outermost first */
  int n_loading;
  int n_requests;
  const char *compiling; /* path of the file that Lua is reading just now, or NULL */

  /* limits.c */
  lua_State *L;
  size_t bytes;
  size_t arena_before;   /* bytes that the arena held before */
  bool exhausted;        /* out of time in the collector: every allocation is refused */
  bool refused_string; /* the last refusal was of one long string */
  dsl_place refused;   /* where the last allocation was refused */
  const void *lacking_block; /* of the last refusal */
  size_t lacking_size;       /* 0: it was granted when Lua asked again */
  long long instructions;
  int step; /* instructions between two calls of the hook */
  clock_t begun;
  const char *fatal; /* a limit was passed: no pcall may hide it */
  dsl_place fatal_place;

  /* trace.c, convert.c */
  int trace_nodes;
  int sums;                   /* pe.sum called */
  expr_pool *pool;
  int n_options, options_room;
  spec_option *option;
  int n_parts;
  spec_part part[SPEC_MAX_PARTS];
  spec *result;
  struct {
    bool known;
    dsl_place place;
    const char *text;
  } failure; /* of the whole spec */
} dsl_state;

#define DSL_DESCRIPTION "pegen description" /* metatable of what pe.encoding returns */

static inline dsl_state *dsl_state_of(lua_State *L) { return *(dsl_state **)lua_getextraspace(L); }

/* ---- loader.c ---- */

/* loader_load with the files from a store. */
spec *loader_run(arena *a, const char *file, source_store *store, int n_defines, const loader_define *defines);

/* ---- where.c: places in sources ---- */

/* The innermost running line that is not the vocabulary's; file NULL where there is none. Allocates nothing. */
dsl_place where_user(lua_State *L);
/* Raises "place: message" so that where_parse finds the place again. */
_Noreturn void where_raise(lua_State *L, dsl_place place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Raises at the user's line. */
_Noreturn void where_fail(lua_State *L, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Splits "id:line: text": the place, and *text past it. NULL where the message begins with no known place. */
const dsl_source *where_parse(const dsl_state *s, const char *message, dsl_place *place, const char **text);
/* The line at or after `line` on which `field =` stands in the file; `line` itself where it does not. */
int where_field(const dsl_state *s, const char *file, int line, const char *field);
const dsl_source *where_source(const dsl_state *s, const char *lua_source);

/* ---- limits.c: memory, instructions, pcall ---- */

lua_State *limits_open(dsl_state *s);
/* Counts work that C does for the spec and no instruction hook sees. */
void limits_charge(lua_State *L, long long instructions);
/* Raises where the arena has taken too much. */
void limits_memory(lua_State *L);
/* What to say when Lua ran out of memory. */
const char *limits_refusal(const dsl_state *s);
int limits_pcall(lua_State *L);
int limits_xpcall(lua_State *L);

/* ---- modules.c: files ---- */

/* Reads and compiles a file: its chunk is pushed, or an error raised at `asked` (file NULL: nowhere). */
void modules_load(lua_State *L, source_kind kind, const char *name, dsl_place asked);
int modules_require(lua_State *L);
int modules_include(lua_State *L); /* core.include "name": another file of the vocabulary */

/* ---- sandbox.c, core.c ---- */

#define SANDBOX_VOCABULARY "globals of the vocabulary" /* in the registry */
void sandbox_open(lua_State *L); /* fills the globals */
#define DSL_CORE "core" /* in the registry: the table that only the vocabulary sees */
void core_open(lua_State *L);
