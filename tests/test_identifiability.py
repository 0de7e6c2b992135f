"""Identities of the family of equivalent mixtures, oracles for floors and binned EM, limits and bad input."""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import multivariate_normal

from mixlit.identifiability import (binned_em, bootstrap_weights, check_identifiability, choose_n_components, classifier_floor, cost_floor, density_envelope,
                                    equivalent_mixtures, family_limits, feasible_weights, neighbour_floor, profile_interval, profile_weight, smallest_eigenvalue,
                                    suprema, tail_bins)
from mixlit.inclass_examples import make_checkerboard, make_factor, make_slopes, make_two_gaussians


def tables(seed, n=7):
    """Two components on n cells, x and y: probabilities of shape (n, 2)."""
    rng = np.random.default_rng(seed)
    return [rng.dirichlet(np.ones(n), 2).T for _ in range(2)]


def own_suprema(w, f_x, f_y):
    return np.array([(f * w / (f @ w)[:, None]).max(axis=0) for f in (f_x, f_y)])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 0.95), st.floats(0, 1), st.floats(0, 1))
def test_family_keeps_the_joint_and_its_limits(seed, w1, u1, u2):
    w, (f_x, f_y) = np.array([w1, 1 - w1]), tables(seed)
    mu = own_suprema(w, f_x, f_y)
    limits = family_limits(w, mu)
    t1, t2 = limits[:, 0] + np.array([u1, u2]) * np.diff(limits, axis=1)[:, 0]
    new, g_x, g_y = equivalent_mixtures(w, f_x, f_y, t2 / (t1 + t2), np.sqrt(t1 * t2))
    assert np.allclose((g_x * new) @ g_y.T, (f_x * w) @ f_y.T, atol=1e-14)
    assert min(g_x.min(), g_y.min()) > -1e-9
    assert np.allclose([g_x.sum(axis=0), g_y.sum(axis=0)], 1)
    low, high = feasible_weights(w, mu)
    assert low - 1e-9 <= min(w1, new[0]) and max(w1, new[0]) <= high + 1e-9
    if 0 < u1 < 1 and 0 < u2 < 1:
        assert np.allclose(feasible_weights(new, np.clip(own_suprema(new, g_x, g_y), new, 1)), (low, high), atol=1e-6)
    bands = density_envelope(w, f_x, f_y, mu)
    for (below, above), g in zip(bands, (g_x, g_y)):
        assert (g >= below - 1e-9).all() and (g <= above + 1e-9).all()


def test_outside_the_rectangle_a_density_is_negative():
    w, (f_x, f_y) = np.array([0.3, 0.7]), tables(1)
    (t1, T1), (t2, T2) = family_limits(w, own_suprema(w, f_x, f_y))
    for a, b in ((0.99 * t1, T2), (1.01 * T1, t2), (t1, 0.99 * t2), (T1, 1.01 * T2)):
        g = equivalent_mixtures(w, f_x, f_y, b / (a + b), np.sqrt(a * b))[1:]
        assert min(g[0].min(), g[1].min()) < 0


def test_pure_regions_leave_a_single_point():
    assert np.allclose(feasible_weights([0.4, 0.6], np.ones((2, 2))), (0.4, 0.4))
    assert np.allclose(np.diff(family_limits([0.4, 0.6], np.ones((2, 2)))), 0)


def test_no_information_leaves_everything():
    assert feasible_weights([0.4, 0.6], [[0.4, 0.6]] * 2) == (0.0, 1.0)


@pytest.mark.parametrize("weights, w1, gamma, words", [([0.5, 0.6], 0.5, 1, "sum to 1"), ([1.0, 0.0], 0.5, 1, "positive"), ([0.2, 0.3, 0.5], 0.5, 1, "two components"),
                                                       ([0.4, 0.6], 1.0, 1, "w1 = 1.0"), ([0.4, 0.6], 0.5, 0, "gamma = 0")])
def test_family_refuses(weights, w1, gamma, words):
    with pytest.raises(ValueError, match=words):
        equivalent_mixtures(weights, *tables(0), w1, gamma)


@pytest.mark.parametrize("mu", [[[0.3, 0.9], [0.9, 0.9]], [[0.9, 1.2], [0.9, 0.9]], [0.9, 0.9]])
def test_suprema_between_weight_and_one(mu):
    with pytest.raises(ValueError, match="suprema"):
        family_limits([0.4, 0.6], mu)


def test_suprema_take_the_k_th_row():
    alpha = np.linspace(0, 1, 101)[None, :, None]
    assert np.isclose(suprema(alpha, rows=1)[0, 0], 1) and np.isclose(suprema(alpha, rows=20)[0, 0], 0.81) and suprema(alpha, rows=1000)[0, 0] == 0
    with pytest.raises(ValueError, match="shape"):
        suprema(alpha[0])


def test_conditions():
    pure = np.repeat(np.eye(3), 100, axis=0)
    assert check_identifiability(np.stack([pure, pure]), np.full(3, 1 / 3)).unique is True
    blur = 0.8 * pure + 0.2 / 3
    verdict = check_identifiability(np.stack([pure, blur]), np.full(3, 1 / 3), names=["a", "b"])
    assert verdict.unique is False and "in b component 1" in verdict.to_text() and len(verdict.to_frame()) == 6 + 12
    assert check_identifiability(np.stack([blur] * 3), np.full(3, 1 / 3)).unique is True
    assert check_identifiability(np.full((3, 50, 3), 1 / 3), np.full(3, 1 / 3)).unique is None
    assert check_identifiability(pure[None], np.full(3, 1 / 3)).unique is False
    assert check_identifiability(np.ones((2, 50, 1)), [1.0]).unique is True


def test_pairs_told_apart_without_own_regions_are_undecided():
    alpha = np.array([[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]]).repeat(50, axis=0)
    verdict = check_identifiability(np.stack([alpha, alpha]), np.full(3, 1 / 3))
    assert verdict.unique is None and "every pair" in verdict.to_text()


def test_conditions_plot(plt):
    ax = check_identifiability(np.repeat(np.eye(2), 30, axis=0)[None].repeat(2, 0), [0.5, 0.5]).plot()
    assert len(ax.get_yticks()) == 8


def test_eigenvalue_of_dependent_densities():
    rng = np.random.default_rng(0)
    a = rng.uniform(0.2, 0.8, 500)
    assert smallest_eigenvalue(np.column_stack([a, 1 - a])) > 0.01
    assert abs(smallest_eigenvalue(np.column_stack([a / 2, a / 2, 1 - a]))) < 1e-12


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_neighbour_floor_of_a_normal(correlation):
    X = multivariate_normal([0, 0], [[1, correlation], [correlation, 1]]).rvs(8000, random_state=0)
    floor = neighbour_floor(list(X.T))
    assert abs(floor.value - 0.5 * np.log(1 - correlation**2)) < 4 * floor.error
    assert np.isclose(neighbour_floor(list(np.exp(X).T)).value, floor.value)            # ranks: units do not matter


def test_floor_of_wide_variates():
    Z = make_factor(6000, 3, 0.8, random_state=0)
    floor = cost_floor(Z, variates=[[0, 1], [2]])
    C = np.corrcoef(Z.T)
    assert floor.method == "neighbours" and abs(floor.value - 0.5 * np.log(np.linalg.det(C) / np.linalg.det(C[:2, :2]))) < 4 * floor.error + 0.01


def test_classifier_floor_is_above_the_truth():
    X = make_checkerboard(3000, 0).X
    floor = classifier_floor(list(X.T), random_state=0)
    assert -np.log(2) - 3 * floor.error < floor.value < -0.4
    whole = cost_floor(np.round(X), random_state=0)
    assert whole.method == "classifier"                                                  # ties: no distances


@pytest.mark.parametrize("X, words", [(np.zeros((50, 1)), "one variate"), (np.full((50, 2), np.nan), "NaN")])
def test_floor_refuses(X, words):
    with pytest.raises(ValueError, match=words):
        cost_floor(X)
    with pytest.raises(ValueError, match="method"):
        cost_floor(np.random.default_rng(0).normal(size=(50, 2)), method="magic")


def test_binned_em_never_falls_and_predicts():
    example = make_checkerboard(5000, 0)
    found = binned_em(example.X, 2, random_state=0)
    assert (np.diff(found.history) > -1e-12).all()
    p = found.predict_proba(example.X)
    hit = (p.argmax(axis=1) == example.component).mean()
    assert np.allclose(p.sum(axis=1), 1) and max(hit, 1 - hit) > 0.95
    x = np.linspace(0.001, 3.999, 4001)
    assert np.allclose(found.component_pdf(0, x).mean(axis=0) * 4, 1, atol=0.02) and (found.component_pdf(0, np.array([9.0])) == 0).all()
    assert np.allclose(found.alpha(0, x).sum(axis=1), 1)


def test_binned_em_is_repeatable_and_leaves_the_global_state():
    X = make_two_gaussians(2000, 0).X
    np.random.seed(5)
    first = binned_em(X, random_state=1)
    assert np.array_equal(first.weights, binned_em(X, random_state=1).weights)
    state = np.random.RandomState(5)
    assert np.random.uniform() == state.uniform()


@pytest.mark.parametrize("X, words", [(np.zeros((100, 1)), "at least two variates"), (np.column_stack([np.arange(100.0), np.full(100, np.nan)]), "column 1 holds NaN"),
                                      (np.column_stack([np.arange(100.0), np.full(100, 3.0)]), "column 1 is constant"), (np.eye(2), "fewer than")])
def test_binned_em_refuses(X, words):
    with pytest.raises(ValueError, match=words):
        binned_em(X)


def test_bins_of_few_values():
    assert tail_bins(np.repeat([1.0, 2.0, 3.0], 100)).tolist() == [2.0, 3.0]


def test_number_of_components():
    choice = choose_n_components(make_checkerboard(20_000, 0).X, range(1, 5), random_state=0)
    assert choice.n_components == 2 and choice.saturation == "sharp" and "2 components" in choice.to_text()
    none = choose_n_components(np.random.default_rng(0).normal(size=(5000, 2)), range(1, 4), random_state=0)
    assert none.n_components == 1 and none.saturation == "none"
    own = choose_n_components(np.zeros((100, 2)), range(1, 4), fit=lambda A, C, rng: lambda B: np.full(len(B), -1.0 if C > 1 else 0.0))
    assert own.n_components == 2 and list(own.to_frame().columns) == ["n_components", "cost", "gain", "error"]


def test_choice_plot(plt):
    choice = choose_n_components(make_checkerboard(3000, 0).X, range(1, 4), random_state=0, floor=cost_floor(make_checkerboard(3000, 0).X))
    assert choice.plot().get_xlabel() == "number of components C" and "Floor" in choice.to_text()


def test_profile_is_wide_where_theory_says_so():
    X = make_slopes(20_000, random_state=0).X
    profile = profile_weight(X, np.linspace(0.1, 0.9, 9), n_bins=12, random_state=0)
    low, high = profile_interval(profile)
    assert low < 0.3 and high > 0.65 and profile.below_best.min() == 0


def test_bootstrap_shape_and_spread():
    weights = bootstrap_weights(make_two_gaussians(2000, 0).X, 2, 6, random_state=0)
    assert weights.shape == (6, 2) and np.allclose(weights.sum(axis=1), 1) and weights[:, 0].std() > 0.005
