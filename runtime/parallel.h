/* parallel.h: anything that comes in parts, in as many threads. */
#pragma once

/* One part of what `of` says: 0 or an error. */
typedef int pegen_part_of(const void *of, int part, int parts);

/* All parts, the caller's thread being one of them; the first part's error. */
__attribute__((visibility("hidden"))) int pegen_run_parts(pegen_part_of *run, const void *of, int threads);
