/* algebra/polynomial: the expansion of a bias in the displacement delta = r_j - r_i and in numbers of the key's token.
 *
 * In: spec_polynomial, whose value is an expression traced from the spec. Out: its coefficients by
 * monomials of delta, exactly and for every term l at once: no number is fitted.
 *
 *     value_l(delta) = sum over alpha of delta^alpha * sum over k of query_k(l) * fixed_{k,alpha}(l)
 *
 * Numbers that inputs hold for the key's token are coordinates of delta behind those of positions, at which every query
 * is at 0: with them the bias is <h_q(x_i) r_i^l, r_j^(n - l) h_k(x_j)> (PaPE, appendix C).
 *
 * A coefficient is a sum of products in which what the query's inputs say stands apart from what
 * operands and constants say, so that the second half is computed once per call, and the first once
 * per query however many monomials share it. Sums over terms are called weights:
 *
 *     bias(delta) = sum over w of weight_w * shape_w(delta),   shape_w a polynomial of constant coefficients.
 *
 * Monomials whose coefficients differ by a constant factor share a weight (|delta|^2 is one weight in
 * any number of dimensions). Whoever evaluates the bias itself needs weights and shapes only:
 * compute the weights of a query, then each shape at each delta.
 */
#pragma once

#include "spec/spec.h"

#include <stdio.h>

enum { POLYNOMIAL_MAX_MONOMIALS = 64, POLYNOMIAL_MAX_PRODUCTS = 4096 };

typedef struct monomial {
  unsigned char power[SPEC_MAX_AXES]; /* delta^power: the product over axes of delta_a^power_a, keys' numbers last */
} monomial;

/* In all coordinates, numbers of keys among them. */
int monomial_degree(const monomial *m);
bool monomial_equal(const monomial *x, const monomial *y);
double monomial_value(const monomial *m, int n_axes, const double *at);

/* query * fixed, of every term. */
typedef struct polynomial_product {
  const expr *query; /* depends on inputs (and perhaps on operands); NULL: 1 */
  const expr *fixed; /* operands, tables and constants only */
} polynomial_product;

typedef struct polynomial_weight {
  int n_products;
  const polynomial_product *product; /* weight = sum over terms and products of query * fixed */
  int n_monomials; /* of the shape */
  const monomial *monomial;
  const double *factor; /* [n_monomials] */
} polynomial_weight;

typedef struct polynomial {
  const spec *spec;
  int degree;            /* that it has in positions, at most what the description states */
  int order;             /* largest degree of a monomial in all coordinates */
  int n_keys;            /* numbers of the key's token: coordinate n_axes + i is key[i] */
  const expr *key[SPEC_MAX_AXES]; /* INPUT */
  int n_weights;
  polynomial_weight *weight;
  int n_queries;         /* distinct query halves of all products */
  const expr **query;
} polynomial;

/* NULL after a diag_error: not a polynomial in delta, a degree above the one stated, too many monomials. */
const polynomial *polynomial_expand(arena *a, const spec *s);

/* "h^2 w" in the arena, numbers of keys by their inputs' names; "1" of degree 0. */
const char *monomial_text(arena *a, const polynomial *p, const monomial *m);

/* Index of a product's query half in p->query; -1: it has none. */
int polynomial_query_index(const polynomial *p, const expr *query);

void polynomial_print(FILE *out, const polynomial *p);
