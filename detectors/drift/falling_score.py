"""How sure it is that a ratio fell below everything it did before: an e-detector on counts.

The null is that no step has an expected share below m0, whatever came before it. If the trials of
a step come in clusters that share one fate, n_e of them, the likelihood ratio of n_e Bernoulli
trials at a lower share q to those at m0 never gains on average: the sub-Bernoulli supermartingale
(Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform Chernoff bounds via nonnegative
supermartingales", Probability Surveys 17, 2020, sections 2 and 3). Ratios multiply, restart
whenever they have lost, and are averaged over sizes of fall: an e-detector of CUSUM type (Shin,
Ramdas and Rinaldo, "E-detectors", arXiv 2203.03532, sections 2.2 and 3.1), whose mean time to a
false alarm is at least its threshold however often one looks.

Finite-sample: that, for any cluster within the assumed size and any past, with m0 and n_e from a
reference that lies before what is tested; no step may gain more than a share of what is needed, so
one outlier never alarms. Empirical: that m0, learnt from the reference, bounds what is healthy, and
the size of clusters: n_e = p(1-p) / v, with v of a beta-binomial, p(1-p)((1-rho)/n + rho), rho by
moments (Skellam, J. R. Stat. Soc. B 10, 1948), widened for what neighbours share; that the
reference moves along with the present. Several spans and series are paid for by a union bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from catalog.panel import FloatArray

SIZES = (1.0, 3.0, 10.0, 30.0)  # sizes of fall below m0 that compete, in tolerances
STEPS_NEEDED = 6  # of what is needed no step gives more than one in so many
MOST_INFLATION = 20.0
DAY = 86_400.0
HARMONICS = 2
CLEAR = 16.0  # a season must explain this many times what noise would


@dataclass(frozen=True)
class Evidence:
    """The outcome of one test.

    Attributes:
        log_e: Logarithm of the e-detector at the last step.
        onset: Step at which what it rests on began.
    """

    log_e: float
    onset: int


def bet(
    share: FloatArray, trials: FloatArray, bound: float, tolerance: float, needed: float
) -> Evidence:
    """Test that the shares lie below *bound*.

    Args:
        share: (n,), NaN where nothing was tried.
        trials: (n,) clusters of trials that each step is worth.
        bound: The m0 of the null.
        tolerance: The smallest size of fall.
        needed: What is needed of the logarithm of all.
    """
    known = np.isfinite(share)
    x = np.clip(np.where(known, share, bound), 0.0, 1.0)
    bound = min(max(bound, 2e-3), 1 - 1e-6)
    worth = np.where(known, trials, 0.0)
    best, onset = [], []
    for size in SIZES:
        low = max(bound - size * tolerance, 1e-3)
        gain = worth * (x * np.log(low / bound) + (1 - x) * np.log((1 - low) / (1 - bound)))
        total = np.concatenate([[0.0], np.cumsum(np.minimum(gain, needed / STEPS_NEEDED))])
        best.append(total[-1] - total.min())
        onset.append(int(total.argmin()))
    top = max(best)
    log_e = top + float(np.log(np.mean(np.exp(np.array(best) - top))))
    return Evidence(log_e, onset[int(np.argmax(best))])


def clusters(share: FloatArray, tried: FloatArray, split: int, counted: bool) -> FloatArray:
    """Return how many independent trials each step is worth.

    Args:
        share: (n,), NaN where nothing was tried.
        tried: (n,) trials.
        split: The first step that is not of the reference.
        counted: Whether trials are real.
    """
    before = share[:split]
    known = np.isfinite(before)
    weight = tried[:split][known]
    usual = float(np.average(before[known], weights=weight)) if known.any() else 0.5
    change = np.diff(before[known])
    spread = float(np.mean(change**2)) / 2 if len(change) else 1e-4
    own = max(usual * (1 - usual), 1e-4)
    if counted:
        binomial = own / np.maximum(tried, 1.0)
        due = float(np.mean(own / np.maximum(weight, 1.0))) if len(weight) else 0.0
        variance = binomial + max(spread - due, 1e-7)
    else:
        variance = np.full(len(share), max(spread, 1e-6))
    return np.where(tried > 0, own / (variance * _dependence(before)), 0.0)


def _dependence(before: FloatArray) -> float:
    """Return by how much dependence widens sums: the variance of means of five steps over its due.

    The wander itself is in the lowest healthy level; this covers what neighbours share.
    """
    known = before[np.isfinite(before)]
    count = len(known) // 5
    if count < 8:
        return 2.0
    fives = known[len(known) - 5 * count :].reshape(count, 5)
    local = np.diff(fives.mean(axis=1))
    due = float(np.mean(np.diff(known) ** 2)) / 5
    return float(np.clip(np.mean(local**2) / due if due > 0 else 1.0, 1.0, MOST_INFLATION))


def season_of(
    share: FloatArray, tried: FloatArray, times: FloatArray, at: FloatArray
) -> FloatArray:
    """Return the daily season at the instants *at*, fitted beside a line to hourly shares.

    Zero where less than three days are known, or where no season is clear.
    """
    known = np.isfinite(share) & (tried > 0)
    if known.sum() < 36 or times[known][-1] - times[known][0] < 3 * DAY:
        return np.zeros(len(at))
    t, y = times[known], share[known]
    line = np.stack([np.ones(len(t)), (t - t.mean()) / DAY], axis=1)
    waves = _waves(t)
    base = y - line @ np.linalg.lstsq(line, y, rcond=None)[0]
    full = np.concatenate([line, waves], axis=1)
    found = np.linalg.lstsq(full, y, rcond=None)[0]
    rest = float(np.sum((y - full @ found) ** 2))
    # About six hours of a wander are alike: noise explains so much of it by chance.
    free = max((len(t) - full.shape[1]) / 6, 1.0)
    if float(np.sum(base**2)) - rest < CLEAR * rest / free:
        return np.zeros(len(at))
    season: FloatArray = _waves(at) @ found[2:]
    return season


def _waves(times: FloatArray) -> FloatArray:
    angle = 2 * np.pi * (times % DAY) / DAY
    waves = [f(k * angle) for k in range(1, HARMONICS + 1) for f in (np.cos, np.sin)]
    return np.stack(waves, axis=1)
