"""The peers are densities, and know what they are said to know."""
import numpy as np
import pytest
from scipy import stats

from mixlit.peers import CrossEntropyTree, ForestDensity, HistogramTree, average_ranks, critical_difference, fit_cvae, fit_kmn, gaussian_length, leaf_conditions, log_complexity, score_peer, time_methods


@pytest.fixture(scope="module")
def line():
    rng = np.random.RandomState(0)
    A = rng.normal(size=(400, 2))
    return A, 3 + 2 * A[:, 0] + rng.normal(0, 0.5, 400)


@pytest.mark.parametrize("fit", [fit_kmn, fit_cvae, lambda A, y, scale: ForestDensity(A, y, scale, n_trees=40), lambda A, y, scale: HistogramTree(A, y),
                                 lambda A, y, scale: CrossEntropyTree(A, y, scale)], ids=["kmn", "cvae", "forest", "histogram tree", "cross-entropy tree"])
def test_density_has_mass_one_and_beats_the_marginal(fit, line):
    A, y = line
    found = fit(A[:300], y[:300], 0.01)
    grid = np.linspace(-14, 20, 6_001)
    mass = np.trapezoid(np.exp(found.log_density(np.repeat(A[:1], len(grid), axis=0), grid)), grid)
    assert abs(mass - 1) < 0.02
    held_out = np.maximum(found.log_density(A[300:], y[300:]), -10).mean()
    assert held_out > stats.norm(y.mean(), y.std()).logpdf(y[300:]).mean() + 0.3


def test_same_seed_same_density(line):
    A, y = line
    for fit in (fit_kmn, fit_cvae):
        assert np.array_equal(fit(A[:80], y[:80], 0.01).log_density(A, y), fit(A[:80], y[:80], 0.01).log_density(A, y))


@pytest.mark.parametrize("n", [1, 7, 40])
def test_complexity_grows_with_bins_and_is_a_sum_over_counts(n):
    found = log_complexity(n, 6)
    assert found[0] == 0 and (np.diff(found) > 0).all()
    two = sum(stats.binom.pmf(k, n, k / n) for k in range(n + 1))
    assert np.isclose(np.exp(found[1]), two)


def test_histogram_tree_is_the_histogram_without_features():
    y = np.random.RandomState(1).uniform(size=500)
    tree = HistogramTree(np.zeros((500, 1)), y)
    assert leaf_conditions(tree.root) == [0] and np.isneginf(tree.log_density(np.zeros((2, 1)), np.array([-5.0, 9.0]))).all()


def test_cross_entropy_sees_a_change_of_width_and_no_noise():
    rng = np.random.RandomState(2)
    A = rng.uniform(size=(1_500, 4))
    y = rng.normal(0, np.where(A[:, 2] < 0.5, 0.1, 1.0))
    tree = CrossEntropyTree(A, y, 1e-3)
    assert tree.root["feature"] == 2 and abs(tree.root["cut"] - 0.5) < 0.04
    assert leaf_conditions(CrossEntropyTree(A, rng.normal(size=1_500), 1e-3).root) == [0]
    shifted = CrossEntropyTree(A, y + 1e6, 1e-3)                              # a large mean does not eat the variance
    assert np.allclose(shifted.log_density(A, y + 1e6), tree.log_density(A, y), atol=1e-6)


def test_cross_entropy_tree_cuts_where_a_search_over_all_cuts_does():
    rng = np.random.RandomState(3)
    A = rng.uniform(size=(60, 2))
    y = np.where(A[:, 1] < 0.4, rng.normal(0, 1, 60), rng.normal(6, 0.3, 60))
    def cost(v):
        return -stats.norm(v.mean(), max(v.std(), 0.01)).logpdf(v).sum()
    tried = [(cost(y[A[:, j] < c]) + cost(y[A[:, j] >= c]), j, c) for j in (0, 1) for c in np.quantile(A[:, j], np.arange(1, 32) / 32)
             if min((A[:, j] < c).sum(), (A[:, j] >= c).sum()) >= 10]
    best = min(tried)
    tree = CrossEntropyTree(A, y, 0.01)
    assert (tree.root["feature"], tree.root["cut"]) == best[1:] and np.isclose(gaussian_length(np.array(60.0), y.sum(), (y * y).sum(), 0.01), cost(y))


def test_times_and_a_package_that_is_missing(line):
    import builtins
    import pandas as pd
    from mixlit.tables import make_folds
    A, y = line
    fold = make_folds(pd.DataFrame(A, columns=["a", "b"]), y, "line")[0]
    times = time_methods(fold, ["tree", "cross-entropy tree"], repeats=1)
    assert times.method.tolist() == ["tree", "cross-entropy tree"] and (times[["fit", "predict"]] > 0).all(axis=None) and (times.test == 80).all()
    real = builtins.__import__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "__import__", lambda name, *a, **k: (_ for _ in ()).throw(ImportError("no cde")) if name.split(".")[0] == "cde" else real(name, *a, **k))
        with pytest.raises(ImportError, match="no cde"):
            score_peer(fold, "cde mdn")


def test_critical_difference_against_the_published_table():
    # Demsar (2006), table 5a: q for 2, 5 and 10 methods at 5%
    for m, q in ((2, 1.960), (5, 2.728), (10, 3.164)):
        assert np.isclose(critical_difference(m, 20), q * np.sqrt(m * (m + 1) / 120), atol=2e-3)


def test_ranks_share_draws():
    import pandas as pd
    assert average_ranks(pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 1.0]})).to_dict() == {"b": 1.25, "a": 1.75}
