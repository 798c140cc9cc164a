/* bench/request: what `pegen bench` is asked to measure, and what every room of it gets. */
#pragma once

#include "base/status.h"

#include <stdbool.h>

typedef enum bench_layout { LAYOUT_BNHD = 1, LAYOUT_BHND = 2 } bench_layout;

/* What `pegen bench` is asked to measure. */
typedef struct bench_options {
  const char *shape;   /* a name of the built-in set or "B,N,H[,D]"; NULL: the whole set */
  unsigned layouts;    /* LAYOUT_ bits; 0: bnhd */
  int threads;         /* 1 or more */
  bool in_place, out_of_place; /* both false: both are measured */
  bool table; /* encode by a table of NAME_prepare, which is timed, too */
  bool backward; /* gradients, too, by NAME_encode_backward or NAME_attention_backward */
  bool append; /* NAME_append in place of NAME_encode */
  int group;   /* of append, and of attention with `keys`: heads of q for each of k and v; 0: 1 */
  const int
      *keys; /* [n_keys], of attention: queries of the shape against so many keys each; NULL: as many as queries */
  int n_keys;
  bool causal; /* attention of earlier keys alone, beside the same of all */
  bool shared_inputs; /* inputs of rows have one head, for all */
  bool then_read; /* each call, and each limit, is followed by one reading of what it wrote */
  bool json;  /* one JSON object instead of lines */
  const char *command;         /* the command line, for that object */
  struct bench_report *report; /* where its figures go, once the bench runs (bench/report.h); NULL: lines */
} bench_options;
