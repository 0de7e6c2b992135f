"""What the pages on Gaussian mixtures promise, tried as a stranger would: estimator checks, counterfactuals among many clusters, hostile input."""
import pickle
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from mixlit.contributions import contributions, log_densities, posteriors
from mixlit.counterfactuals import counterfactuals, dual_bound, mixture_covariance
from mixlit.gmm_explain import GMMExplainer, paper_model
from mixlit.overlap import bhattacharyya_coefficient, minimal_distinguishing_sets


def random_mixture(K=3, d=4, seed=0, spread=1.5):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(K, d, 2 * d))
    return rng.dirichlet(np.full(K, 5.0)), rng.normal(0, spread, (K, d)), A @ A.transpose(0, 2, 1) / (2 * d)


@pytest.mark.filterwarnings("ignore")                      # the checks fit on tables that no mixture suits
@parametrize_with_checks([GMMExplainer(), GMMExplainer(GaussianMixture(3, random_state=0)), GMMExplainer(BayesianGaussianMixture(n_components=2, random_state=0))])
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:the rows do not look Gaussian")      # one component, rightly refused
def test_pipeline_and_grid_search():
    X = GMMExplainer(random_mixture(3, 3, 1, 4.0)).sample(300, 0)[0]
    pipe = make_pipeline(StandardScaler(), GMMExplainer(GaussianMixture(3, random_state=0))).fit(X)
    assert pipe.predict_proba(X).shape == (300, 3)
    grid = GridSearchCV(GMMExplainer(GaussianMixture(random_state=0)), {"mixture__n_components": [1, 3]},
                        cv=KFold(3, shuffle=True, random_state=0)).fit(X)              # sample() returns the rows cluster by cluster
    assert grid.best_params_ == {"mixture__n_components": 3}
    inner = GaussianMixture(2, random_state=0)
    clone(GMMExplainer(inner)).fit(X)
    assert not hasattr(inner, "means_")


# counterfactuals among several clusters

def squeezed(seed, K, d):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(K, d, 2 * d))
    return (rng.dirichlet(np.full(K, 3.0)), rng.normal(0, 1.2, (K, d)), A @ A.transpose(0, 2, 1) / (2 * d) * rng.uniform(0.2, 1.5, (K, 1, 1))), rng.normal(0, 2.5, (8, d))


@pytest.mark.parametrize("seed", [2, 3, 4, 5, 6, 22])
def test_named_counterfactual_against_a_grid(seed):
    K = np.random.default_rng(seed).integers(3, 7)
    mixture, X = squeezed(seed, K, 2)
    axis = np.linspace(-9, 9, 721)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    owner, sd = posteriors(grid, *mixture).argmax(axis=1), np.sqrt(np.diag(mixture_covariance(*mixture)))
    for to in range(K):
        found = counterfactuals(X, *mixture, to=to)
        assert found.exact.all() and (found.bound <= found.distance * (1 + 1e-6) + 1e-9).all()
        p = posteriors(np.where(np.isnan(found.rows), 0, found.rows), *mixture)
        assert (~np.isfinite(found.distance) | (p[:, to] >= p.max(axis=1) - 1e-6)).all()
        region = grid[owner == to]
        if len(region) > 50:
            brute = np.sqrt((((X[:, None] - region) / sd) ** 2).sum(axis=2).min(axis=1))
            assert (found.distance <= brute + 1e-6).all()             # the grid never knows a shorter way
            assert np.median(brute - found.distance) < 0.03           # and no way is shorter than what is possible, but for the grid's width


@pytest.mark.parametrize("d", [3, 4])
def test_named_counterfactual_in_more_features_has_a_true_bound(d):
    mixture, X = squeezed(d, 4, d)
    rng, sd = np.random.default_rng(0), np.sqrt(np.diag(mixture_covariance(*mixture)))
    for to in range(4):
        found = counterfactuals(X, *mixture, to=to)
        assert found.exact.mean() >= 0.7
        for i in np.flatnonzero((found.distance > 0) & np.isfinite(found.distance)):
            u = rng.normal(size=(4000, d))
            shorter = X[i] + u / np.linalg.norm(u, axis=1, keepdims=True) * rng.uniform(0, 0.999 * found.bound[i], (4000, 1)) * sd
            assert (posteriors(shorter, *mixture).argmax(axis=1) != to).all()


def test_open_target_is_the_nearest_of_all_targets():
    mixture, X = squeezed(7, 4, 2)
    free, start = counterfactuals(X, *mixture), posteriors(X, *mixture).argmax(axis=1)
    each = np.array([counterfactuals(X, *mixture, to=k).distance for k in range(4)])
    each[start, np.arange(8)] = np.inf
    assert free.exact.all() and np.allclose(free.distance, each.min(axis=0), rtol=1e-3) and (free.to != free.start).all()
    assert dual_bound(np.zeros(2), np.array([-1.0, -1]), np.eye(2), np.zeros((2, 2, 2))) == 0


def test_counterfactual_within_features_that_cannot_do_it():
    mixture = (np.array([0.5, 0.5]), np.array([[0.0, 0.0], [0.0, 8.0]]), np.array([np.eye(2)] * 2))
    found = counterfactuals([[0.3, 0.0]], *mixture, to=1, features=[0])
    assert np.isinf(found.distance[0]) and np.isnan(found.rows).all() and found.exact[0]
    missing = counterfactuals([[0.3, np.nan]], *mixture, to=0, features=[1])
    assert missing.start[0] == 0 and missing.distance[0] == 0


# hostile input

X3 = np.random.default_rng(0).normal(size=(60, 3)) + 5 * (np.arange(60) % 2)[:, None]


def explainer():
    return GMMExplainer(GaussianMixture(2, random_state=0)).fit(pd.DataFrame(X3, columns=["a", "b", "c"]))


@pytest.mark.parametrize("call, error, words", [
    (lambda: GMMExplainer().predict(X3), NotFittedError, "not fitted"),
    (lambda: GMMExplainer(GaussianMixture(2)).explain_local(X3), NotFittedError, "not fitted"),
    (lambda: GMMExplainer(GaussianMixture(1, random_state=0)).fit(X3).explain_global(), ValueError, "one component"),
    (lambda: GMMExplainer(GaussianMixture(1, random_state=0)).fit(X3).counterfactual(X3), ValueError, "one component"),
    (lambda: explainer().predict(X3[:, :2]), ValueError, "X has 2 features, but GMMExplainer is expecting 3"),
    (lambda: explainer().predict(pd.DataFrame(X3, columns=["a", "b", "x"])), ValueError, "column 'c' is missing"),
    (lambda: explainer().predict(X3[0]), ValueError, "Reshape your data"),
    (lambda: explainer().predict(np.array([["1", "2", "red"]], dtype=object)), ValueError, "column 'c' holds 'red'"),
    (lambda: GMMExplainer(GaussianMixture(2)).fit(pd.DataFrame({"a": [1.0, 2], "kind": ["x", "y"]})), ValueError, "column 'kind' holds 'x'"),
    (lambda: explainer().predict([[np.inf, 0, 0]]), ValueError, "column 'a' holds inf in row 0"),
    (lambda: GMMExplainer(GaussianMixture(2)).fit(np.full((9, 2), np.nan)), ValueError, "every row has a missing value"),
    (lambda: GMMExplainer((np.array([0.5, 0.5]), np.zeros((2, 2)), np.array([np.eye(2), [[1.0, 2.0], [0.5, 1.0]]]))).predict([[0, 0]]), ValueError, "symmetric"),
    (lambda: GMMExplainer((np.array([0.5, 0.5]), np.zeros((2, 2)), np.array([np.eye(2), np.diag([1.0, 0.0])])), ["a", "b"]).predict([[0, 0]]), ValueError, "'b' has variance 0"),
    (lambda: GMMExplainer((np.ones(2) / 2, np.zeros((2, 2)))).predict([[0, 0]]), ValueError, "got 2 parts"),
    (lambda: explainer().explain_local(X3[:2]).to_text(2), ValueError, "row 2 is not among the 2"),
    (lambda: explainer().explain_local(X3[:2]).plot(7), ValueError, "row 7 is not among the 2"),
    (lambda: explainer().explain_local(X3[:2]).waterfall(0, rival="rose"), ValueError, "'rose' is not among the rivals"),
    (lambda: explainer().counterfactual(X3[:1], to="rose"), ValueError, "unknown cluster 'rose'"),
    (lambda: explainer().counterfactual(X3[:1], features=[]), ValueError, "at least one feature"),
    (lambda: explainer().counterfactual(X3[:1], metric="euclid"), ValueError, "metric"),
    (lambda: explainer().counterfactual(X3[:1], metric=np.array([[1.0, 2, 0], [0, 1, 0], [0, 0, 1]])), ValueError, "symmetric positive definite"),
    (lambda: explainer().condition({"a": 1, "b": 2, "c": 3}), ValueError, "every feature is known"),
    (lambda: explainer().marginal(["a", "a"]), ValueError, "named twice"),
    (lambda: explainer().sample(0), ValueError, "at least 1"),
    (lambda: explainer().log_odds(X3, 0, 0), ValueError, "two different clusters"),
    (lambda: explainer().shapley(X3, 1, 1), ValueError, "two different clusters"),
    (lambda: explainer().cluster_rules(np.where(X3 > 5, np.nan, X3)), ValueError, "without missing values"),
    (lambda: GMMExplainer.from_labels(np.where(X3 > 5, np.nan, X3), np.arange(60) % 2), ValueError, "has a missing value"),
    (lambda: GMMExplainer.from_labels(X3, np.arange(59) % 2), ValueError, "60 rows, y has 59"),
    (lambda: GMMExplainer.from_labels(X3, np.where(np.arange(60) % 2, 0.0, np.nan)), ValueError, "label"),
    (lambda: GMMExplainer(random_mixture(2, 2), distinguishing=0.99).explain_global(), ValueError, "distinguishing"),
])
def test_bad_input_is_named(call, error, words):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(error, match=words):
            call()


def test_gaps_in_fit_and_in_rows():
    X = X3.copy()
    X[::7, 1] = np.nan
    with pytest.warns(UserWarning, match="without 9 of 60 rows"):
        model = GMMExplainer(GaussianMixture(2, random_state=0)).fit(X)
    p = model.predict_proba(X)
    assert np.isfinite(p).all() and np.allclose(p.sum(axis=1), 1) and "is missing" in model.explain_local(X).to_text(0)
    assert model.explain_global().rules is None
    nothing = model.explain_local(np.full((1, 3), np.nan))
    assert "Nothing is known" in nothing.to_text() and np.allclose(model.predict_proba(np.full((1, 3), np.nan)), model.weights_)


def test_order_of_columns_names_missing_and_single_precision():
    model, frame = explainer(), pd.DataFrame(X3, columns=["a", "b", "c"])
    assert np.allclose(model.predict_proba(frame[["c", "a", "b"]]), model.predict_proba(frame))
    assert np.allclose(model.predict_proba(frame.assign(other=1.0)), model.predict_proba(frame))
    plain = GMMExplainer(GaussianMixture(2, random_state=0)).fit(X3)
    assert plain.explain_local(X3).to_frame().feature.unique().tolist() == ["feature 0", "feature 1", "feature 2"]
    small = GMMExplainer(GaussianMixture(2, random_state=0).fit(X3.astype(np.float32)))
    assert small.covariances_.dtype == np.float64 and np.allclose(small.predict_proba(X3), plain.predict_proba(X3), atol=1e-3)
    empty = plain.explain_local(X3[:3])
    assert len(pickle.loads(pickle.dumps(empty)).to_frame()) == 9


def test_bayesian_mixture_with_empty_components_and_many_features():
    bayes = BayesianGaussianMixture(n_components=6, weight_concentration_prior=1e-3, random_state=0, max_iter=500).fit(X3)
    told = GMMExplainer(bayes).explain_global()
    assert len(told.to_frame()) == 15 and np.isfinite(told.to_frame().bc).all()
    wide = GMMExplainer(random_mixture(10, 20, 3))
    begin = time.process_time()
    assert len(wide.explain_global().to_frame()) == 45
    assert time.process_time() - begin < 20                     # the mark is 2 s on an idle core


def test_smallest_sets_of_thirty_features():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 30, 90))
    pair = (np.zeros(30), a @ a.T / 90, rng.normal(0, 1.3, 30), b @ b.T / 90)
    found = minimal_distinguishing_sets(*pair, max_size=4)
    assert found.exact and found.sets
    for s, bc in zip(found.sets[:40], found.bc):
        assert bhattacharyya_coefficient(*pair, s) == pytest.approx(bc) and bc <= 0.05
        assert all(bhattacharyya_coefficient(*pair, [f for f in s if f != g]) > 0.05 for g in s)


def test_sums_hold_far_out_and_for_unlike_units():
    w, m, c = random_mixture(3, 5, 2)
    scale = np.array([1e-6, 1, 1e3, 1e6, 10.0])
    m, c = m * scale, c * np.outer(scale, scale)
    X = GMMExplainer((w, m, c)).sample(100, 0)[0] * 50
    split = contributions(X, m, c).sum(axis=2)
    gap = X[:, None] - m
    distance = np.einsum("nkd,kde,nke->nk", gap / scale, np.linalg.inv(c / np.outer(scale, scale)), gap / scale)
    assert np.abs(split / distance - 1).max() < 1e-9
    odds, joint = GMMExplainer((w, m, c)).log_odds(X, 0, 1), np.log(w) + log_densities(X, m, c)
    assert (np.abs(odds.total - (joint[:, 0] - joint[:, 1])) / np.maximum(1, np.abs(odds.total))).max() < 1e-9


def test_words_are_sentences():
    model = GMMExplainer.of_paper("iris")
    for text in (model.explain_global().to_text(), model.explain_local(paper_model("iris")["points"]["iris-2"]).to_text()):
        assert "nan" not in text and "  ." not in text and all(line.rstrip().endswith((".", ")")) for line in text.splitlines())
