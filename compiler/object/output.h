/* object/output: files that are written as one.
 *
 * In: names and bytes. Out: all files complete, or all of them as they were
 * before. Every file is first written next to its place under a temporary name and
 * then renamed, so no reader sees a half-written one and a failure keeps the old.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct output_file {
  const char *path; /* "-": the standard output; devices and pipes are written to directly */
  const char *data;
  size_t size;
} output_file;

/* Do both name one file, be it there or still to be written? Links, hard and symbolic, and ways through folders count.
 * Devices and pipes are no such files. */
bool output_is_same(const char *path, const char *other);

/* False after a diag_error that names the file and the reason. */
bool output_write(const output_file *files, int count);

/* All bytes, however many writes that takes. False: errno. */
bool output_bytes(int fd, const char *data, size_t size);
