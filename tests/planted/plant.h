/* plant: what native code in the place of a spec tries; see plant.c. */
#ifndef PEGEN_TESTS_PLANT_H
#define PEGEN_TESTS_PLANT_H

typedef struct plant_row {
  const char *name;
  void (*attempt)(void);
  const char *outcome; /* what the loader must say; "SIGSYS": that the system was asked for what no description needs */
} plant_row;

int plant_rows(const plant_row **rows);

#endif
