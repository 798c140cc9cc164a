"""What can be told from few seeds. Runs of one seed share data, first values and the order of batches, so variants are
compared seed by seed: Student's t-test of the differences (SciPy), with all p-values of a study corrected together by
Holm's rule, which holds however comparisons depend on each other, as those with one baseline do. (SciPy has rules for
the share of false discoveries; the one of them that needs no independence is the weaker one for as few comparisons.)"""
from __future__ import annotations

from typing import Any

import numpy
import pandas
from scipy import stats

from .data import MEASURES
from .study import Study

LEVEL = 0.05
HONEST = (
    "{n} seeds are few: an interval holds where differences are about normal, which so few numbers cannot show, and"
    " where one is not told apart from 0 it may be anything inside of its interval. Called better or worse is what has"
    " p < 0.05 after correction for all {tests} comparisons of this study (Holm: the probability that any of them is so"
    " called by chance is below 5 %)."
)
_ONE = "One seed says nothing about chance: no interval and no test."


def said(study: Study, comparisons: list[dict[str, Any]]) -> str:
    """The sentence that stands above any table of these."""
    tests = sum(c["p"] is not None for c in comparisons)
    seeds = max((c["seeds"] for c in comparisons), default=len(study.seeds))
    return HONEST.format(n=seeds, tests=tests) if seeds > 1 else _ONE


def _against(difference: numpy.ndarray) -> dict[str, Any]:
    """Interval and p-value of a mean of differences."""
    row: dict[str, Any] = {"difference": float(difference.mean()), "low": None, "high": None, "p": None}
    if len(difference) > 1 and numpy.ptp(difference) == 0:
        # Without spread the test's formula divides by 0: how likely all have one sign by chance is what is left.
        p = 2.0 ** (1 - len(difference)) if row["difference"] else 1.0
        return row | {"low": row["difference"], "high": row["difference"], "p": p}
    if len(difference) > 1:
        found = stats.ttest_1samp(difference, 0.0)
        low, high = found.confidence_interval(1 - LEVEL)
        row |= {"low": float(low), "high": float(high), "p": float(found.pvalue)}
    return row


def _corrected(p: list[float]) -> numpy.ndarray:
    """Holm's: the smallest of m times m, the next times m - 1, and none below one before it."""
    order = numpy.argsort(p)
    grown = numpy.asarray(p, dtype=float)[order] * numpy.arange(len(p), 0, -1)
    found = numpy.empty(len(p))
    found[order] = numpy.minimum(numpy.maximum.accumulate(grown), 1)
    return found


def compared(study: Study, runs: pandas.DataFrame) -> list[dict[str, Any]]:
    """Every variant with the baseline, on every test. runs: a row for each run and test, with variant, seed, test,
    measure and value."""
    rows = []
    for test, of_test in runs.groupby("test", sort=False):
        table = of_test.pivot(index="seed", columns="variant", values="value").astype(float)
        measure = MEASURES[of_test["measure"].iloc[0]]
        for name in study.variants:
            if name == study.baseline or name not in table or study.baseline not in table:
                continue
            pairs = table[[name, study.baseline]].dropna()
            if len(pairs):
                difference = (pairs[name] - pairs[study.baseline]).to_numpy()
                row = {"test": test, "variant": name, "seeds": len(pairs), **_against(difference)}
                rows.append(row | {"sign": 1 if measure.higher_is_better else -1})
    tested = [row for row in rows if row["p"] is not None]
    for row, p in zip(tested, _corrected([row["p"] for row in tested])):
        row["p_corrected"] = float(p)
    for row in rows:
        p, sign = row.setdefault("p_corrected", None), row.pop("sign")
        found = p is not None and p < LEVEL
        row["verdict"] = "not told apart" if not found else "better" if sign * row["difference"] > 0 else "worse"
    return rows


def summary(runs: pandas.DataFrame) -> pandas.DataFrame:
    """Mean and deviation over seeds, of each variant and test; in the order in which they come."""
    groups = runs.groupby(["test", "variant"], sort=False)["value"]
    return groups.agg(["mean", "std", "min", "max", "count"]).reset_index()
