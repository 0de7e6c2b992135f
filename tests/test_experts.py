"""Experts: densities around formulas, their units, odd values, seeds, and the search on a table with known truth."""
import json

import numpy as np
import pytest
from scipy.integrate import trapezoid

from mixlit.experts import (Basis, ExpertFamily, Experts, Fit, Residuals, column_prices, count_levels, find_expert_rules, fit_residuals, formula_text,
                            honest_objective, make_basis, pivot, rounded_formula, weighted_fit)
from mixlit.refinement import objective, row_log_likelihood

NAMES = ["x", "z", "group"]
LEVELS = [None, None, ("a", "b", "c")]


def make_table(n=600, seed=0):
    """y follows 3 x with a bend at 5 and an offset for b; a tenth of the rows lies 10 to 30 higher."""
    rng = np.random.RandomState(seed)
    Z = np.column_stack([rng.uniform(0, 10, n), rng.normal(size=n), rng.choice(3, n)])
    y = 1 + 3 * Z[:, 0] - 2 * np.maximum(Z[:, 0] - 5, 0) + 4 * (Z[:, 2] == 1) + rng.normal(0, 0.5, n)
    return Z, y + (rng.uniform(size=n) < 0.1) * rng.uniform(10, 30, n)


@pytest.fixture(scope="module")
def fitted():
    Z, y = make_table()
    family = ExpertFamily(make_basis(Z, NAMES, LEVELS), 0.05)
    target = family.group(y, Z)
    W = np.stack([np.ones(len(y)), Z[:, 0] < 5]).astype(float)
    return Z, y, family, target, W, family.fit(target, W)


def test_finds_the_formula(fitted):
    experts = fitted[-1]
    basis = experts.basis
    intercept, slopes = rounded_formula(experts[[0]])
    terms = {basis.names[basis.feature[c]] for c in slopes}
    assert terms == {"x", "group"}
    x = np.array([[0.0, 0, 0], [5.0, 0, 0], [10.0, 0, 0], [5.0, 0, 1]])
    assert np.allclose(experts.formula_at(np.zeros(4, int), x), [1, 16, 21, 20], atol=0.6)             # no knot lies exactly at the bend
    assert experts.residual.scales[0].min() == pytest.approx(0.5, rel=0.2)


@pytest.mark.parametrize("growth", [0.0, 0.7])
def test_density_is_one(fitted, growth):
    Z, y, *_, experts = fitted
    experts = Experts(**{**vars(experts), "growth": np.full(2, growth), "spread": np.maximum(experts.spread, 1.0)})
    grid = np.linspace(-150, 250, 80_001)
    for r in (0, 1):
        for row in Z[:3]:
            which, x = np.full(len(grid), r), np.tile(row, (len(grid), 1))
            density = np.exp(experts.log_pdf_at(which, grid, x))
            assert trapezoid(density, grid) == pytest.approx(1, abs=1e-5)
            mean = trapezoid(grid * density, grid)
            assert mean == pytest.approx(experts.mean_at([r], row[None])[0], abs=1e-3)
            assert trapezoid((grid - mean) ** 2 * density, grid) == pytest.approx(experts.variance_at([r], row[None])[0], rel=1e-3)
            assert np.allclose(np.diff(experts.cdf_at(which, grid, x)) / np.diff(grid), (density[1:] + density[:-1]) / 2, atol=1e-4)
    assert np.allclose(experts.log_pdf(y, Z)[1], experts.log_pdf_at(np.ones(len(y), int), y, Z))


def test_printed_formula_is_the_prediction(fitted):
    Z, y, *_, experts = fitted
    basis = experts.basis
    for r in (0, 1):
        intercept, slopes = rounded_formula(experts[[r]])
        raw = np.column_stack([basis(Z, [c])[:, 0] * basis.scale[c] + basis.centre[c] for c in slopes])
        assert np.abs(intercept + raw @ [*slopes.values()] - experts.formula_at(np.full(len(Z), r), Z)).max() < 0.3 * experts.residual.scales[r].min()
        assert formula_text(experts[[r]]) in experts.describe("y")[r]


def test_rescaled_and_stored(fitted):
    Z, y, *_, experts = fitted
    moved = experts.rescaled(-7.0, 2.5)
    assert np.allclose(moved.log_pdf(2.5 * y - 7, Z), experts.log_pdf(y, Z) - np.log(2.5))
    which = np.arange(len(y)) % 2
    assert np.allclose(moved.mean_at(which, Z), 2.5 * experts.mean_at(which, Z) - 7)
    again = Experts.from_dict(json.loads(json.dumps(moved.to_dict())))
    assert np.array_equal(again.log_pdf(y, Z), moved.log_pdf(y, Z)) and again.describe() == moved.describe()
    assert moved.to_dict()["kind"] == "experts"
    joined = Experts.join(experts[[1]], experts[[0]])
    assert np.array_equal(joined.log_pdf(y, Z), experts.log_pdf(y, Z)[::-1])
    assert np.array_equal(experts.sample(which, np.random.RandomState(3), Z), experts.sample(which, np.random.RandomState(3), Z))


def test_missing_and_unseen_values(fitted):
    Z, *_, experts = fitted
    median, usual = np.median(Z[:, 0]), experts.basis.typical[2]
    odd = np.array([[np.nan, 0, usual], [5, 0, 99], [5, 0, np.nan]])
    plain = np.array([[median, 0, usual], [5, 0, usual], [5, 0, usual]])
    assert np.array_equal(experts.formula_at([0, 0, 0], odd), experts.formula_at([0, 0, 0], plain))
    with pytest.raises(ValueError, match="depend on the features"):
        experts.log_pdf_at([0], np.zeros(1))


def test_update_keeps_terms_and_is_near_a_fixed_point(fitted):
    Z, y, family, target, W, experts = fitted
    again = family.update(target, W, experts)
    assert np.array_equal(again.coef != 0, experts.coef != 0)
    assert np.abs(again.formula(target.X[:, 1:]) - experts.formula(target.X[:, 1:])).max() < 0.3
    assert np.array_equal(family.n_parameters(again), (experts.coef != 0).sum(axis=1) + 3 * np.isfinite(experts.residual.log_weights).sum(axis=1) - 1 + (experts.growth != 0))


def test_integer_weights_are_repeated_rows():
    Z, y = make_table(200)
    basis = make_basis(Z, NAMES, LEVELS, "linear")
    family = ExpertFamily(basis, 0.05)
    times = np.random.RandomState(1).randint(1, 4, 200)
    X = np.column_stack([np.ones(200), basis(Z)])
    fits = Fit(X, y, times.astype(float)), Fit(np.repeat(X, times, axis=0), np.repeat(y, times), np.ones(times.sum()))
    for fit in fits:
        fit.chosen = np.arange(3)
        weighted_fit(fit, fit.weight, fit.y, family, select=False)
    assert np.allclose(fits[0].beta, fits[1].beta)


def test_pivot_twice_is_nothing():
    A = np.cov(np.random.RandomState(0).normal(size=(5, 50)))
    B = A.copy()
    pivot(B, 2)
    assert np.allclose(B[2, 2], -1 / A[2, 2])
    pivot(B, 2, -1.0)
    assert np.allclose(A, B)


def test_prices_and_levels():
    feature = np.array([0, 0, 0, 0, 1])
    price, count = column_prices(feature, [1], 100, 8)
    assert np.allclose(price, 0.5 * np.log(100) + np.log([2, 8, 2, 2, 8])) and count.tolist() == [1, 1, 1, 1, 0]
    assert count_levels([None, 0, 3, ("a", "b")]) == [0, 0, 3, 2]
    with pytest.raises(ValueError, match="'quadratic'"):
        make_basis(np.zeros((3, 1)), ["x"], [None], "quadratic")


def test_constant_columns_and_tiny_samples():
    Z = np.column_stack([np.full(12, 3.0), np.arange(12.0)])
    basis = make_basis(Z, ["c", "x"], [None, None])
    assert 0 not in basis.feature
    none = make_basis(Z[:, :1], ["c"], [None])
    assert len(none) == 0
    y = np.random.RandomState(0).normal(size=12)
    for b in (basis, none):
        family = ExpertFamily(b, 0.01)
        expert = family.fit(family.group(y, Z[:, : len(b.names)]), np.ones((1, 12)))
        assert np.isfinite(expert.log_pdf(y, Z[:, : len(b.names)])).all()
    assert np.isfinite(fit_residuals(Residuals.group([y[:1], y[:2]], [np.ones(1), np.ones(2)]), 0.1, 2.0, 3).log_pdf(y)).all()
    assert Basis.from_dict(json.loads(json.dumps(none.to_dict()))).names == ("c",)


def test_search_finds_two_regimes_and_repeats_itself():
    rng = np.random.RandomState(5)
    Z = np.column_stack([rng.uniform(size=800), rng.normal(size=800), rng.choice(3, 800)])
    Z[rng.uniform(size=800) < 0.05, 1] = np.nan
    y = np.where(Z[:, 2] == 2, 5 - 8 * Z[:, 0], 2 + 4 * Z[:, 0]) + rng.normal(0, 0.3, 800)
    y = (y - y.mean()) / y.std()
    runs = [find_expert_rules(Z, y, NAMES, LEVELS, "linear") for _ in range(2)]
    model, stages = runs[0]
    assert sorted(model.covers.sum(axis=1)) == sorted([(Z[:, 2] == 2).sum(), (Z[:, 2] != 2).sum()])
    assert {model.mixtures.basis.names[j] for j in model.mixtures.basis.feature[(model.mixtures.coef != 0).any(axis=0)]} == {"x"}
    assert sum(row["kept"] for row in stages) == 1 and np.isfinite(row_log_likelihood(model)).all()
    assert honest_objective(model) <= objective(model)
    assert np.array_equal(runs[1][0].table, model.table) and runs[1][1] == stages


def test_noise_needs_no_rule():
    rng = np.random.RandomState(2)
    model, stages = find_expert_rules(rng.normal(size=(300, 3)), rng.normal(size=300), NAMES, [None] * 3)
    terms = (model.mixtures.coef != 0).sum()
    assert len(model.low) <= 1 and terms == 0
