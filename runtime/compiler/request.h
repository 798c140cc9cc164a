/* request.h: what a pegen_compile_request means: the program, its arguments, and the key of the cache. */
#pragma once

#include "bytes.h"
#include "pegen/compiler.h"

#include <limits.h>

/* A copy with all fields of this library's version; false where the request's struct_size is none, or it names neither
 * or both of file and text, with *error set. */
bool pegen_request_read(const pegen_compile_request *given, pegen_compile_request *request, const char **error);

/* The path of the program, "" where none is found. */
void pegen_request_program(const pegen_compile_request *request, char path[PATH_MAX]);

/* Everything that the shared object depends on but the contents of files that the description reads. */
void pegen_request_key(const pegen_compile_request *request, const char *program, bytes *key);

/* Argument list, NULL-terminated, of the program; NULL without memory. Freed by free(). */
char **pegen_request_compile_arguments(const pegen_compile_request *request, bytes *texts);
char **pegen_request_explain_arguments(const pegen_compile_request *request, bytes *texts);
