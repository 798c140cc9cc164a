/* attention_few_walk.h: items of attention with few queries; see attention_few.c. */
#pragma once

#include "attention_few.h"
#include "attention_turner.h"

typedef struct pegen_few_walk {
  pegen_attention_walk *w;
  const pegen_attention_few_code *code;
  int64_t group, heads; /* heads of q that share keys; how many such groups there are */
  int64_t prefix_rows, rows; /* of a group: of prefix tokens, all */
  int64_t prefix_sets, sets; /* items of it, the same */
  int64_t items;
  int64_t keys; /* of a tile: about as many bytes of any type */
  int64_t first_row; /* of the item, among those of its group */
  int64_t batch, head; /* the group that the item is of; -1: none yet */
  int64_t least, most; /* keys that all of the item's rows see, that some see */
  int64_t plain;       /* keys below it have no bias */
  int knows_states;    /* 1: blocks of keys have their states, of the item's rows */
  int paired;          /* 1: the keys at hand have what pairs have */
  const char *q[PEGEN_FEW_ROWS]; /* of the call, as few.q and few.out are of float32 rows where there is a panel */
  char *out[PEGEN_FEW_ROWS];
  pegen_attention_turner turner;
  pegen_attention_panel panel; /* of a tile's keys; keys NULL: they are read where they are */
  float *row_room; /* [row][head_dim] of q, and in the end of out */
  double *leaves;      /* [heads of the group, or 1][n_leaves][lanes] */
  char *state;         /* of an item's rows */
  pegen_attention_few few;
} pegen_few_walk;

/* 1: so few queries that they go this way. */
PEGEN_INTERNAL int pegen_attention_is_few(const pegen_attention_walk *w, int target);
/* Items of a call that has begun (pegen_attention_begin), and [begin, end) of them. */
PEGEN_INTERNAL int64_t pegen_attention_few_items(pegen_attention_walk *w, int target);
PEGEN_INTERNAL void pegen_attention_few_run(pegen_attention_walk *w, int target, int64_t begin, int64_t end);

/* Whether keys go through a panel: rows are turned, or pairs take them as float32. */
static inline int pegen_few_has_panel(const pegen_few_walk *f) { return f->w->form->turned || f->code->pair_scores; }

/* Its steps. What all items share; room is the caller's (PEGEN_FEW_ROOM). */
PEGEN_INTERNAL void pegen_few_begin(pegen_few_walk *f, pegen_attention_walk *w, int target);
PEGEN_INTERNAL void pegen_few_set_item(pegen_few_walk *f, int64_t item);
/* Keys [begin, end) of the item, as far as some row sees them: their state, from nothing. */
PEGEN_INTERNAL void pegen_few_run(pegen_few_walk *f, int64_t begin, int64_t end, char *state);

/* Writes the item's rows of out and lse. */
PEGEN_INTERNAL void pegen_few_end(pegen_few_walk *f, char *state);

/* On the stack of the call. */
#define PEGEN_FEW_ROOM(f) \
  do { \
    const pegen_attention *few_form = (f)->w->form; \
    int64_t heads = (f)->w->driver->per_head ? (f)->group : 1, \
            width = ((f)->w->driver->kernel->head_dim + PEGEN_ATTENTION_PITCH - 1) / PEGEN_ATTENTION_PITCH * \
                    PEGEN_ATTENTION_PITCH, \
            rows = (f)->rows < PEGEN_FEW_ROWS ? (f)->rows : PEGEN_FEW_ROWS; \
    (f)->leaves = PEGEN_STACK(sizeof(double) * (size_t)(heads * few_form->n_leaves * few_form->lanes) + 64); \
    (f)->few.queries = PEGEN_STACK(sizeof(float) * (size_t)(rows * width) + 64); \
    (f)->few.scores = PEGEN_STACK(sizeof(float) * (size_t)(rows * PEGEN_FEW_KEYS) + 64); \
    (f)->few.decay = PEGEN_STACK(sizeof(float) * (size_t)(rows * PEGEN_ATTENTION_PITCH) + 64); \
    (f)->state = PEGEN_STACK((rows * pegen_few_state_bytes(few_form->value_dim)) + 64); \
    (f)->panel.keys = (f)->panel.values = 0; \
    if (pegen_few_has_panel(f)) { \
      int64_t row = (f)->w->driver->kernel->head_dim, \
              values = few_form->turned && few_form->turned->values ? (f)->keys : 0; \
      PEGEN_ATTENTION_TURNER_ROOM(&(f)->turner); \
      PEGEN_ATTENTION_PANEL_ROOM(&(f)->panel, row, (f)->keys, values); \
      (f)->row_room = PEGEN_STACK(sizeof(float) * (size_t)(rows * row)); \
    } \
  } while (0)
