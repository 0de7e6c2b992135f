"""The peers are densities, and know what they are said to know."""
import numpy as np
import pytest
from scipy import stats

from mixlit.peers import ForestDensity, HistogramTree, average_ranks, critical_difference, fit_cvae, fit_kmn, leaf_conditions, log_complexity


@pytest.fixture(scope="module")
def line():
    rng = np.random.RandomState(0)
    A = rng.normal(size=(400, 2))
    return A, 3 + 2 * A[:, 0] + rng.normal(0, 0.5, 400)


@pytest.mark.parametrize("fit", [fit_kmn, fit_cvae, lambda A, y, scale: ForestDensity(A, y, scale, n_trees=40), lambda A, y, scale: HistogramTree(A, y)],
                         ids=["kmn", "cvae", "forest", "histogram tree"])
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


def test_critical_difference_against_the_published_table():
    # Demsar (2006), table 5a: q for 2, 5 and 10 methods at 5%
    for m, q in ((2, 1.960), (5, 2.728), (10, 3.164)):
        assert np.isclose(critical_difference(m, 20), q * np.sqrt(m * (m + 1) / 120), atol=2e-3)


def test_ranks_share_draws():
    import pandas as pd
    assert average_ranks(pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 1.0]})).to_dict() == {"b": 1.25, "a": 1.75}
