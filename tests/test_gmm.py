"""Explanations of Gaussian mixtures: oracles, invariants, bad input and the paper's numbers."""
import json
import pickle
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from mixlit.contributions import (comprehensiveness, contributions, feature_groups, log_densities, log_odds_parts, posteriors, shapley_exact, shapley_sampled,
                                  sufficiency)
from mixlit.counterfactuals import condition_mixture, counterfactuals, mixture_covariance, shortest_change
from mixlit.gmm_explain import GMMExplainer, bhattacharyya_coefficient, cluster_weights, corr_max_contributions, paper_model
from mixlit.gmm_paper import LOCAL, local_table, other_numbers, overlap_table
from mixlit.overlap import bhattacharyya_matrix, minimal_distinguishing_sets, misclassification_overlap

FIXTURES = json.loads((ROOT / "tests" / "gmm_fixtures.json").read_text(encoding="utf-8"))


def random_mixture(K=3, d=4, seed=0, spread=1.5):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(K, d, 2 * d))
    return rng.dirichlet(np.full(K, 5.0)), rng.normal(0, spread, (K, d)), A @ A.transpose(0, 2, 1) / (2 * d)


def rows_of(mixture, n=200, seed=0):
    return GMMExplainer(mixture).sample(n, seed)[0]


# the paper's numbers, from the fixtures

@pytest.mark.parametrize("name", ["iris", "swiss_banknotes"])
def test_shipped_models_are_the_fixtures(name):
    for key in ("weights", "means", "covariances"):
        assert np.array_equal(paper_model(name)[key], FIXTURES[name][key])
    assert paper_model(name)["held_out_rows"] == FIXTURES[name]["test_rows"]


def fixture(name):
    return (np.array(FIXTURES[name][key]) for key in ("weights", "means", "covariances"))


def test_iris_triples():
    _, m, c = fixture("iris")
    found = [bhattacharyya_coefficient(m[0], c[0], m[2], c[2], f) for f in combinations(range(4), 3)]
    assert np.allclose(found, [0.166, 0.235, 0.103, 0.165], atol=6e-4)


def test_banknotes_singles_pairs_and_weights():
    w, m, c = fixture("swiss_banknotes")
    bc = lambda *f: bhattacharyya_coefficient(m[0], c[0], m[1], c[1], f)
    assert np.allclose([bc(j) for j in range(6)], [0.984, 0.833, 0.768, 0.396, 0.748, 0.109], atol=6e-4)
    assert np.allclose([bc(3, 5), bc(1, 5)], [0.0174, 0.0996], atol=6e-5)
    assert np.allclose(cluster_weights(w, c), [0.416, 0.584], atol=5e-4)


@pytest.mark.parametrize("x, pair, probability, distances", [
    ([5.6, 3.0, 4.5, 1.5], (2, 0), 0.6165, (7.64, 6.87)), ([6.1, 2.8, 4.7, 1.2], (2, 0), 0.7026, (10.20, 10.20)),
    ([6.3, 3.3, 4.7, 1.6], (2, 0), 0.9829, (4.64, 11.02)), ([7.2, 3.2, 6.0, 1.8], (0, 2), 0.9999, (4.31, 25.30))])
def test_iris_points(x, pair, probability, distances):
    w, m, c = fixture("iris")
    row = np.array([x])
    assert posteriors(row, w, m, c)[0, pair[0]] == pytest.approx(probability, abs=6e-5)
    assert np.allclose(contributions(row, m, c)[0].sum(axis=1)[list(pair)], distances, atol=6e-3)


@pytest.mark.parametrize("table", [12, 13, 14, 15])
def test_full_rows_of_local_tables(table):
    full = local_table(table).query("dropped == ''")
    assert (full.verdict == "differs").sum() <= (1 if table == 12 else 0)


@pytest.mark.parametrize("table, most", [(17, 1), (18, 2), (19, 0), (20, 2)])
def test_banknote_tables(table, most):
    assert (local_table(table).verdict == "differs").sum() <= most


@pytest.mark.parametrize("table", [5, 7, 9])
def test_overlap_tables_hold(table):
    assert (overlap_table(table).verdict != "differs").all()


def test_other_numbers():
    rest = other_numbers()
    assert (rest[rest.table == "8"].verdict.iloc[3:] != "differs").all()
    assert rest[rest.what == "F4 F6"].ours.item() == pytest.approx(0.126, abs=5e-4)


# overlap

def test_bhattacharyya_is_the_integral():
    w, m, c = random_mixture(2, 2, 1)
    t = np.stack(np.meshgrid(*[np.linspace(-12, 12, 601)] * 2), axis=-1)
    root = np.sqrt(multivariate_normal.pdf(t, m[0], c[0]) * multivariate_normal.pdf(t, m[1], c[1])).sum() * (24 / 600) ** 2
    assert bhattacharyya_coefficient(m[0], c[0], m[1], c[1]) == pytest.approx(root, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_bhattacharyya_never_grows(seed):
    _, m, c = random_mixture(2, 6, seed)
    order, last = np.random.default_rng(seed).permutation(6), 1.0
    for s in range(1, 7):
        new = bhattacharyya_coefficient(m[0], c[0], m[1], c[1], order[:s])
        assert new <= last + 1e-12
        last = new


def test_bhattacharyya_of_affine_maps_and_permutations():
    _, m, c = random_mixture(2, 4, 2)
    B, shift = np.random.default_rng(0).normal(size=(4, 4)), np.arange(4.0)
    base = bhattacharyya_coefficient(m[0], c[0], m[1], c[1])
    moved = bhattacharyya_coefficient(B @ m[0] + shift, B @ c[0] @ B.T, B @ m[1] + shift, B @ c[1] @ B.T)
    assert moved == pytest.approx(base) and bhattacharyya_coefficient(m[0], c[0], m[1], c[1], [3, 1, 0, 2]) == pytest.approx(base)
    assert bhattacharyya_coefficient(m[0], c[0], m[0], c[0]) == pytest.approx(1) and bhattacharyya_coefficient(m[0], c[0], m[1], c[1], []) == 1
    assert np.allclose(bhattacharyya_matrix(m, c)[0, 1], base)


@pytest.mark.parametrize("seed, threshold", [(0, 0.05), (1, 0.2), (2, 0.5), (3, 0.01)])
def test_minimal_sets_are_all_of_them(seed, threshold):
    _, m, c = random_mixture(2, 8, seed, spread=1.5)
    pair = (m[0], c[0], m[1], c[1])
    hit = [set(f) for s in range(1, 9) for f in combinations(range(8), s) if bhattacharyya_coefficient(*pair, f) <= threshold]
    naive = sorted(tuple(sorted(a)) for a in hit if not any(b < a for b in hit))
    found = minimal_distinguishing_sets(*pair, threshold)
    assert sorted(found.sets) == naive and found.exact
    assert np.allclose(found.bc, [bhattacharyya_coefficient(*pair, f) for f in found.sets])


def test_search_says_when_it_is_cut_short():
    equal = (np.zeros(30), np.eye(30), np.full(30, 1.75), np.eye(30))
    cut = minimal_distinguishing_sets(*equal, limit=50_000)
    assert not cut.exact and cut.max_size < 8 and cut.sets == []
    beam = minimal_distinguishing_sets(np.zeros(40), np.eye(40), np.full(40, 1.75), np.eye(40))
    assert not beam.exact and beam.sets and all(len(s) == 8 for s in beam.sets)


@pytest.mark.parametrize("d", [1, 2, 4])
def test_misclassification_is_a_frequency(d):
    w, m, c = random_mixture(3, d, d)
    omega, rng = misclassification_overlap(w, m, c), np.random.default_rng(0)
    for k in range(3):
        X = rng.multivariate_normal(m[k], c[k], 100_000)
        joint = np.log(w) + log_densities(X, m, c)
        assert np.allclose(np.delete(omega[:, k], k), np.delete((joint > joint[:, [k]]).mean(axis=0), k), atol=0.01)
    assert np.array_equal(omega, misclassification_overlap(w, m, c))


# contributions

def test_contributions_sum_and_follow_units():
    w, m, c = random_mixture(3, 5, 3)
    X, scale = rows_of((w, m, c)), np.array([1, 10, 0.1, 5, 1000.0])
    parts = contributions(X, m, c)
    distance = np.stack([np.einsum("nd,de,ne->n", X - a, np.linalg.inv(s), X - a) for a, s in zip(m, c)], axis=1)
    assert np.abs(parts.sum(axis=2) - distance).max() < 1e-9 * max(1, distance.max()) and (parts >= 0).all()
    assert np.allclose(contributions(X * scale, m * scale, c * np.outer(scale, scale)), parts)
    order = [4, 2, 0, 1, 3]
    assert np.allclose(contributions(X[:, order], m[:, order], c[:, order][:, :, order]), parts[:, :, order])
    naive = [[corr_max_contributions(x, m[k], c[k]) for k in range(3)] for x in X[:5]]
    assert np.allclose(naive, parts[:5])


def test_log_odds_parts_sum():
    w, m, c = random_mixture(3, 5, 4)
    X = rows_of((w, m, c))
    X[::3, 1] = np.nan
    joint = np.log(w) + log_densities(X, m, c)
    odds = log_odds_parts(X, w, m, c, 2, 0)
    assert np.abs(odds.total - (joint[:, 2] - joint[:, 0])).max() < 1e-9
    assert np.allclose(np.nansum(odds.features, axis=1) + odds.spread + odds.weight, odds.total)


def test_densities_against_scipy_and_margins():
    w, m, c = random_mixture(3, 4, 5)
    X = rows_of((w, m, c), 30)
    assert np.allclose(log_densities(X, m, c)[:, 1], multivariate_normal.logpdf(X, m[1], c[1]))
    gone = X.copy()
    gone[:, [0, 2]] = np.nan
    assert np.allclose(log_densities(gone, m, c)[:, 1], multivariate_normal.logpdf(X[:, [1, 3]], m[1, [1, 3]], c[1][np.ix_([1, 3], [1, 3])]))
    assert np.allclose(GMMExplainer((w, m, c)).predict_proba(gone), GMMExplainer((w, m, c)).marginal([1, 3]).predict_proba(X[:, [1, 3]]))


def test_shapley_is_the_definition_and_the_bound_holds():
    w, m, c = random_mixture(2, 5, 6)
    X = rows_of((w, m, c), 4)
    log_v = lambda S: np.subtract(*(np.log(w) + log_densities(X, m, c, np.tile(np.isin(np.arange(5), S), (4, 1)))).T)
    naive = np.zeros(X.shape)
    from itertools import permutations
    for o in permutations(range(5)):
        for i, j in enumerate(o):
            naive[:, j] += (log_v(list(o[:i + 1])) - log_v(list(o[:i]))) / 120
    exact = shapley_exact(X, w, m, c, 0, 1)
    value, bound = shapley_sampled(X, w, m, c, 0, 1, 500, random_state=1)
    assert np.allclose(exact, naive) and (np.abs(value - exact) <= bound).all()


def test_twelve_features_are_exact_thirteen_are_sampled():
    for d in (12, 13):
        model = GMMExplainer(random_mixture(2, d, 7))
        X = model.sample(3, 0)[0]
        value, bound = model.shapley(X, 0, 1, n_orders=50)
        odds = model.log_odds(X, 0, 1)
        assert np.allclose(value.sum(axis=1), odds.total - odds.weight) and (bound > 0).all() == (d == 13)


def test_metrics_by_hand():
    w, m, c = random_mixture(2, 3, 8)
    X = rows_of((w, m, c), 10)
    k, chosen = posteriors(X, w, m, c).argmax(axis=1), np.tile([True, False, False], (10, 1))
    at = np.arange(10)
    assert np.allclose(comprehensiveness(X, chosen, k, w, m, c), posteriors(X, w, m, c)[at, k] - posteriors(X[:, 1:], w, m[:, 1:], c[:, 1:, 1:])[at, k])
    assert np.allclose(sufficiency(X, chosen, k, w, m, c), posteriors(X[:, :1], w, m[:, :1], c[:, :1, :1])[at, k] - posteriors(X, w, m, c)[at, k])


def test_groups_of_seeds():
    model = GMMExplainer.of_paper("seeds")
    assert all(("area", "perimeter", "compactness") in g for g in model.feature_groups().values())
    assert feature_groups(np.eye(4)) == []


# mixtures

@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_every_covariance_type(kind):
    X = rows_of(random_mixture(3, 3, 9), 300)
    fitted = GaussianMixture(3, covariance_type=kind, random_state=0, max_iter=500).fit(X)
    explainer = GMMExplainer(fitted)
    assert np.allclose(explainer.predict_proba(X), fitted.predict_proba(X)) and np.allclose(explainer.score_samples(X), fitted.score_samples(X))
    assert np.array_equal(explainer.predict(X), fitted.predict(X)) and explainer.score(X) == pytest.approx(fitted.score(X))
    # a Bayesian mixture is read by its fitted parameters; its own probabilities also average over them, so only nearly the same
    bayes = BayesianGaussianMixture(n_components=3, covariance_type=kind, random_state=0, max_iter=500).fit(X)
    assert np.abs(GMMExplainer(bayes).predict_proba(X) - bayes.predict_proba(X)).mean() < 0.05


def test_equal_clusters_merge():
    w, m, c = random_mixture(2, 3, 10)
    X = rows_of((w, m, c), 50)
    split = GMMExplainer((np.array([w[0] / 2, w[0] / 2, w[1]]), m[[0, 0, 1]], c[[0, 0, 1]]))
    p = split.predict_proba(X)
    assert np.allclose(p[:, 0] + p[:, 1], GMMExplainer((w, m, c)).predict_proba(X)[:, 0])
    assert split.explain_global().to_frame().bc.iloc[-1] == pytest.approx(1)


def test_conditional_mixture():
    w, m, c = random_mixture(3, 4, 11)
    x = rows_of((w, m, c), 1)[0]
    known = np.where([True, False, False, True], x, np.nan)
    smaller = GMMExplainer((w, m, c)).condition(known)
    joint, margin = (GMMExplainer((w, m, c)).score_samples(v[None])[0] for v in (x, known))
    assert smaller.score_samples(x[None, [1, 2]])[0] == pytest.approx(joint - margin)
    assert np.allclose(condition_mixture(np.full(4, np.nan), w, m, c)[1], m)
    named = GMMExplainer((w, m, c), feature_names=list("abcd")).condition({"b": 1.0})
    assert named._parts().names == ["a", "c", "d"]


# counterfactuals

@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("features", [None, [0, 2]])
def test_counterfactual_is_the_shortest(seed, features):
    w, m, c = random_mixture(2, 3, seed, spread=1.0)
    X = rows_of((w, m, c), 6, seed)
    found, sd = counterfactuals(X, w, m, c, features=features), np.sqrt(np.diag(mixture_covariance(w, m, c)))
    free = [0, 1, 2] if features is None else features
    for i in range(6):
        def full(u, i=i):
            x = X[i].copy()
            x[free] += u * sd[free]
            return x
        k, l = found.to[i], found.start[i]
        g = lambda u: np.subtract(*(np.log(w) + log_densities(full(u)[None], m, c))[0, [1 - l, l]])
        tries = [minimize(lambda u: u @ u, start, method="SLSQP", constraints={"type": "ineq", "fun": g}, options={"maxiter": 300})
                 for start in np.random.default_rng(i).normal(0, 2, (12, len(free)))]
        good = [t.fun for t in tries if t.success and g(t.x) > -1e-6]
        if np.isfinite(found.distance[i]):
            assert found.distance[i] == pytest.approx(np.sqrt(min(good)), abs=2e-3)
            joint = np.log(w) + log_densities(found.rows[[i]], m, c)
            assert abs(joint[0, k] - joint[0, l]) < 1e-6 and found.exact[i]
        else:
            assert not good


def test_counterfactual_corner_cases():
    ridge = shortest_change(np.array([-1.0]), np.array([[0.0, 0.3]]), np.array([2.0, 1.0]))
    value = -1.0 + 0.3 * ridge[0, 1] + ridge[0, 0] ** 2 + 0.5 * ridge[0, 1] ** 2
    assert value == pytest.approx(0, abs=1e-9)
    assert np.isnan(shortest_change(np.array([-1.0]), np.array([[0.1]]), np.array([-5.0]))).all()
    assert (shortest_change(np.array([0.5]), np.array([[0.1]]), np.array([-5.0])) == 0).all()
    w, m, c = random_mixture(3, 3, 12)
    X = rows_of((w, m, c), 20)
    X[::2, 1] = np.nan
    found = counterfactuals(X, w, m, c, to=1)
    assert (found.distance[found.start == 1] == 0).all() and np.isnan(found.rows[::2, 1]).all()


# the explainer

def test_local_explanation_is_vectorised_and_repeats():
    model = GMMExplainer(random_mixture(4, 5, 13))
    X = model.sample(100, 0)[0]
    X[3, 2] = np.nan
    whole = model.explain_local(X).to_frame()
    assert whole.equals(model.explain_local(X).to_frame())
    for i in (0, 3, 50):
        one = model.explain_local(X[i]).to_frame()
        assert np.allclose(one.log_odds, whole[whole.row == i].log_odds, equal_nan=True) and (one.verdict.values == whole[whole.row == i].verdict.values).all()
    assert "is missing" in model.explain_local(X).to_text(3) and (whole[(whole.row == 3) & (whole.feature == "feature 2")].verdict == "missing").all()


def test_pictures(plt):
    model = GMMExplainer.of_paper("iris")
    told, why = model.explain_global(), model.explain_local(paper_model("iris")["points"]["iris-1"])
    for draw in (told.plot, told.plot_overlap, why.plot, why.waterfall):
        ax = plt.figure().add_subplot()
        assert draw(ax=ax) is ax
    row = paper_model("iris")["points"]["iris-1"]
    assert model.plot_ellipses([0, 1], row, model.counterfactual(row).rows[0]).get_xlabel() == "sepal_length (cm)"


def test_labels_pickle_clone_frames():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(np.concatenate([rng.normal(0, 1, (60, 2)), rng.normal(4, 1, (60, 2))]), columns=["a", "b"])
    y = np.repeat(["low", "high"], 60)
    model = GMMExplainer.from_labels(X, y)
    assert model._parts().clusters == ["high", "low"] and model.explain_global().rules.precision.min() > 0.9
    assert np.array_equal(model.predict(X[["b", "a"]]), model.predict(X))                # read by name
    assert np.allclose(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))
    assert clone(model).get_params()["distinguishing"] == 0.05
    fitted = GMMExplainer(GaussianMixture(2, random_state=0)).fit(X)
    assert fitted._parts().names == ["a", "b"] and len(fitted.stability(n_bootstrap=3, n_starts=3).agreement) == 3
    assert np.array_equal(model.sample(5, 1)[0], model.sample(5, 1)[0])


# bad input

@pytest.mark.parametrize("call, error, words", [
    (lambda: GMMExplainer(GaussianMixture(2)).predict([[0.0]]), NotFittedError, "not fitted"),
    (lambda: GMMExplainer("gmm").predict([[0.0]]), TypeError, "GaussianMixture"),
    (lambda: GMMExplainer((np.ones(1), np.zeros((1, 2)), np.eye(2)[None])).explain_local([[0.0, 0.0]]), ValueError, "one component"),
    (lambda: GMMExplainer((np.ones(1), np.zeros((1, 2)), np.ones((1, 2, 2))), ["a", "b"]).predict([[0.0, 0.0]]), ValueError, "a, b depend"),
    (lambda: GMMExplainer((np.full(2, 0.7), np.zeros((2, 1)), np.ones((2, 1, 1)))).predict([[0.0]]), ValueError, "sum 1.4"),
    (lambda: GMMExplainer.of_paper("iris").predict(np.zeros((2, 3))), ValueError, r"shape \(2, 3\)"),
    (lambda: GMMExplainer.of_paper("iris").predict([[0, 0, 0, np.inf]]), ValueError, "petal_width"),
    (lambda: GMMExplainer.of_paper("iris").predict({"petal": 1}), ValueError, "unknown feature 'petal'"),
    (lambda: GMMExplainer.of_paper("iris").log_odds(np.zeros((1, 4)), 0, "rose"), ValueError, "unknown cluster 'rose'"),
    (lambda: GMMExplainer.of_paper("iris").counterfactual(np.zeros((1, 4)), features=["x"]), ValueError, "unknown feature 'x'"),
    (lambda: GMMExplainer.of_paper("iris").stability(np.zeros((9, 4))), ValueError, "refits"),
    (lambda: GMMExplainer.of_paper("wine"), ValueError, "no model is called"),
    (lambda: GMMExplainer(random_mixture(2, 2), feature_names=["a"]).predict([[0, 0]]), ValueError, "feature_names"),
    (lambda: bhattacharyya_coefficient([0, 0], np.eye(2), [1, 1], np.eye(2), [0, 0]), ValueError, "different positions"),
    (lambda: GMMExplainer.from_labels(np.zeros((3, 1)), [0, 0, 1]), ValueError, "single row"),
])
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_data_that_are_not_gaussian_are_warned_about():
    X = np.random.default_rng(0).exponential(size=(500, 2)) ** 2
    with pytest.warns(UserWarning, match="do not look Gaussian"):
        GMMExplainer(GaussianMixture(2, random_state=0)).fit(X)


def test_logsumexp_of_the_parts_is_the_score():
    w, m, c = random_mixture(3, 3, 14)
    X = rows_of((w, m, c), 10)
    assert np.allclose(GMMExplainer((w, m, c)).score_samples(X), logsumexp(np.log(w) + log_densities(X, m, c), axis=1))


def test_all_local_tables_are_read():
    assert sum(len(local_table(t)) for t in LOCAL) == sum(len(line.split()) - 1 - line.split().count("-") for t in LOCAL for line in LOCAL[t].split("; "))
