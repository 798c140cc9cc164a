/* base/arena: memory of one compilation.
 *
 * Everything a compilation allocates comes from one arena and is released at
 * once. Allocation never returns NULL: running out of memory is reported with
 * the message a user expects and ends the process with exit code 3, before any
 * output file is touched (outputs are written last and renamed into place).
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>

typedef struct arena arena;

arena *arena_create(void);
void arena_destroy(arena *a);

/* What it has taken from the system so far. */
size_t arena_bytes(const arena *a);

/* Zeroed memory, aligned to 16 bytes. */
void *arena_alloc(arena *a, size_t size);
char *arena_strdup(arena *a, const char *text);
char *arena_printf(arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(arena *a, const char *format, va_list arguments);

/* Returns memory that cannot live in an arena (malloc, streams), and ends the program where it is NULL. */
void *arena_must(void *memory);

#define arena_new(a, type) ((type *)arena_alloc((a), sizeof(type)))
#define arena_array(a, type, count) ((type *)arena_alloc((a), sizeof(type) * (size_t)(count)))
