/* bytes.h: growing memory of the library behind pegen/compiler.h. All zero is empty. Memory that cannot be had sets
 * `failed`, and nothing is added from then on: looked at once, at the end. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct bytes {
  char *data; /* a NUL stands behind it once something was added */
  size_t size, room;
  bool failed;
} bytes;

void pegen_bytes_add(bytes *b, const void *data, size_t size);
void pegen_bytes_print(bytes *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A text, NULL apart from the empty one, so that two keys are equal only where all their texts are. */
void pegen_bytes_add_text(bytes *b, const char *text);
/* Memory behind the end for the caller to fill; NULL after a failure. */
char *pegen_bytes_reserve(bytes *b, size_t size);
/* A whole file. What is none (a pipe, a terminal) is left alone: reading takes its bytes from whoever they are for.
 * False: errno. */
bool pegen_bytes_read_file(bytes *b, const char *path);
/* Reads a whole file from a descriptor at its beginning, and closes it. False: errno, or the descriptor is -1. */
bool pegen_bytes_read_open(bytes *b, int fd);
/* A path from the root, so that it means the same in every folder; links stay. False where the folder is not known. */
bool pegen_bytes_add_path(bytes *b, const char *path);
/* All of it, however many calls that takes. False: errno. */
bool pegen_bytes_write(int fd, const char *data, size_t size);
void pegen_bytes_free(bytes *b);
