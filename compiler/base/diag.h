/* base/diag: the user's errors, one line each: "file:line: error: what is wrong, what was expected".
 *
 * Errors of the user and of ourselves never mix: a user's error goes through
 * diag_error and the stage returns failure (exit 1); a broken invariant of
 * the compiler calls diag_bug, which names the stage and aborts with exit 3.
 */
#pragma once

/* Where messages go: the standard error, or in a process that has none a function, which ends it after a bug or
 * where memory lacks; file may be NULL. */
typedef enum diag_kind { DIAG_ERROR, DIAG_WARNING, DIAG_BUG, DIAG_MEMORY } diag_kind;
typedef void (*diag_sink)(diag_kind kind, const char *file, int line, const char *text);
void diag_send_to(diag_sink sink); /* NULL: the standard error */

/* file may be NULL (no position known) and line 0 (only the file is known). */
void diag_error(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
void diag_warning(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
_Noreturn void diag_out_of_memory(void);
_Noreturn void diag_bug(const char *stage, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The candidate nearest to word by edit distance, or NULL where none is near enough to be meant. */
const char *diag_nearest(const char *word, const char *const *candidates, int count);
