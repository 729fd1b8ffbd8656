"""How sure it is that a ratio fell below everything it did before: a likelihood-ratio CUSUM.

The null is that the mean of each step is not below m0, the lowest healthy level of the reference,
which lies wholly before the span that is tested. For each size of fall the likelihood ratio of a
step multiplies up, restarted whenever that favours the null: an e-detector of CUSUM type (Shin,
Ramdas and Rinaldo, "E-detectors", arXiv 2203.03532, sections 2.2 and 3.1), averaged over the
sizes. If the variance is right its average run length to a false alarm is at least the threshold,
however often one looks. The variance of a step is that of a beta-binomial, p(1-p)((1-rho)/n + rho),
with rho by moments from the reference (Skellam, J. R. Stat. Soc. B 10, 1948), inflated for
autocorrelation: plugged in, so the guarantee is approximate there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from catalog.panel import FloatArray

FALLS = (0.01, 0.02, 0.05, 0.1, 0.2)  # sizes of fall below m0 that compete
TOLERANCE = 0.01  # below the lowest healthy level before a fall counts
BLOCKS = 4  # blocks of the reference: a quarter of the span that is tested, or shorter
MOST_INFLATION = 20.0


@dataclass(frozen=True)
class Score:
    """The test of one span.

    Attributes:
        log_e: Logarithm of the e-detector at the last step.
        healthy: Lowest healthy level m0, tolerance included.
        usual: Mean level of the reference.
        onset: Index at which the fall began.
        sd: Standard deviation of a typical step.
    """

    log_e: float
    healthy: float
    usual: float
    onset: int
    sd: float


def score(ratio: FloatArray, trials: FloatArray | None, split: int, short: int) -> Score | None:
    """Test the steps from *split* on against those before.

    Args:
        ratio: Shape (n,), NaN where nothing was tried.
        trials: Shape (n,), or None where only the ratio is known.
        split: Index of the first step that is tested.
        short: Steps over which the lowest healthy level is a mean.

    Returns:
        The score, or None where the reference is too thin.
    """
    block = max(5, min((len(ratio) - split) // BLOCKS, short))
    before = ratio[:split]
    weight = np.ones_like(ratio) if trials is None else np.where(np.isfinite(ratio), trials, 0.0)
    means = _block_means(before, weight[:split], block)
    if len(means) < BLOCKS:
        return None
    healthy = float(means.min()) - TOLERANCE
    usual = float(
        np.average(before[np.isfinite(before)], weights=weight[:split][np.isfinite(before)])
    )
    variance = _variance(before, trials, split, len(ratio), usual)
    gap = np.nan_to_num(healthy - ratio[split:])
    known = np.isfinite(ratio[split:])
    best, onset = [], []
    for fall in FALLS:
        gain = np.where(known, (fall * gap - fall**2 / 2) / variance[split:], 0.0)
        total = np.concatenate([[0.0], np.cumsum(gain)])
        best.append(total[-1] - total.min())
        onset.append(int(total.argmin()))
    top = max(best)
    log_e = top + float(np.log(np.mean(np.exp(np.array(best) - top))))
    typical = float(np.sqrt(np.median(variance[split:])))
    return Score(log_e, healthy, usual, split + onset[int(np.argmax(best))], typical)


def _block_means(ratio: FloatArray, weight: FloatArray, block: int) -> FloatArray:
    """Return the pooled ratio of each whole block; blocks without trials are left out."""
    count = len(ratio) // block
    if count == 0:
        return np.zeros(0)
    shape = (count, block)
    values = np.nan_to_num(ratio[len(ratio) - count * block :]).reshape(shape)
    weights = np.where(np.isfinite(ratio), weight, 0.0)[len(ratio) - count * block :].reshape(shape)
    total = weights.sum(axis=1)
    means: FloatArray = (values * weights).sum(axis=1)[total > 0] / total[total > 0]
    return means


def _variance(
    before: FloatArray, trials: FloatArray | None, split: int, size: int, usual: float
) -> FloatArray:
    """Return the variance of every step: binomial and overdispersed, inflated for dependence."""
    change = np.diff(before)
    change = change[np.isfinite(change)]
    spread = float(np.mean(change**2)) / 2 if len(change) else 1e-4
    spread = max(spread, 1e-6)
    binomial = np.zeros(size)
    if trials is not None:
        tried = np.where(trials > 0, trials, 1.0)
        binomial = max(usual * (1 - usual), 1e-4) / tried
        spread = max(spread - float(np.mean(binomial[:split])), 1e-6)
    return (binomial + spread) * _inflation(before)


def _inflation(before: FloatArray) -> float:
    """Return by how much dependence inflates sums: variance of means of five steps over its due.

    The wander itself is in the lowest healthy level; this covers what neighbours share.
    """
    known = before[np.isfinite(before)]
    count = len(known) // 5
    if count < 8:
        return 2.0
    fives = known[len(known) - 5 * count :].reshape(count, 5)
    local = np.diff(fives.mean(axis=1))
    single = np.diff(known)
    due = float(np.mean(single**2)) / 5
    return float(np.clip(np.mean(local**2) / due if due > 0 else 1.0, 1.0, MOST_INFLATION))
