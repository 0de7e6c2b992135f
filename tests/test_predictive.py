"""The predictive distribution: its sides agree with quadrature and with each other, for every kind of local density."""
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import cumulative_trapezoid, trapezoid

from mixlit.densities import Mixtures
from mixlit.predictive import PredictiveDistribution, coverage, crps, pit_values, plot_coverage, plot_pit, predictive_distribution, uniform_band
from mixlit.splines import SplineFamily
from mixlit.targets import Categoricals, GaussianMixturesND, MixedDensities
from mixlit.xmm import XMM


def gaussians(k, rng, m=2):
    return Mixtures(np.log(rng.dirichlet(np.ones(m), k)), rng.normal(0, 3, (k, m)), rng.uniform(0.3, 1.5, (k, m)))


def splines(k, rng):
    y = rng.gamma(2.0, 1.5, 400) - 3
    family = SplineFamily(0.05)
    target = family.group(y)
    hold = np.stack([y < 1, y > -2, y > 0][:k]).astype(float)
    return family.fit(target, np.stack([np.bincount(target.code, h, minlength=len(target)) for h in hold]))


def densities(kind, k, rng):
    if kind == "gmm":
        return gaussians(k, rng)
    if kind == "nsf":
        return splines(k, rng)
    if kind == "mixed":
        return MixedDensities(np.log(rng.dirichlet(np.ones(3), k)), np.array([0.0, 2.0]), gaussians(k, rng))
    return Categoricals(np.log(rng.dirichlet(np.ones(6), k)), np.array([0.0, 1, 2, 3, 5, 8]))


def example(kind, n=40, seed=0):
    """Rows in which one to three of three components are at work, with a background."""
    rng = np.random.RandomState(seed)
    held = rng.uniform(size=(n, 3)) < 0.5
    held[~held.any(axis=1), 0] = True
    row, component = np.nonzero(held)
    everything = densities(kind, 3, rng)
    return PredictiveDistribution(row, component, 1 / held.sum(axis=1)[row], everything, np.array([0.02, 0.0, 0.1]), everything[[1]], n)


KINDS = ("gmm", "nsf", "mixed", "categorical")


@pytest.mark.parametrize("kind", ("gmm", "nsf"))
def test_density_distribution_and_moments_are_those_of_quadrature(kind):
    d = example(kind)
    y = np.linspace(-30, 30, 24_001)
    f, F = d[:4].grid(y), d[:4].grid(y, "cdf")
    assert np.allclose(trapezoid(f, y), 1, atol=1e-5) and np.abs(cumulative_trapezoid(f, y, initial=0) - F).max() < 1e-3
    mean = trapezoid(y * f, y)
    assert np.allclose(mean, d[:4].mean(), atol=2e-3)
    assert np.allclose(trapezoid((y - mean[:, None]) ** 2 * f, y), d[:4].var(), rtol=2e-3)


def test_atoms_and_density_together_hold_all():
    d = example("mixed")[:4]
    y = np.linspace(-20, 20, 16_001) + 1e-4                                # beside the atoms
    f, p = d.grid(y), d.probabilities()
    assert np.allclose(trapezoid(f, y) + p.sum(axis=1), 1, atol=1e-6)
    assert np.allclose(trapezoid(y * f, y) + p @ d.atoms, d.mean(), atol=1e-4)
    assert np.allclose(d.prob(0, 0), p[:, 0]) and np.allclose(d.cdf(2.0) - d.cdf(2.0 - 1e-9), p[:, 1], atol=1e-8)


def test_probabilities_of_classes_give_moments_and_steps():
    d = example("categorical")
    p = d.probabilities()
    assert np.allclose(p.sum(axis=1), 1) and np.allclose(p @ d.atoms, d.mean())
    assert np.allclose(p @ d.atoms**2 - d.mean() ** 2, d.var())
    assert np.allclose(d.grid(d.atoms, "cdf"), p.cumsum(axis=1)) and (d.pdf(4.0) == 0).all() and (d.mode() == d.atoms[p.argmax(axis=1)]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_quantile_is_the_smallest_value_that_reaches_q(kind):
    d = example(kind)
    q = np.array([0.001, 0.05, 0.3, 0.5, 0.77, 0.999])[:, None]
    y = d.ppf(q)
    step = 1e-4 * d.std()
    assert y.shape == (6, 40) and (d.cdf(y) >= q - 1e-12).all() and (d.cdf(y - step) < q).all()
    some = d.sample(random_state=0)
    assert np.allclose(d.ppf(d.cdf(some)), some, rtol=1e-9, atol=1e-9)
    assert np.isnan(d.ppf(np.array([-0.1, 1.1, np.nan])[:, None])).all()
    for row in (0, 7):
        assert np.allclose(d[row].ppf(q)[:, 0], y[:, row], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_follow_the_distribution_and_intervals_hold_them(kind):
    d = example(kind)
    y = d.sample(200, random_state=0)
    assert y.shape == (200, 40)
    many = d[np.tile(np.arange(40), 200)]
    assert stats.kstest(pit_values(many, y.ravel(), 1), "uniform").pvalue > 1e-3
    low, high = d.interval(0.8)
    assert (d.prob(low, high) >= 0.8 - 1e-12).all() and ((y >= low) & (y <= high)).mean() > 0.78
    if kind != "categorical":
        assert (d.cdf(low) >= 0.1 - 1e-12).all() and (kind == "mixed" or np.allclose(d.prob(low, high), 0.8))


@pytest.mark.parametrize("kind", KINDS)
def test_highest_density_region_holds_its_share_and_is_no_longer(kind):
    d = example(kind)
    for row in range(5):
        region = np.array(d.hdr(0.8, row))
        held = sum(d[row].prob(a, b).item() for a, b in region)
        assert held > 0.797 and (kind in ("categorical", "mixed") or held < 0.803)
        low, high = d[row].interval(0.8)
        assert (np.diff(region) >= 0).all() and (kind == "categorical" or np.diff(region).sum() < high - low + 0.01)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(1e-9, 1 - 1e-9))
def test_quantiles_of_any_mixture_undo_the_distribution(seed, q):
    d = example("gmm", 10, seed)
    assert np.allclose(d.cdf(d.ppf(q)), q, rtol=1e-9, atol=1e-14)


def test_values_broadcast_as_in_scipy():
    d = example("gmm")
    y = np.linspace(-3, 3, 7)
    assert d.pdf(0.0).shape == (40,) and d.pdf(y[:, None]).shape == (7, 40) and d.pdf(np.zeros((2, 7, 1))).shape == (2, 7, 40)
    assert np.allclose(d.grid(y), d.pdf(y[:, None]).T) and len(d[3]) == 1 and len(d[np.arange(40) > 30]) == 9
    assert (d.cdf(np.inf) == 1).all() and (d.cdf(-np.inf) == 0).all() and np.isnan(d.pdf(np.nan)).all() and (d.pdf(np.inf) == 0).all()
    assert (d.ppf(0) == -np.inf).all() and (d.ppf(1) == np.inf).all() and d[:0].pdf([]).shape == (0,)
    with pytest.raises(ValueError, match="does not fit 40 rows"):
        d.pdf(y)
    with pytest.raises(ValueError, match="within 0 and 1"):
        d.interval(95)


def test_pairs_that_are_no_distribution_are_refused():
    d = example("gmm", 3)
    make = lambda row, w, n: PredictiveDistribution(np.array(row), np.zeros(len(row), dtype=int), np.array(w), d.densities, d.background, d.population, n)
    for row, w, n, says in (([0, 2], [1.0, 1.0], 3, "row 1 has no component"), ([0, 0], [0.5, 0.4], 1, "sum to 0.9"), ([1, 0], [1.0, 1.0], 2, "ordered"),
                            ([0, 0], [1.5, -0.5], 1, "positive"), ([0, 1], [1.0, np.nan], 2, "row 1")):
        with pytest.raises(ValueError, match=says):
            make(row, w, n)


def test_crps_is_the_closed_form_of_the_normal_and_of_a_coin():
    normal = Mixtures(np.zeros((1, 1)), np.array([[2.0]]), np.array([[3.0]]))
    d = PredictiveDistribution(np.arange(5), np.zeros(5, dtype=int), np.ones(5), normal, np.zeros(1), normal, 5)
    y = np.array([-4.0, 0, 2, 3, 9])
    z = (y - 2) / 3
    closed = 3 * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - np.pi**-0.5)
    assert np.allclose(crps(d, y, 2_000), closed, atol=1e-3)
    coin = Categoricals(np.log([[0.25, 0.75]]), np.array([0.0, 1.0]))
    d = PredictiveDistribution(np.arange(2), np.zeros(2, dtype=int), np.ones(2), coin, np.zeros(1), coin, 2)
    assert np.allclose(crps(d, [0, 1]), [0.75**2, 0.25**2], atol=1e-3)          # the Brier score


def test_several_targets_have_marginals_and_no_quantiles():
    rng = np.random.RandomState(0)
    both = GaussianMixturesND(np.log(rng.dirichlet(np.ones(2), 2)), rng.normal(size=(2, 2, 2)), np.tril(rng.uniform(0.5, 1, (2, 2, 2, 2))))
    d = PredictiveDistribution(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([0.3, 0.7, 1.0]), both, np.array([0.1, 0.0]), both[[0]], 2)
    y = d.sample(40_000, random_state=0)
    for row in (0, 1):
        assert np.allclose(np.cov(y[:, row].T), d.covariance()[row], atol=0.06) and np.allclose(y[:, row].mean(axis=0), d.mean()[row], atol=0.03)
    assert np.allclose(np.diagonal(d.covariance(), axis1=1, axis2=2), d.var())
    one = d.marginal(1)
    assert stats.kstest(one[0].cdf(y[:5_000, 0, 1][:, None])[:, 0], "uniform").pvalue > 1e-3 and np.allclose(one.var(), d.var()[:, 1])
    for method in (lambda: d.cdf([0.0, 0.0]), lambda: d.ppf(0.5), d.median, d.hdr):
        with pytest.raises(NotImplementedError, match="marginal"):
            method()
    with pytest.raises(ValueError, match="does not fit 2 rows"):
        d.pdf(0.0)


@pytest.fixture(scope="module")
def table():
    rng = np.random.RandomState(0)
    X = pd.DataFrame({"a": rng.uniform(size=600), "b": rng.choice(["u", "v"], 600)})
    return X, rng.normal(np.where(X.b == "u", 0.0, 3 * X.a), 0.3)


@pytest.mark.parametrize("options", ({}, {"expert": "linear"}, {"conditional": False}))
def test_a_fitted_model_agrees_with_its_distribution(table, options):
    X, y = table
    model = XMM(init="tree", random_state=0, **options).fit(X, y)
    d = predictive_distribution(model, model._table(X))
    assert np.allclose(d.logpdf(y), model.score_samples(X, y)) and np.allclose(d.cdf(y), model.cdf(X, y)) and np.allclose(d.mean(), model.predict(X))
    assert np.allclose(d[::50].cdf(d[::50].ppf(0.9)), 0.9)


def test_classes_are_spoken_of_by_name(table):
    X, y = table
    names = np.where(y > 1, "high", np.where(y < -0.2, "low", "middle"))
    model = XMM(density="categorical", init="tree", random_state=0).fit(X, names)
    d = predictive_distribution(model, model._table(X))
    assert np.allclose(d.logpdf(names), model.score_samples(X, names)) and (d.mode() == model.predict(X)).all()
    assert list(d.to_frame()) == ["high", "low", "middle", "mode"] and set(d.ppf(0.5)) <= set(names) and set(d.sample(random_state=0)) <= set(names)
    assert stats.kstest(pit_values(d, names, 0), "uniform").pvalue > 1e-3
    with pytest.raises(ValueError, match="'other' is no class"):
        d.pdf("other")
    for method in (d.mean, d.std, lambda: crps(d, names)):
        with pytest.raises(ValueError, match="classes with names"):
            method()


@pytest.mark.parametrize("kind", KINDS)
def test_pictures(plt, kind):
    d = example(kind)
    y = d.sample(random_state=0)
    frame = coverage(d, y, [0.5, 0.9])
    assert list(frame) == ["nominal", "held", "se", "width"] and plot_coverage(frame).get_ylabel() == "held minus promised"
    assert plot_pit(pit_values(d, y, 0), bins=10).get_ylim()[1] >= uniform_band(40, 10)[1]
    for of in ("pdf", "cdf"):
        assert d.plot(3, of=of, name="bill").get_xlabel() == "bill"


TABLE = pd.DataFrame({"a": np.linspace(0, 1, 240), "b": np.arange(240) % 7})
NATIVE = {"bool": TABLE.a.to_numpy() > 0.5, "object bool": (TABLE.a.to_numpy() > 0.5).astype(object), "nullable": pd.Series(TABLE.a > 0.5, dtype="boolean"),
          "int category": pd.Series(np.where(TABLE.a > 0.5, 30, 4)).astype("category"), "text": np.where(TABLE.a > 0.5, "yes", "no")}


@pytest.mark.parametrize("name", NATIVE)
def test_classes_are_what_the_target_holds(name):
    y = NATIVE[name]
    model = XMM(density="auto", init="tree", random_state=0).fit(TABLE, y)
    for m in (model, XMM.from_dict(model.to_dict())):
        d = m.pred_dist(TABLE)
        assert d.classes == m.classes_ and (d.mode() == m.predict(TABLE)).all() and d.mode().dtype == m.predict(TABLE).dtype
        assert list(d.to_frame().columns) == [*m.classes_, "mode"] and (d[:5].to_frame().iloc[:, :-1].to_numpy() == d.probabilities()[:5]).all()
        draws = d.sample(4, random_state=0)
        assert draws.shape == (4, 240) and set(draws.ravel().tolist()) == set(m.classes_) == set(d[::-1].sample(3, 1).ravel().tolist())
        assert set(d.ppf(0.99)) <= set(m.classes_) and d.pdf(m.classes_[1]).shape == (240,)
        assert np.allclose(d.logpdf(np.asarray(y)), m.score_samples(TABLE, y)) and np.allclose(d.probabilities(), m.class_probabilities(TABLE))
        assert np.isfinite(pit_values(d, np.asarray(y), 0)).all() and (coverage(d, np.asarray(y)).held > 0.4).all()
        with pytest.raises(ValueError, match="is no class of the target; the classes are"):
            d.pdf("maybe")
        ticks = [t.get_text() for t in d.plot().get_xticklabels()]
        assert set(ticks) <= {str(c) for c in m.classes_}


def test_densities_without_marginals_do_not_send_you_there():
    y = np.random.RandomState(0).normal(size=(300, 2))
    model = XMM(density="nsf", init="tree", random_state=0, max_rules=1).fit(y[:, :1], y)
    d = model.pred_dist(y[:, :1])
    with pytest.raises(NotImplementedError, match=r"ppf is not defined for 2 targets; these densities know no marginal either; look at draws of target j, sample\(1000\)\[..., j\]"):
        d.ppf(0.5)
    assert d.sample(10, 0)[..., 1].shape == (10, 300)
    with pytest.raises(NotImplementedError, match=r"take marginal\(j\).ppf"):
        XMM(init="tree", random_state=0).fit(y[:, :1], y).pred_dist(y[:, :1]).ppf(0.5)
