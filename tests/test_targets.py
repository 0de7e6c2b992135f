"""Classes, point masses and several targets: what holds for any such distribution, however it was fitted."""
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from sklearn.mixture import GaussianMixture

from mixlit.densities import GaussianFamily, Mixtures, automatic_min_scale
from mixlit.targets import (
    CategoricalFamily,
    Categoricals,
    GaussianMixturesND,
    MixedDensities,
    MixedFamily,
    MultivariateFamily,
    TargetCells,
    choose_density,
    class_price,
    class_values,
    encode_classes,
    find_values,
    plot_joint,
)
from mixlit.xmm import XMM


def weights(target, hold, weight=None):
    weight = np.ones(len(target.code)) if weight is None else weight
    return np.stack([np.bincount(target.code, h * weight, minlength=len(target)) for h in hold])


def example(kind, n=300, seed=0):
    """A target, a family for it, and two rules that share some rows."""
    rng = np.random.RandomState(seed)
    hold = np.stack([rng.uniform(size=n) < 0.5, np.arange(n) < n // 2]).astype(float)
    if kind == "categorical":
        y = rng.poisson(6, n).astype(float)
        family = CategoricalFamily.from_values(y)
    elif kind == "mixed":
        y = np.where(rng.uniform(size=n) < 0.4, 0.0, rng.normal(4, 1, n))
        family = MixedFamily((0.0,), GaussianFamily(0.05, prior_rows=2.0))
    else:
        y = np.concatenate([rng.normal(0, 1, (n // 2, 2)), rng.normal(3, 0.5, (n - n // 2, 2))]) @ np.array([[1, 0.5], [0, 1]])
        family = MultivariateFamily.from_values(y)
    target = family.group(y)
    return y, family, target, family.fit(target, weights(target, hold)), hold


KINDS = ["categorical", "mixed", "gmm-nd"]


@pytest.mark.parametrize("kind", KINDS)
def test_family_protocol(kind):
    """All kinds answer the same calls with matching shapes and values."""
    y, family, target, fitted, hold = example(kind)
    which = np.arange(len(y)) % 2
    assert len(fitted) == 2 and len(fitted[[0]]) == 1 and len(fitted[np.array([False, True])]) == 1
    assert fitted.log_pdf(y).shape == (2, len(y))
    np.testing.assert_allclose(fitted.log_pdf_at(which, y), fitted.log_pdf(y)[which, np.arange(len(y))])
    table = family.table(target, fitted)
    assert table.shape == (2, len(target)) and (table > 0).all()
    if kind == "categorical":
        np.testing.assert_allclose(table[:, target.code], np.exp(fitted.log_pdf(y)))
    assert target.count.sum() == pytest.approx(len(y)) and target.code.max() < len(target)
    for one in (family.start(target, weights(target, hold)), family.update(target, weights(target, hold), fitted), family.pooled(fitted, 0, 1, 150.0, 150.0)):
        assert len(one) == 2 and np.isfinite(one.log_pdf(y)).all() and family.n_parameters(one).shape == (2,)
    population = family.population(target)
    assert len(population) == 1 and np.isfinite(population.log_pdf(y)).all()
    assert len(fitted.describe()) == 2 and all(fitted.describe())
    low, high = fitted.visible_range()
    assert (np.asarray(low) < np.asarray(high)).all()
    draws = fitted.sample(which, np.random.RandomState(0))
    assert draws.shape == y.shape and np.isfinite(fitted.log_pdf(draws)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip_join_and_units(kind):
    """JSON keeps every digit; joining and selecting are inverse; a change of units goes there and back."""
    y, _, _, fitted, _ = example(kind)
    again = type(fitted).from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert fitted.to_dict()["kind"] == kind
    assert np.array_equal(again.log_pdf(y), fitted.log_pdf(y)) and again.describe() == fitted.describe()
    joined = type(fitted).join(fitted[[1]], fitted[[0]])
    np.testing.assert_allclose(joined.log_pdf(y), fitted.log_pdf(y)[::-1])
    there = fitted.rescaled(-7.3, 0.37)
    np.testing.assert_allclose(there.rescaled(7.3 / 0.37, 1 / 0.37).log_pdf(y), fitted.log_pdf(y), atol=1e-9)
    assert np.isfinite(there.log_pdf(-7.3 + 0.37 * y)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_repeated_rows(kind):
    """A row of weight 3 is three rows."""
    y, family, _, _, hold = example(kind, n=60)
    weight = np.random.RandomState(1).randint(1, 4, len(y)).astype(float)
    a, b = family.group(y, max_groups=10**6, weight=weight), family.group(np.repeat(y, weight.astype(int), axis=0), max_groups=10**6)
    fit_a = family.fit(a, weights(a, hold, weight))
    fit_b = family.fit(b, weights(b, np.repeat(hold, weight.astype(int), axis=1)))
    if kind != "gmm-nd":                                       # there the two starts see other groups
        np.testing.assert_allclose(fit_a.log_pdf(y), fit_b.log_pdf(y), atol=1e-6)
    assert a.count.sum() == pytest.approx(weight.sum())
    np.testing.assert_allclose(np.average(a.mean, axis=0, weights=a.count), np.average(y, axis=0, weights=weight))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-5, 15), min_size=1, max_size=60), st.integers(0, 10**6))
def test_classes_sum_to_one_and_none_is_impossible(values, seed):
    y = np.array(values, dtype=float)
    family = CategoricalFamily.from_values(y)
    target = family.group(y)
    W = np.random.RandomState(seed).uniform(size=(3, 1)) * target.count
    W[2] = 0.0                                                  # a rule without rows
    fitted = family.fit(target, W)
    np.testing.assert_allclose(np.exp(fitted.log_probs).sum(axis=1), 1)
    assert np.isfinite(fitted.log_probs).all() and np.isfinite(family.population(target).log_probs).all()
    assert (family.n_parameters(fitted) >= 0).all() and family.n_parameters(fitted)[2] == 0
    np.testing.assert_allclose(fitted.log_probs[2], family.population(target).log_probs[0], atol=1e-9)
    assert set(y) <= set(family.values) and np.isfinite(fitted.log_pdf(np.arange(y.min(), y.max() + 1))).all() or len(set(y)) < 3 or np.ptp(y) > 4 * len(set(y))
    np.testing.assert_allclose(fitted.cdf_at(np.arange(3), np.full(3, 1e3)), 1)
    assert (fitted.cdf_at(np.arange(3), np.full(3, -1e3)) == 0).all()


@pytest.mark.parametrize("kind", ["categorical", "mixed"])
def test_cdf_mean_and_variance_agree_with_samples(kind):
    y, _, _, fitted, _ = example(kind)
    draws = fitted.sample(np.zeros(40_000, dtype=int), np.random.RandomState(0))
    for v in np.quantile(y, [0.1, 0.3, 0.5, 0.8]):
        assert (draws <= v).mean() == pytest.approx(fitted.cdf_at(np.array([0]), np.array([v]))[0], abs=0.01)
    assert draws.mean() == pytest.approx(fitted.mean_at(np.array([0]))[0], abs=0.05)
    assert draws.var() == pytest.approx(fitted.variance_at(np.array([0]))[0], rel=0.05)


def test_price_of_classes():
    """Free probabilities for full classes, nothing for absent ones, more for single rows of rare classes."""
    q = np.array([0.4, 0.3, 0.299, 0.001])
    assert class_price(np.array([[4e5, 3e5, 3e5, 0]]), 2 * q)[0] == pytest.approx(2, abs=1e-3)
    assert class_price(np.zeros((1, 4)), 2 * q)[0] == 0
    assert class_price(np.array([[5, 5, 5, 1.0]]), 2 * q)[0] - class_price(np.array([[5, 5, 6, 0.0]]), 2 * q)[0] > 3


def test_values_that_are_no_class():
    y = np.repeat([1.0, 2.0, 3.0, 6.0], 25)
    fitted = CategoricalFamily.from_values(y).population(CategoricalFamily.from_values(y).group(y))
    log_p = fitted.log_pdf(np.array([4.0, 8.0, 0.0, 9.0, 2.5, np.nan]))[0]
    assert np.isfinite(log_p[:3]).all() and (log_p[3:] == -np.inf).all() and (log_p[:3] < np.log(0.01)).all()
    with pytest.raises(ValueError, match=r"value 2\.5, which is none of the"):
        CategoricalFamily.from_values(y).group(np.array([1.0, 2.5]))
    with pytest.raises(ValueError, match="must be a positive number"):
        CategoricalFamily.from_values(y, prior_rows=0.0)
    assert class_values(np.array([0.1, 7.0, 1000.0])).tolist() == [0.1, 7, 1000] and class_values(np.array([0, 5, 1_000])).tolist() == [0, 5, 1_000]
    assert class_values(np.array([1.0, 2, 3, 50]), np.array([1.0, 1, 1, 0])).max() == 4


@pytest.mark.parametrize("y", [["b", "a", "c", "a"], pd.Series(["b", "a", "c", "a"]), pd.Categorical(["b", "a", "c", "a"]), pd.Series(["b", "a", "c", "a"], dtype="string")])
def test_labels(y):
    codes, labels = encode_classes(y)
    assert codes.tolist() == [1, 0, 2, 0] and labels == ("a", "b", "c")
    family = CategoricalFamily.from_values(codes, labels)
    assert family.population(family.group(codes)).describe()[0].startswith("47% a")
    assert choose_density(y).density == "categorical" and choose_density(y).labels == labels


def test_missing_label():
    with pytest.raises(ValueError, match="missing in row 1"):
        encode_classes(["a", None, "b"])


def test_mixed_integrates_to_one():
    y, family, target, fitted, _ = example("mixed")
    grid = np.linspace(-12, 20, 64_001) + 1e-4
    np.testing.assert_allclose(np.exp(fitted.log_probs[:, 0]) + trapezoid(np.exp(fitted.log_pdf(grid)), grid, axis=1), 1, atol=1e-4)
    np.testing.assert_allclose(fitted.cdf_at(np.array([0]), np.zeros(1)) - fitted.cdf_at(np.array([0]), np.array([-1e-6])), np.exp(fitted.log_probs[0, 0]), atol=1e-3)
    with pytest.raises(ValueError, match="take categorical densities"):
        family.group(np.zeros(10))
    two = MixedFamily((0.0, 5.0), GaussianFamily(0.1)).group(np.array([0, 5, 1.0, 2.0, 0]))
    assert two.code.tolist() == [0, 1, 2, 3, 0] and two.count.tolist() == [2, 1, 1, 1]


def test_choose_density():
    rng = np.random.RandomState(0)
    assert choose_density(rng.normal(size=500)).density == "gmm"
    assert choose_density(rng.randint(0, 5, 500)).density == "categorical"
    assert choose_density(np.array([True, False])).density == "categorical"
    assert choose_density(np.where(rng.uniform(size=500) < 0.3, -1.5, rng.normal(size=500))).atoms == (-1.5,)
    assert choose_density(np.round(rng.normal(size=300), 1)).density == "gmm"                # rounding makes no atoms
    assert choose_density(rng.normal(size=(50, 2))).density == "gmm" and choose_density(rng.randint(0, 3, (60, 1))).density == "categorical"
    assert choose_density(np.zeros(50)).density == "gmm"
    assert "3 distinct integers in 60 rows" in choose_density(np.arange(60) % 3, "grade").reason


def test_several_targets_against_scikit_learn():
    """The same EM, started from the same place, ends in the same place."""
    y, _, _, _, _ = example("gmm-nd")
    fitted = MultivariateFamily(1e-6, n_components=2, prior_rows=0.0).fit(TargetCells.from_values(y, 10**6), np.ones((1, len(y))), n_iter=500)
    peer = GaussianMixture(2, tol=1e-10, max_iter=2_000, reg_covar=1e-12, weights_init=np.exp(fitted.log_weights[0]), means_init=fitted.means[0],
                           precisions_init=np.linalg.inv(fitted.covariances[0])).fit(y)
    assert fitted.log_pdf(y)[0].mean() == pytest.approx(peer.score(y), abs=1e-3)
    peer.weights_, peer.means_, peer.covariances_ = np.exp(fitted.log_weights[0]), fitted.means[0], fitted.covariances[0]
    peer.precisions_cholesky_ = np.swapaxes(np.linalg.inv(fitted.cholesky[0]), 1, 2)
    np.testing.assert_allclose(fitted.log_pdf(y)[0], peer.score_samples(y))


def test_one_of_several_targets_is_the_plain_kind():
    rng = np.random.RandomState(3)
    y = rng.normal(size=200)
    floor = automatic_min_scale(y)
    one = GaussianFamily(floor, n_components=1).fit(GaussianFamily(floor).group(y), np.ones((1, 200)))
    nd = MultivariateFamily(floor, n_components=1, prior_rows=0.0).fit(TargetCells.from_values(y[:, None]), np.ones((1, 200)))
    np.testing.assert_allclose(nd.log_pdf(y[:, None]), one.log_pdf(y))
    np.testing.assert_allclose(nd.marginal(0).cdf_at(np.zeros(1, dtype=int), np.array([0.3])), one.cdf_at(np.zeros(1, dtype=int), np.array([0.3])))


def test_several_targets_stay_proper():
    """Equal targets, few rows, a rule without rows: finite densities, no error."""
    rng = np.random.RandomState(0)
    y = rng.normal(size=(40, 1)) * np.ones((1, 3))
    family = MultivariateFamily.from_values(y)
    target = family.group(y)
    hold = np.zeros((3, 40))
    hold[0], hold[1, :2] = 1, 1
    fitted = family.fit(target, weights(target, hold))
    assert np.isfinite(fitted.log_pdf(y)).all()
    floor = np.array(family.min_scale)
    values = np.linalg.eigvalsh(fitted.covariances / np.outer(floor, floor))
    assert values[np.isfinite(fitted.log_weights)].min() > 1 - 1e-6
    with pytest.raises(NotImplementedError, match="marginal"):
        fitted.cdf_at(np.zeros(40, dtype=int), y)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 200), st.integers(1, 3), st.sampled_from([2, 16, 64, 10**6]), st.integers(0, 100))
def test_cells_keep_moments(n, p, max_groups, seed):
    rng = np.random.RandomState(seed)
    Y, w = np.round(rng.normal(size=(n, p)), 1), rng.uniform(0.5, 2, n)
    cells = TargetCells.from_values(Y, max_groups, w)
    assert len(cells) <= max(max_groups, 1) and (cells.count > 0).all()
    np.testing.assert_allclose(cells.count @ cells.mean, w @ Y, atol=1e-9)
    np.testing.assert_allclose(np.einsum("g,gij->ij", cells.count, cells.second), (Y * w[:, None]).T @ Y, atol=1e-9)


def test_find_values_and_stacks_of_nothing():
    assert find_values(np.zeros(0), np.array([1.0])).tolist() == [-1]
    none = Categoricals(np.zeros((0, 3)), np.arange(3.0), None, np.zeros(0))
    assert Categoricals.from_dict(none.to_dict()).log_pdf(np.zeros(4)).shape == (0, 4) and none.describe() == []
    assert len(MixedDensities(np.zeros((1, 2)), np.zeros(1), Mixtures(np.zeros((1, 1)), np.zeros((1, 1)), np.ones((1, 1))))[:0]) == 0


def test_plot_joint():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    y, _, _, fitted, _ = example("gmm-nd")
    ax = plot_joint(fitted, ("mass", "length"), y)
    assert ax.get_xlabel() == "mass" and ax.get_ylabel() == "length" and len(ax.texts) == 2
    three = GaussianMixturesND(np.zeros((1, 1)), np.zeros((1, 1, 3)), np.eye(3)[None, None])
    assert plot_joint(three, targets=(0, 2)) is not None
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize("density", ["auto", "categorical"])
def test_names_that_hardly_come_twice_are_no_classes(density):
    y = np.random.RandomState(0).normal(size=300)
    X = y[:, None]
    with pytest.raises(ValueError, match=r"300 different names in 300 rows.*numbers, not names.*astype\(float\)"):
        XMM(density=density, init="tree").fit(X, y.astype(str))
    with pytest.raises(ValueError, match="group the values"):
        XMM(density=density, init="tree").fit(X, np.array([f"row {i}" for i in range(300)]))
    with pytest.raises(ValueError, match="numbers, not names"):
        encode_classes(y.astype(object))
    assert encode_classes([f"{i}" for i in range(100)] * 2)[0].max() == 99
    assert len(encode_classes([f"{i}" for i in range(100)])[1]) == 100            # few rows: each its own class is allowed


@pytest.mark.parametrize("y", [pd.array([True, False, None, True], dtype="boolean"), pd.Series([True, False, None, True], dtype="boolean"),
                               pd.Series(["a", "b", None, "a"], dtype="string"), np.array([True, False, np.nan, True], dtype=object)])
def test_missing_names_are_named_by_row(y):
    with pytest.raises(ValueError, match="target is missing in row 2"):
        encode_classes(y)
    with pytest.raises(ValueError, match="target is missing in row 2"):
        XMM(density="auto", init="tree").fit(np.arange(4.0)[:, None], y)
