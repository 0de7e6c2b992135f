"""Small statistical checks: tables whose truth is known, and what a fit has to find in them.

Every tolerance leaves room for another seed or another machine; the precise figures are the benchmark's.
"""
import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import normalized_mutual_info_score

from mixlit.generators import make_boxes, make_overlap, make_parity
from mixlit.xmm import XMM

MAKERS = {
    "boxes": lambda **kw: make_boxes(n_regions=5, **kw),
    "parity": make_parity,
    "overlap": make_overlap,
}


# ---------------------------------------------------------------- the truth itself


@pytest.fixture(params=MAKERS)
def toy(request):
    return MAKERS[request.param](n_samples=3000, random_state=3)


def test_features_are_uniform(toy):
    assert toy.X.shape == (3000, 10) and toy.y.shape == (3000,)
    assert len(toy.feature_names) == 10 and toy.feature_names[0] == "x1"
    assert toy.X.min() >= 0 and toy.X.max() <= 1
    for column in toy.X.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-6


def test_true_density_integrates_to_one(toy):
    grid = np.linspace(toy.y.min() - 5 * toy.y.std(), toy.y.max() + 5 * toy.y.std(), 20_001)
    for row in toy.X[:8]:
        density = np.exp(toy.log_density(np.broadcast_to(row, (len(grid), 10)), grid))
        assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-6)


def test_targets_follow_the_true_density(toy):
    """The probability integral transform of y under the truth is uniform."""
    grid = np.linspace(toy.y.min() - 5 * toy.y.std(), toy.y.max() + 5 * toy.y.std(), 4001)
    rows = np.unique(toy.region, return_index=True)[1]
    for row in rows:
        mine = toy.region == toy.region[row]
        density = np.exp(toy.log_density(np.broadcast_to(toy.X[row], (len(grid), 10)), grid))
        cumulated = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))])
        assert stats.kstest(np.interp(toy.y[mine], grid, cumulated), "uniform").pvalue > 1e-6


def test_regions_agree_with_the_rules(toy):
    covers = toy.rules.covers(toy.X)
    assert covers.any(axis=1).all()
    for region in np.unique(toy.region):
        assert len(np.unique(covers[toy.region == region], axis=0)) == 1
    assert len(np.unique(covers, axis=0)) == len(np.unique(toy.region))
    np.testing.assert_array_equal(toy.region_of(toy.X), toy.region)


@pytest.mark.parametrize("n_regions", [1, 2, 5, 10, 20])
def test_boxes_are_a_partition(n_regions):
    toy = make_boxes(n_regions=n_regions, n_samples=2000, random_state=0)
    assert len(toy.rules) == n_regions
    np.testing.assert_array_equal(toy.rules.covers(toy.X).sum(axis=1), 1)
    cut = {condition.feature for rule in toy.rules for condition in rule.conditions}
    assert len(cut) <= 4


def test_parity_hides_from_single_cuts():
    toy = make_parity(n_samples=20_000, random_state=0)
    odd = (toy.X[:, 0] > 0.5) ^ (toy.X[:, 1] > 0.5)
    for j in (0, 1):
        half = toy.X[:, j] > 0.5
        assert stats.ks_2samp(toy.y[half], toy.y[~half]).statistic < 0.05
    assert stats.ks_2samp(toy.y[odd], toy.y[~odd]).statistic > 0.3


def test_overlap_is_an_equal_mixture_of_what_holds():
    toy = make_overlap(n_samples=3000, random_state=0)
    assert len(toy.rules) == 4 and all(len(rule.conditions) == 2 for rule in toy.rules)
    covers = toy.rules.covers(toy.X)
    alone = {int(np.flatnonzero(row)[0]): i for i, row in enumerate(covers) if row.sum() == 1}
    assert len(alone) == 4
    y = np.linspace(toy.y.min(), toy.y.max(), 50)
    single = np.array([np.exp(toy.log_density(np.broadcast_to(toy.X[alone[r]], (50, 10)), y)) for r in range(4)])
    both = np.flatnonzero(covers.sum(axis=1) > 1)[:5]
    for i in both:
        density = np.exp(toy.log_density(np.broadcast_to(toy.X[i], (50, 10)), y))
        np.testing.assert_allclose(density, single[covers[i]].mean(axis=0), rtol=1e-9)


def test_generators_repeat_themselves():
    for make in MAKERS.values():
        one, same, other = (make(n_samples=50, random_state=s) for s in (1, 1, 2))
        np.testing.assert_array_equal(one.X, same.X)
        np.testing.assert_array_equal(one.y, same.y)
        assert not np.array_equal(one.y, other.y)


def test_split_is_a_partition_of_the_rows(toy):
    X_train, X_test, y_train, y_test = toy.split(test=0.2)
    assert len(X_test) == len(y_test) == 600 and len(X_train) == len(y_train) == 2400
    np.testing.assert_array_equal(np.sort(np.concatenate([y_train, y_test])), np.sort(toy.y))


# ---------------------------------------------------------------- what a fit finds


def held_out(toy, model):
    """Rules found, held-out loss above the truth (nats per row), agreement with the true regions."""
    X_train, X_test, y_train, y_test = toy.split()
    model.fit(X_train, y_train)
    above = np.mean(toy.log_density(X_test, y_test) - model.score_samples(X_test, y_test))
    mine = model.gating(X_test).argmax(axis=1)
    return len(model.rules_), above, normalized_mutual_info_score(toy.region_of(X_test), mine)


def test_boxes_are_found():
    rules, above, agreement = held_out(make_boxes(n_regions=5, n_samples=3000, random_state=0), XMM(random_state=0))
    assert 4 <= rules <= 6
    assert above < 0.08
    assert agreement > 0.9


def test_boxes_are_found_by_the_tree_alone():
    model = XMM(init="tree", random_state=0)
    rules, above, agreement = held_out(make_boxes(n_regions=5, n_samples=3000, random_state=0), model)
    assert 4 <= rules <= 6
    assert above < 0.08
    assert agreement > 0.9


def test_parity_is_found():
    toy = make_parity(n_samples=3000, random_state=0)
    rules, above, agreement = held_out(toy, XMM(random_state=0))
    assert rules > 0
    assert 3 <= rules <= 6
    assert above < 0.1
    assert agreement > 0.85


def test_overlap_is_found():
    rules, above, _ = held_out(make_overlap(n_samples=3000, random_state=0), XMM(random_state=0))
    assert 2 <= rules <= 8
    assert above < 0.15


def test_noise_has_no_rules():
    """Where y does not depend on X, BIC leaves nothing, and the density is the population's."""
    rng = np.random.default_rng(0)
    X, y = rng.random((1500, 6)), rng.normal(size=1500)
    model = XMM(random_state=0).fit(X[:1000], y[:1000])
    assert len(model.rules_) <= 1
    assert model.score(X[1000:], y[1000:]) == pytest.approx(stats.norm.logpdf(y[1000:]).mean(), abs=0.05)


def test_more_rules_than_needed_do_no_harm():
    toy = make_boxes(n_regions=3, n_samples=2000, random_state=1)
    _, few, _ = held_out(toy, XMM(n_rules=8, random_state=0))
    rules, many, _ = held_out(toy, XMM(n_rules=80, random_state=0))
    assert rules <= 5
    assert abs(many - few) < 0.05


def test_forecasts_are_calibrated():
    toy = make_boxes(n_regions=5, n_samples=3000, random_state=0)
    X_train, X_test, y_train, y_test = toy.split()
    model = XMM(init="tree", random_state=0).fit(X_train, y_train)
    assert stats.kstest(model.cdf(X_test, y_test), "uniform").pvalue > 1e-4


def test_a_pocket_is_a_rule_and_the_rest_is_otherwise():
    """One box in an otherwise even table: the box is a rule, the rest needs none, or few."""
    rng = np.random.default_rng(0)
    X = rng.random((1500, 3))
    inside = ((X > 0.3) & (X < 0.7)).all(axis=1)
    y = rng.normal(np.where(inside, 8, 0), 1)
    model = XMM(random_state=0).fit(X, y)
    box = [len(rule.conditions) == 3 and rule.n_bounds == 6 for rule in model.rules_]
    assert sum(box) == 1
    assert len(model.rules_) <= 2


