"""Spline densities: properties that hold for any target, and the limits."""
import json

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import trapezoid

from mixlit.splines import MultivariateSplineFamily, SplineFamily, Splines, SplinesND

TARGETS = {
    "normal": stats.norm(2, 3), "lognormal": stats.lognorm(1.0), "uniform": stats.uniform(-1, 2), "heavy": stats.t(2), "exponential": stats.expon(),
}


def rules_of(target, n_rules, seed):
    return np.random.RandomState(seed).dirichlet(np.ones(n_rules), len(target)).T * target.count


@pytest.fixture(scope="module", params=list(TARGETS))
def fitted(request):
    y = TARGETS[request.param].rvs(800, random_state=np.random.RandomState(0))
    family = SplineFamily(0.01 * y.std())
    target = family.group(y)
    W = rules_of(target, 4, 1)
    return y, family, target, W, family.fit(target, W)


def test_integrates_to_one_and_agrees_with_its_cdf(fitted):
    y, _, _, _, d = fitted
    low, high = d.quantile(np.array([1e-9, 1 - 1e-9])).T
    for r in range(len(d)):
        grid = np.unique(np.concatenate([np.linspace(low[r], high[r], 40_001), d.quantile(np.linspace(1e-6, 1 - 1e-6, 20_001))[r]]))
        assert trapezoid(np.exp(d.log_pdf(grid)[r]), grid) == pytest.approx(1, abs=1e-5)
    which, q = np.arange(4), np.array([0.03, 0.4, 0.6, 0.99])
    assert d.cdf_at(which, d.quantile(q)[which, which]) == pytest.approx(q)
    assert np.all(np.diff(d.cdf(np.sort(y)), axis=1) >= 0)


def test_no_density_is_higher_than_the_floor_allows(fitted):
    y, family, _, _, d = fitted
    assert np.exp(d.log_pdf(np.linspace(y.min(), y.max(), 100_001))).max() <= stats.norm.pdf(0) / family.min_scale


def test_tails_are_normal(fitted):
    _, _, _, _, d = fitted
    far = d.offset + 50 * d.scale
    assert d.log_pdf_at(np.arange(4), far) == pytest.approx(stats.norm.logpdf(far, d.offset, d.scale))
    assert np.isfinite(d.log_pdf_at(np.arange(4), d.offset - 1e6 * d.scale)).all()


def test_update_does_not_lower_the_penalised_likelihood(fitted):
    _, family, target, W, d = fitted
    plain = SplineFamily(family.min_scale, prior_rows=0.0)
    log_likelihood = lambda e: (W * np.log(family.table(target, e))).sum(axis=1)
    assert np.all(log_likelihood(plain.update(target, W, d)) >= log_likelihood(d) - 1e-6)
    again = family.update(target, W, d)
    assert np.all(log_likelihood(again) >= log_likelihood(d) - 2) and len(again) == 4


def test_fit_is_the_same_each_time_and_for_each_rule_alone(fitted):
    _, family, target, W, d = fitted
    assert np.array_equal(family.fit(target, W).u, d.u)
    alone = family.fit(target, W[[2]])
    assert alone.log_pdf(target.mean) == pytest.approx(d[[2]].log_pdf(target.mean), abs=1e-6)


def test_units(fitted):
    y, family, target, W, d = fitted
    other = SplineFamily(1e3 * family.min_scale)
    moved = other.fit(other.group(5e4 + 1e3 * y), W)
    off = moved.log_pdf(5e4 + 1e3 * y) - d.rescaled(5e4, 1e3).log_pdf(5e4 + 1e3 * y)
    assert np.abs(off.mean()) < 0.02                        # not exact: rounding decides where the last steps of the maximiser end


def test_storage_and_join(fitted):
    y, _, _, _, d = fitted
    stored = Splines.from_dict(json.loads(json.dumps(d.to_dict())))
    joined = Splines.join(d[:1], d[1:], stored)
    assert np.array_equal(stored.log_pdf(y), d.log_pdf(y))
    assert np.array_equal(joined.log_pdf(y), np.vstack([d.log_pdf(y)] * 2))
    assert d.to_dict()["kind"] == "nsf" and len(d.describe()) == 4


def test_draws_and_moments(fitted):
    _, _, _, _, d = fitted
    z = np.sort(d.sample(np.zeros(100_000, int), np.random.RandomState(0)))
    assert stats.kstest(z, lambda v: d.cdf_at(np.zeros(len(v), int), v)).pvalue > 1e-3
    assert abs(z.mean() - d.mean_at(np.array([0]))[0]) < 5 * z.std() / np.sqrt(len(z))


@pytest.mark.parametrize("y", [np.zeros(20), np.array([1.0]), np.array([0.0, 1.0]), np.repeat([0.0, 1e6], 10), np.array([0.0] * 50 + [1e9])])
def test_degenerate_targets_stay_finite(y):
    family = SplineFamily(0.1)
    target = family.group(y)
    d = family.fit(target, np.stack([target.count, 0 * target.count, 0.3 * target.count]))
    assert np.isfinite(d.log_pdf(y)).all() and np.isfinite(d.mean()).all() and np.isfinite(d.variance()).all()
    assert np.isfinite(family.update(target, target.count[None], d[:1]).log_pdf(y)).all()


def test_no_rules():
    family = SplineFamily(0.1)
    target = family.group(np.arange(30.0))
    d = family.fit(target, np.zeros((0, 30)))
    assert len(d) == 0 and d.log_pdf(np.arange(5.0)).shape == (0, 5) and len(family.update(target, np.zeros((0, 30)), d)) == 0
    assert Splines.from_dict(d.to_dict()).log_pdf(np.arange(5.0)).shape == (0, 5)


def test_two_and_three_targets():
    rng = np.random.RandomState(0)
    first = rng.normal(size=400)
    y = np.column_stack([first, first + rng.exponential(size=400), rng.uniform(size=400) * (1 + first**2)])
    for p in (2, 3):
        family = MultivariateSplineFamily(0.05)
        target = family.group(y[:, :p])
        W = np.stack([np.ones(400), first > 0, np.zeros(400)]).astype(float)
        d = family.fit(target, W, n_iter=30)
        assert np.isfinite(d.log_pdf(target.y)).all() and len(d[:2]) == 2
        assert family.table(target, d)[2] == pytest.approx(family.table(target, d)[0])          # without rows: the population
        stored = SplinesND.from_dict(json.loads(json.dumps(d.to_dict())))
        assert np.array_equal(SplinesND.join(stored, d[:1]).log_pdf(target.y)[[0, 3]], d.log_pdf(target.y)[[0, 0]])
        draws = d.sample(np.zeros(20_000, int), rng)
        assert draws.shape == (20_000, p) and np.allclose(draws.mean(axis=0), y[:, :p].mean(axis=0), atol=0.2)
        assert family.update(target, W[:0], d[:0]).log_pdf(target.y).shape == (0, 400)
        assert len(family.pooled(d, 0, 1, 5, 9)) == 3 and (family.n_parameters(d) > 0).all()
