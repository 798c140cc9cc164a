/* scheduled.h: a tile program with the fewest waits that make it sound, as it stands before tile_pipeline. */
#ifndef PEGEN_TESTS_TILE_SCHEDULED_H
#define PEGEN_TESTS_TILE_SCHEDULED_H

#include "tile/tile.h"

/* A wait behind each run of loads, and one before each run in a loop, behind which nobody reads the turn before. */
const tile_program *scheduled(arena *a, const tile_program *p);

#endif
