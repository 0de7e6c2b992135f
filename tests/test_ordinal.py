"""Ordinal experts: probabilities, protocol, seeds, and the search on a table with known truth."""
import json

import numpy as np
import pytest

from mixlit.ordinal import OrderedFit, Ordinals, find_ordinal_rules, interval_slopes, ordinal_model
from mixlit.refinement import row_log_likelihood

NAMES, LEVELS = ["x", "noise", "group"], [None, None, ("a", "b")]


def make_table(n=800, seed=0):
    """The score is 1.5 x in group a and -x in b; thresholds -1, 0.5 and 2."""
    rng = np.random.RandomState(seed)
    Z = np.column_stack([rng.normal(size=n), rng.normal(size=n), rng.choice(2, n)])
    latent = np.where(Z[:, 2] == 0, 1.5, -1.0) * Z[:, 0] + rng.logistic(size=n)
    return Z, 3.0 + (latent[:, None] > [-1, 0.5, 2]).sum(axis=1)


@pytest.fixture(scope="module")
def found():
    Z, y = make_table()
    return Z, y, *find_ordinal_rules(Z, y, NAMES, LEVELS)


def test_truth_comes_back(found):
    Z, y, model, stages = found
    assert len(model.low) == 2 and sum(row["kept"] for row in stages) == 1
    for r, c in enumerate(model.mixtures.coef):
        assert set(model.family.basis.feature[c != 0]) == {0}
        grid = np.array([[-1.0, 0, 0], [1.0, 0, 0]])
        f = model.mixtures.formula_at(np.full(2, r), grid)
        slope = 1.5 if Z[model.covers[r]][0, 2] == 0 else -1.0
        assert (f[1] - f[0]) / 2 == pytest.approx(slope, abs=0.3)
    assert -row_log_likelihood(model).mean() < 1.25


def test_protocol(found):
    Z, y, model, _ = found
    d = model.mixtures
    which, p = np.arange(len(Z)) % 2, None
    p = d.probs_at(which, Z)
    total = sum(np.exp(d.log_pdf_at(which, np.full(len(Z), v), Z)) for v in d.atoms)
    assert np.allclose(total, 1) and np.allclose(p.sum(axis=1), 1)
    assert np.allclose(d.log_pdf(y, Z)[which, np.arange(len(Z))], d.log_pdf_at(which, y, Z))
    assert np.allclose(d.mean_at(which, Z), p @ d.values)
    assert np.allclose(d.cdf_at(which, np.full(len(Z), 100.0), Z), 1) and (d.variance_at(which, Z) > 0).all()
    assert np.isneginf(d.log_pdf_at(which, np.full(len(Z), 3.5), Z)).all()
    x = np.tile(Z[:1], (20_000, 1))
    draws = d.sample(np.zeros(20_000, dtype=int), np.random.RandomState(0), x)
    assert draws.mean() == pytest.approx(d.mean_at([0], Z[:1])[0], abs=0.05)
    moved = d.rescaled(10.0, 2.0)
    assert np.allclose(moved.mean_at(which, Z), 10 + 2 * d.mean_at(which, Z))
    again = Ordinals.from_dict(json.loads(json.dumps(d.to_dict())))
    assert np.array_equal(again.log_pdf(y, Z), d.log_pdf(y, Z)) and again.describe("q") == d.describe("q")
    assert len(Ordinals.join(d, d[:1])) == 3


def test_no_class_is_impossible(found):
    Z, y, model, _ = found
    values = np.array(model.family.values)
    assert len(values) > 4 and np.isfinite(model.population.log_pdf(values)).all()


def test_noise_gets_no_formula():
    rng = np.random.RandomState(3)
    Z = np.column_stack([rng.normal(size=(500, 2)), rng.choice(2, 500)])
    model, _ = find_ordinal_rules(Z, rng.choice(4, 500).astype(float), NAMES, LEVELS)
    assert not model.mixtures.coef.any()


def test_newton_reaches_the_top_and_survives_separation():
    rng = np.random.RandomState(4)
    X = rng.normal(size=(300, 2))
    place = np.searchsorted([-1.0, 1.0], X[:, 0])
    fit = OrderedFit(X, place, np.ones(300), np.array([-1.0, 1.0]), np.zeros(2))
    fit.climb(np.arange(2), 0.5, 50, 1e-12)
    g, _, _, g_beta, _ = fit.system(np.arange(2))
    assert np.isfinite(fit.beta).all() and np.abs(g).max() < 1e-3 and np.abs(g_beta - 0.5 * fit.beta).max() < 1e-3


def test_odd_tables():
    Z, y = make_table(200)
    Z[::7, 0] = np.nan
    model, _ = find_ordinal_rules(Z, y, NAMES, LEVELS, "linear", weight=np.ones(200))
    same, _ = find_ordinal_rules(Z, y, NAMES, LEVELS, "linear")
    assert np.isclose(row_log_likelihood(model).mean(), row_log_likelihood(same).mean())
    with pytest.raises(ValueError, match="none of the 2 classes"):
        ordinal_model(Z, y, NAMES, LEVELS, values=[3.0, 4.0])
    assert np.allclose(interval_slopes(np.array([-np.inf]), np.array([np.inf])), 0)
