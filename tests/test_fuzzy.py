"""Fuzzy rules: sklearn's own checks, oracles, round trips, properties, the faults that must not be, and bad input."""
import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from mixlit.calibration import calibration_error, fit_calibration, reliability_curve
from mixlit.fuzzy_mixture import FuzzyRuleClassifier, dominance_scores, prune_winning_rules, winning_rules
from mixlit.genetic import macro_f1
from mixlit.rule_weights import (contrasts, fit_rule_mixture, fit_rule_weights, mixture_scores, prune_by_mixture, rule_effects, softmax_probabilities,
                                 weighted_loss)
from mixlit.rules import Bell, LinguisticVariable, Trapezoid, Triangle
from mixlit.terms import (CrispVariable, FuzzyCondition, FuzzyRule, FuzzyRuleBase, Level, firing_strengths, make_partition, parse_rule, searched_terms,
                          term_literals)

SMALL = dict(n_rules=8, n_antecedents=2, population_size=10, n_generations=6)


def quick(**kw):
    """A greedy mixture of few rules."""
    return FuzzyRuleClassifier(**{**dict(n_rules=6, n_antecedents=2, inference="mixture", search="greedy"), **kw})


@pytest.fixture(scope="module")
def iris():
    data = load_iris(as_frame=True)
    return data.data.rename(columns=lambda c: c.removesuffix(" (cm)")), pd.Series(data.target_names[data.target], name="species")


@pytest.fixture(scope="module")
def fitted(iris):
    """A greedy mixture on the irises, not to be changed."""
    return quick().fit(*iris)


# ---------------------------------------------------------------- conventions

@parametrize_with_checks([FuzzyRuleClassifier(inference=i, search=s, **SMALL) for i in ("winning_rule", "mixture") for s in ("genetic", "greedy")])
def test_sklearn_check(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_clone_pickle_grid_search_and_pipeline(iris, fitted):
    X, y = iris
    copy = clone(fitted).fit(X, y)
    assert (copy.predict_proba(X) == fitted.predict_proba(X)).all()
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.predict_proba(X) == fitted.predict_proba(X)).all() and again.rules_ == fitted.rules_
    search = GridSearchCV(quick(), {"n_rules": [1, 4]}, cv=3).fit(X, y)
    assert search.best_params_["n_rules"] == 4
    assert make_pipeline(FunctionTransformer(), quick()).fit(X, y).score(X, y) > 0.9


def test_numpy_lists_and_frames_agree(iris):
    X, y = iris
    frame, array = quick().fit(X, y), quick().fit(X.to_numpy(), y.to_numpy())
    lists = quick().fit(X.to_numpy().tolist(), y.tolist())
    assert np.allclose(frame.predict_proba(X), array.predict_proba(X.to_numpy())) and (lists.predict(X.to_numpy().tolist()) == array.predict(X.to_numpy())).all()
    assert frame.feature_names_in_.tolist() == list(X.columns) and not hasattr(array, "feature_names_in_") and array.n_features_in_ == 4


@pytest.mark.parametrize("search", ["genetic", "greedy"])
def test_same_seed_same_rules_and_global_state_untouched(iris, search):
    np.random.seed(7)
    before = np.random.get_state()[1].copy()
    one, two = (FuzzyRuleClassifier(search=search, **SMALL).fit(*iris) for _ in range(2))
    assert one.rules_ == two.rules_ and (np.random.get_state()[1] == before).all()


def test_rules_do_not_depend_on_threads(run_python):
    script = ("from sklearn.datasets import load_wine\nfrom mixlit.fuzzy_mixture import FuzzyRuleClassifier as F\nX, y = load_wine(return_X_y=True)\n"
              "for s in ('genetic', 'greedy'): print(F(8, n_antecedents=2, search=s, inference='mixture', population_size=10, n_generations=8).fit(X, y).rules_)")
    said = [run_python("-c", script, OMP_NUM_THREADS=k, OPENBLAS_NUM_THREADS=k) for k in ("1", "4")]
    assert all(r.returncode == 0 for r in said), said[0].stderr
    assert said[0].stdout == said[1].stdout and "Rule 0" in said[0].stdout


# ---------------------------------------------------------------- weights against oracles

@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("C", [0.1, 1.0, 20.0])
def test_free_weights_are_those_of_scikit_learn(n_classes, C):
    rng = np.random.default_rng(n_classes)
    F = rng.random((400, 7)) * (rng.random((400, 7)) < 0.5)
    y = np.r_[np.arange(n_classes), (F @ rng.normal(size=(7, n_classes)) + rng.gumbel(size=(400, n_classes))).argmax(axis=1)[n_classes:]]
    w = rng.integers(1, 4, 400).astype(float)
    coef, intercept = fit_rule_weights(F, y, n_classes, C, sample_weight=w)
    # scikit-learn fits one weight a rule for two classes, so its penalty on the difference W1 - W0 is half of ours
    skl = LogisticRegression(C=C if n_classes > 2 else 2 * C, tol=1e-9, max_iter=20_000).fit(F, y, w)
    ours = coef if n_classes > 2 else coef[:, 1:] - coef[:, :1]
    assert np.allclose(ours, skl.coef_.T, atol=2e-3)
    assert weighted_loss(F, y, coef, intercept, C, w) <= weighted_loss(
        F, y, skl.coef_.T if n_classes > 2 else np.column_stack([-skl.coef_[0] / 2, skl.coef_[0] / 2]),
        skl.intercept_ if n_classes > 2 else np.r_[-skl.intercept_ / 2, skl.intercept_ / 2], C, w) + 1e-6
    assert np.allclose(coef.sum(axis=1), 0) and np.isclose(intercept.sum(), 0)


def test_many_rows_reach_the_same_minimum_as_scikit_learn():
    rng = np.random.default_rng(0)
    F = rng.random((12_000, 10))
    F = np.column_stack([F, F[:, :5] * F[:, 5:]])                         # overlapping, as firing strengths are
    y = (F @ rng.normal(size=(15, 3)) + rng.gumbel(size=(12_000, 3))).argmax(axis=1)
    coef, intercept = fit_rule_weights(F, y, 3)
    skl = LogisticRegression(tol=1e-9, max_iter=20_000).fit(F, y)
    assert np.allclose(coef, skl.coef_.T, atol=1e-3)
    assert weighted_loss(F, y, coef, intercept) <= weighted_loss(F, y, skl.coef_.T, skl.intercept_) + 1e-4


@pytest.mark.parametrize("n", [200, 8000])
def test_non_negative_weights_satisfy_the_conditions_of_a_minimum(n):
    rng = np.random.default_rng(1)
    F = rng.random((n, 6))
    y = (F @ (3 * rng.normal(size=(6, 3))) + rng.gumbel(size=(n, 3))).argmax(axis=1)
    coef, intercept = fit_rule_weights(F, y, 3, non_negative=True)
    slope = F.T @ (softmax_probabilities(mixture_scores(F, coef, intercept)) - np.eye(3)[y]) + coef
    assert coef.min() == 0 and (coef.min(axis=1) == 0).all()
    scale = 1e-3 * np.sqrt(n)
    assert (slope > -scale).all() and (abs(slope[coef > 1e-6]) < scale).all()


def test_bias_is_not_penalised_and_no_rules_give_the_shares():
    y = np.repeat([0, 1, 2], [70, 20, 10])
    coef, intercept = fit_rule_weights(np.zeros((100, 2)), y, 3, C=1e-6)
    assert np.allclose(softmax_probabilities(intercept[None])[0], [.7, .2, .1], atol=1e-6) and np.allclose(coef, 0)
    assert np.allclose(softmax_probabilities(fit_rule_weights(np.zeros((100, 0)), y, 3)[1][None])[0], [.7, .2, .1])


@given(st.integers(0, 10_000), st.floats(0.01, 1.0), st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_deleted_rule_changes_no_score_difference_by_more_than_twice_the_threshold(seed, threshold, non_negative):
    rng = np.random.default_rng(seed)
    F = rng.random((60, 8)) * (rng.random((60, 8)) < 0.3)
    y = np.r_[0, 1, 2, rng.integers(0, 3, 57)]
    first = fit_rule_mixture(F, y, 3, non_negative=non_negative)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                                   # all rules may go
        kept, coef, intercept = prune_by_mixture(F, y, 3, threshold, non_negative=non_negative)
    for r in np.setdiff1d(np.arange(8), kept):
        change = F[:, r, None] * first.coef_[r]
        assert (np.ptp(change, axis=1) <= 2 * threshold + 1e-9).all()
    assert (rule_effects(F, first.coef_)[kept] > threshold).all()
    again = fit_rule_weights(F[:, kept], y, 3, non_negative=non_negative)
    assert np.allclose(softmax_probabilities(mixture_scores(F[:, kept], coef, intercept)), softmax_probabilities(mixture_scores(F[:, kept], *again)), atol=1e-3)


def test_everything_pruned_leaves_the_biases(iris):
    with pytest.warns(UserWarning, match="no rule is left"):
        model = quick(mixture_prune_threshold=1e6).fit(*iris)
    assert len(model.rules_) == 0 and np.allclose(model.predict_proba(iris[0]), 1 / 3) and model.mixture_contributions(iris[0]).shape == (150, 0, 3)


def test_contrasts_are_orthonormal():
    for K in (2, 3, 7):
        Q = contrasts(K)
        assert np.allclose(Q.T @ Q, np.eye(K - 1)) and np.allclose(Q.sum(axis=0), 0)


# ---------------------------------------------------------------- the mixture in the classifier

@pytest.mark.parametrize("non_negative", [False, True])
def test_contributions_and_bias_sum_to_the_scores(iris, non_negative):
    X, y = iris
    model = quick(mixture_non_negative=non_negative).fit(X, y)
    parts = model.mixture_contributions(X)
    assert parts.shape == (150, len(model.rules_), 3)
    assert np.allclose(parts.sum(axis=1) + model.mixture_.intercept_, model.mixture_scores(X))
    assert np.allclose(softmax_probabilities(model.mixture_scores(X)), model.predict_proba(X))
    assert np.allclose(model.decision_function(X), model.mixture_scores(X))
    assert (model.mixture_.coef_.min() >= 0) == non_negative


def test_weights_come_from_the_rules_firing(iris, fitted):
    X, y = iris
    F = fitted.firing(X)
    coef, intercept = fit_rule_weights(F, np.unique(y, return_inverse=True)[1], 3)
    assert np.allclose(coef, fitted.mixture_.coef_, atol=1e-5) and np.allclose(intercept, fitted.mixture_.intercept_, atol=1e-5)


def test_two_stages_keep_the_rules_of_the_winning_rule_search(iris):
    winner = FuzzyRuleClassifier(**SMALL).fit(*iris)
    mixture = FuzzyRuleClassifier(inference="mixture", **SMALL).fit(*iris)
    assert winner.rules_ == mixture.rules_ and winner.mixture_ is None
    winner.set_params(inference="mixture").fit_mixture(*iris)
    assert np.allclose(winner.predict_proba(iris[0]), mixture.predict_proba(iris[0]))


def test_repeats_get_no_weights(iris):
    X, y = iris
    model = quick().fit(X, y)
    model.add_rule(model.rules_[1]).add_rule(FuzzyRule(model.rules_[0].conditions, "virginica")).fit_mixture(X, y)
    R = len(model.rules_)
    assert model.mixture_.duplicate_of_.tolist() == [-1] * (R - 2) + [1, 0] and (model.mixture_.coef_[-2:] == 0).all()
    assert "repeats rule 1" in model.mixture_text()


def test_predict_refuses_when_the_rules_changed(iris):
    X, y = iris
    changes = [lambda m: m.remove_rule(0), lambda m: m.add_rule("sepal width is High -> setosa"), lambda m: setattr(m, "rules_", m.rules_[:2])]
    for change in changes:
        model = quick().fit(X, y)
        change(model)
        for call in (model.predict, model.predict_proba, model.mixture_scores, model.mixture_contributions, model.explain_local):
            with pytest.raises(RuntimeError, match="fit_mixture"):
                call(X)
        model.fit_mixture(X, y)
        assert model.predict(X).shape == (150,)
    winner = FuzzyRuleClassifier(6, search="greedy").fit(X, y).set_params(inference="mixture")
    with pytest.raises(RuntimeError, match="fit_mixture"):
        winner.predict(X)


def test_no_rule_fires(iris):
    X, y = iris
    for inference in ("mixture", "winning_rule"):
        model = FuzzyRuleClassifier(1, search="greedy", n_antecedents=1, inference=inference, allow_unknown=True).fit(X, y)
        silent = model.firing(X).max(axis=1) == 0
        assert silent.any() and (model.predict(X)[silent] == "unknown").all() and (model.predict(X)[~silent] != "unknown").all()
        assert np.isclose(model.score(X, y), ((model.predict(X) == y) & ~silent).mean())
        if inference == "mixture":
            assert np.allclose(model.mixture_scores(X)[silent], model.mixture_.intercept_)
        model.set_params(allow_unknown=False)
        frequent = model.mixture_.intercept_ if inference == "mixture" else model.class_prior_
        assert (model.predict(X)[silent] == model.classes_[frequent.argmax()]).all()
        assert "no rule fires" in model.explain_local(X[silent]).to_text().lower()


# ---------------------------------------------------------------- winning-rule semantics

def test_dominance_score_is_support_times_confidence():
    rng = np.random.default_rng(0)
    F, y, c = rng.random((40, 5)), rng.integers(0, 3, 40), np.array([0, 1, 2, 0, 1])
    naive = [(F[:, r] * (y == c[r])).mean() * (F[y == c[r], r].sum() / F[:, r].sum()) for r in range(5)]
    assert np.allclose(dominance_scores(F, y, c), naive)
    assert dominance_scores(np.zeros((40, 1)), y, c[:1])[0] == 0
    w = rng.integers(0, 4, 40)
    assert np.allclose(dominance_scores(F, y, c, w.astype(float)), dominance_scores(np.repeat(F, w, axis=0), np.repeat(y, w), c))


def test_the_winner_is_the_first_at_the_maximum_and_idle_rules_go():
    A = np.array([[0.5, 0.5, 0.1], [0, 0.2, 0.3], [0, 0, 0]])
    assert winning_rules(A).tolist() == [0, 2, -1]
    F, y, c = np.array([[1, 0.4, 0], [1, 0.4, 0], [0, 0, 1.0], [0, 0.4, 0.9]]), np.array([0, 0, 1, 1]), np.array([0, 0, 1])
    assert prune_winning_rules(F, y, c, 2).tolist() == [0, 2]
    assert prune_winning_rules(F[:, [0, 0, 2]], y, c, 2, rules=["a", "a", "b"]).tolist() == [0, 2]
    assert prune_winning_rules(F, y, c, 2, tolerance=0.48).tolist() == [0]


def test_winning_rule_prediction_is_the_class_of_the_strongest_rule(iris):
    X, y = iris
    for mode in ("dominance", "unweighted", "optimised", 0, 1, 2):
        model = FuzzyRuleClassifier(ds_mode=mode, **SMALL).fit(X, y)
        weight = np.array([r.weight for r in model.rules_])
        A = model.firing(X) * weight
        win = winning_rules(A)
        expected = np.where(win >= 0, np.array([r.consequent for r in model.rules_])[win], model.classes_[0])
        assert (model.predict(X) == expected).all()
        assert (model.classes_[model.predict_proba(X).argmax(axis=1)] == expected).all()
        assert mode not in ("unweighted", 1) or (weight == 1).all()
        if mode in ("dominance", 0):
            codes = np.unique(y, return_inverse=True)[1]
            c = np.searchsorted(model.classes_, [r.consequent for r in model.rules_])
            assert np.allclose(weight, dominance_scores(model.firing(X), codes, c))
            assert prune_winning_rules(model.firing(X), codes, c, 3).tolist() == list(range(len(model.rules_)))


def test_macro_f1_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    y, p, w = rng.integers(0, 4, 200), rng.integers(0, 4, 200), rng.random(200)
    assert np.isclose(macro_f1(y, p, 4), f1_score(y, p, average="macro"))
    assert np.isclose(macro_f1(y, p, 4, w), f1_score(y, p, average="macro", sample_weight=w))
    assert np.isclose(macro_f1(y, np.full(200, -1), 4), 0)


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
def test_the_search_ends_at_the_objective_of_the_method(load):
    X, y = load(return_X_y=True)
    model = FuzzyRuleClassifier(**SMALL).fit(X, y)
    covered = len({r.consequent for r in model.rules_})
    K, conditions = len(model.classes_), sum(len(r.conditions) for r in model.rules_)
    objective = f1_score(y, model.predict(X), average="macro") - 0.05 * (1 - covered / K) - 0.03 * conditions / (SMALL["n_rules"] * min(SMALL["n_antecedents"], X.shape[1]))
    assert np.isclose(model.history_.best.iloc[-1], objective)


@pytest.mark.parametrize("settings_", [dict(mixture_search=True), dict(mixture_search=True, mixture_pruning="winning_rule"), dict(objective="log_loss"),
                                       dict(start="greedy"), dict(search="greedy", stop="bic"), dict(search="greedy", mixture_pruning="winning_rule"),
                                       dict(mixture_search=True, mixture_non_negative=True), dict(mixture_search=True, ordinal=True, t_norm="minimum")])
def test_every_road_to_a_mixture(iris, settings_):
    X, y = iris
    model = FuzzyRuleClassifier(inference="mixture", **{**SMALL, **settings_}).fit(X, y)
    again = clone(model).fit(X, y)
    assert model.rules_ == again.rules_ and model.score(X, y) > 0.85 and 1 <= len(model.rules_) <= SMALL["n_rules"]
    assert max(len(r.conditions) for r in model.rules_) <= 2 and (model.mixture_.duplicate_of_ == -1).all()
    if settings_.get("mixture_search") and "mixture_pruning" not in settings_:
        codes = np.unique(y, return_inverse=True)[1]
        kept, *_ = prune_by_mixture(model.firing(X), codes, 3, 0.0, non_negative=model.mixture_non_negative)
        assert len(kept) == len(model.rules_)
    assert model.explain_local(X.iloc[:2]).to_text() and model.coverage_report(X).to_text()


def test_a_failed_fit_leaves_the_model_as_it_was(iris):
    X, y = iris
    model = quick().fit(X, y)
    before = model.predict_proba(X)
    with pytest.raises(ValueError):
        model.fit(X[["petal width"]], ["a"] * 150)
    assert model.n_features_in_ == 4 and (model.predict_proba(X) == before).all()


# ---------------------------------------------------------------- faults of others that must not be here

def test_refit_makes_new_partitions(iris):
    X, y = iris
    for search in ("greedy", "genetic"):
        model = FuzzyRuleClassifier(search=search, **SMALL).fit(X, y)
        before = model.score(X, y)
        assert model.fit(X * 100, y).score(X * 100, y) == before


def test_a_term_has_the_bounds_of_its_own_column(iris):
    X, y = iris
    model = quick(n_rules=10).fit(X, y)
    for r, rule in enumerate(model.rules_):
        own = LinguisticVariable.from_quantiles("x", [0, 1, 2])
        expected = np.ones(150)
        for c in rule.conditions:
            own = LinguisticVariable.from_quantiles(c.feature, X[c.feature])
            expected = expected * sum(own.terms[t](X[c.feature]) for t in c.terms)
        assert np.allclose(model.firing(X)[:, r], expected)


def test_a_tied_column_has_no_collapsed_term():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"tied": np.r_[np.zeros(120), rng.integers(1, 30, 80) + 0.5], "other": rng.normal(size=200)})
    for partitions in ("quantile", "searched"):
        model = quick(partitions=partitions).fit(X, (X.tied > 0).astype(int))
        mu = model.partitions_[0].memberships(X.tied)
        assert np.allclose(mu.sum(axis=1), 1) and (mu.max(axis=0) == 1).all() and model.score(X, (X.tied > 0).astype(int)) == 1


@pytest.mark.parametrize("labels", [[-1, 1], [-2, -1], [0, 1], ["no", "unknown"], [True, False], [1.0, 2.0], ["unknown", "unknown_"]])
@pytest.mark.parametrize("inference", ["mixture", "winning_rule"])
def test_labels_of_any_kind(iris, labels, inference):
    X, y = iris
    own = np.array(labels)[(y == "setosa").astype(int)]
    model = quick(inference=inference, allow_unknown=True, n_rules=2, n_antecedents=1).fit(X, own)
    assert sorted(model.classes_.tolist()) == sorted(labels) and model.unknown_ not in model.classes_.tolist()
    said = model.predict(X)
    known = np.array([v in labels for v in said.tolist()])
    assert (said[known] == own[known]).mean() > 0.75 and np.isclose(model.score(X, own), ((said == own) & known).mean())
    assert set(model.set_params(allow_unknown=False).predict(X).tolist()) <= set(labels)


def test_columns_in_another_order_and_missing_columns(iris, fitted):
    X, _ = iris
    assert (fitted.predict_proba(X[X.columns[::-1]]) == fitted.predict_proba(X)).all()
    assert (fitted.predict_proba(X.assign(more=1.0)) == fitted.predict_proba(X)).all()
    with pytest.raises(ValueError, match="'petal width' is missing"):
        fitted.predict(X.drop(columns="petal width"))


@pytest.mark.parametrize("search", ["genetic", "greedy"])
@pytest.mark.parametrize("inference", ["mixture", "winning_rule"])
def test_weights_of_rows_are_copies_of_rows(iris, search, inference):
    X, y = iris
    w = np.random.default_rng(0).integers(0, 4, 150)
    model = FuzzyRuleClassifier(search=search, inference=inference, **SMALL)
    weighted, longer = clone(model).fit(X, y, sample_weight=w), clone(model).fit(X.loc[X.index.repeat(w)].sample(frac=1, random_state=0), y.repeat(w).sample(frac=1, random_state=0))
    assert [r.antecedent for r in weighted.rules_] == [r.antecedent for r in longer.rules_]
    assert np.allclose(weighted.predict_proba(X), longer.predict_proba(X), atol=1e-6)


def test_pickle_holds_no_data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 4))
    model = quick().fit(X, (X[:, 0] + X[:, 1] > 0).astype(int))
    assert len(pickle.dumps(model)) < 30_000


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_no_two_rules_with_the_same_conditions(load):
    X, y = load(return_X_y=True)
    for seed in range(3):
        model = FuzzyRuleClassifier(**SMALL, random_state=seed).fit(X, y)
        keys = [r.antecedent for r in model.rules_]
        assert len(set(keys)) == len(keys)


# ---------------------------------------------------------------- terms

def test_default_words_and_crisp_columns():
    n = 60
    X = pd.DataFrame({"few": np.arange(n) % 5, "six": np.arange(n) % 6, "half": np.arange(n) % 3 / 2, "flag": np.arange(n) % 2 == 0,
                      "town": pd.Categorical(np.array(["b", "a", "c"])[np.arange(n) % 3], categories=["c", "b", "a"])})
    names = [list(v.terms) for v in make_partition(X).variables]
    assert names[0] == ["0", "1", "2", "3", "4"] and names[1] == names[2] == ["Low", "Medium", "High"]
    assert names[3] == ["False", "True"] and names[4] == ["c", "b", "a"]
    x = np.linspace(0, 1, 101)
    said = {T: make_partition(x[:, None], n_terms=T).variables[0] for T in (2, 3, 4, 5)}
    assert list(said[2].terms) == ["Low", "High"] and list(said[4].terms) == ["Low", "Medium", "High", "Very High"] and list(said[5].terms)[0] == "Very Low"
    three = list(said[3].terms.values())
    assert np.allclose([three[0].c, three[0].d, *vars(three[1]).values(), three[2].a, three[2].b], [.2, .4, .2, .4, .6, .8, .6, .8])


def test_values_beyond_the_training_range_are_clipped(iris):
    X, y = iris
    hill = {"petal width": {"small": Trapezoid(-np.inf, -np.inf, 0.5, 1), "middle": Trapezoid(0.5, 1, 1.4, 1.8), "large": Trapezoid(1.4, 1.8, 3, 4)}}
    model = quick(partitions=hill).fit(X, y)
    far = X.assign(**{"petal width": 100.0})
    edge = X.assign(**{"petal width": X["petal width"].max()})
    assert (model.firing(far) == model.firing(edge)).all() and (model.predict_proba(far) == model.predict_proba(edge)).all()


def test_expert_terms_are_used_and_others_get_quantiles(iris):
    X, y = iris
    bands = [LinguisticVariable("petal width", {"narrow": Trapezoid(-np.inf, -np.inf, 0.6, 1.0), "wide": Trapezoid(0.6, 1.0, np.inf, np.inf)})]
    model = quick(partitions=bands).fit(X, y)
    assert list(model.partitions_[3].terms) == ["narrow", "wide"] and list(model.partitions_[0].terms) == ["Low", "Medium", "High"]
    assert quick(partitions={"petal width": bands[0]}).fit(X, y).rules_ == model.rules_
    with pytest.raises(ValueError, match="girth"):
        quick(partitions={"girth": bands[0]}).fit(X, y)
    with pytest.raises(ValueError, match="partitions"):
        quick(partitions="clever").fit(X, y)


def test_unseen_categories_have_no_membership_and_are_reported():
    X = pd.DataFrame({"town": ["A", "B", "C"] * 30, "v": np.arange(90.0)})
    model = quick(n_rules=3).fit(X, (X.town == "A").astype(int))
    with pytest.warns(UserWarning, match="'town' holds 'Z'"):
        F = model.firing(X.assign(town="Z"))
    on_town = [any(c.feature == "town" for c in r.conditions) for r in model.rules_]
    assert any(on_town) and (F[:, on_town] == 0).all()


@given(st.lists(st.floats(-1e6, 1e6, allow_nan=False).map(lambda v: round(v, 3)), min_size=8, max_size=60), st.integers(2, 5), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_searched_terms_are_a_partition(values, n_terms, seed):
    x, y = np.array(values), np.random.default_rng(seed).integers(0, 3, len(values))
    terms = searched_terms("x", x, y, n_terms)
    mu = np.column_stack([t(x) for t in terms.values()])
    assert np.allclose(mu.sum(axis=1), 1) and len(terms) == min(n_terms, len(np.unique(x))) and (mu.max(axis=0) > 0).all()


def test_ordinal_literals_and_both_t_norms(iris):
    X, _ = iris
    literals = term_literals(make_partition(X), ordinal=True)
    M = literals.memberships(X)
    runs = [i for i, t in enumerate(literals.terms) if len(t) > 1]
    assert len(runs) == 8
    for i in runs:
        single = [k for k in range(len(literals)) if literals.column[k] == literals.column[i] and literals.terms[k][0] in literals.terms[i] and len(literals.terms[k]) == 1]
        assert np.allclose(M[:, i], M[:, single].sum(axis=1))
    rules = [(0, 3), (1, 5, 9), ()]
    product, minimum = firing_strengths(M, rules), firing_strengths(M, rules, "minimum")
    assert np.allclose(product[:, 1], M[:, 1] * M[:, 5] * M[:, 9]) and np.allclose(minimum[:, 1], M[:, [1, 5, 9]].min(axis=1)) and (product[:, 2] == 1).all()
    with pytest.raises(ValueError, match="t_norm"):
        firing_strengths(M, rules, "sum")


def test_minimum_t_norm_in_the_classifier(iris):
    X, y = iris
    model = quick(t_norm="minimum").fit(X, y)
    two = [r for r, rule in enumerate(model.rules_) if len(rule.conditions) == 2]
    for r in two:
        parts = np.column_stack([FuzzyRuleBase([FuzzyRule(c)], model.rules_.partition).firing(X)[:, 0] for c in model.rules_[r].conditions])
        assert np.allclose(model.firing(X)[:, r], parts.min(axis=1))


# ---------------------------------------------------------------- texts, files, explanations

def test_rules_read_with_cut_points_and_can_be_read_back(iris, fitted):
    partition = fitted.rules_.partition
    for rule in [*fitted.rules_, *quick(ordinal=True).fit(*iris).rules_]:
        text = rule.to_text(partition)
        assert text.startswith("IF ") and f" THEN {rule.consequent}" in text and "(" in text
        back = parse_rule(text, partition, fitted.classes_.tolist())
        assert back.antecedent == rule.antecedent and back.consequent == rule.consequent
    both = FuzzyRule(FuzzyCondition("petal width", ("Medium", "High")), "virginica")
    assert "petal width is at least Medium (from " in both.to_text(partition) and both.to_text(partition).endswith(" up) THEN virginica")
    assert fitted.to_text().count(" THEN ") == len(fitted.rules_) and all(f"THEN {fitted.classes_[k]} (" in fitted.to_text() for k in fitted.mixture_.coef_.argmax(axis=1))
    assert "at most Medium (up to" in FuzzyRule(FuzzyCondition("petal width", ("Low", "Medium"))).to_text(partition)


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_rule_bases_survive_json(seed):
    rng = np.random.default_rng(seed)
    a, b, c, d = np.sort(rng.normal(size=4)) * 10.0 ** rng.integers(-3, 6)
    X = pd.DataFrame({"a b": rng.normal(size=30), "is": rng.integers(0, 4, 30), "and c": rng.choice(["x", "y is", "z"], 30)})
    X.iloc[:3, 2] = ["x", "y is", "z"]
    X.iloc[:4, 1] = range(4)
    partition = make_partition(X, {"a b": {"one": Trapezoid(a, b, c, d), "two": Triangle(a, b, d), "three": Bell(a, d - a)}})
    rules = [FuzzyRule((FuzzyCondition("a b", ("one", "three")), FuzzyCondition("and c", "y is")), int(rng.integers(3)), rng.random()), FuzzyRule((), "q")]
    base = FuzzyRuleBase(rules, partition, "minimum")
    again = FuzzyRuleBase.from_json(base.to_json())
    assert again == base and (again.firing(X) == base.firing(X)).all() and again.to_text() == base.to_text()


@pytest.mark.parametrize("inference", ["mixture", "winning_rule"])
@pytest.mark.parametrize("calibration", [None, "temperature", "sigmoid", "isotonic"])
def test_model_survives_json(iris, inference, calibration, tmp_path):
    X, y = iris
    model = quick(inference=inference, calibration=calibration, ordinal=True, locked_rules=["sepal width is Low -> setosa"]).fit(X, y)
    text = model.to_json(tmp_path / "model.json")
    model.save(tmp_path / "saved.json")
    for again in (FuzzyRuleClassifier.from_json(text), FuzzyRuleClassifier.from_json(tmp_path / "model.json"), FuzzyRuleClassifier.load(tmp_path / "saved.json"),
                  FuzzyRuleClassifier.from_dict(model.to_dict())):
        assert (again.predict_proba(X) == model.predict_proba(X)).all() and (again.predict(X) == model.predict(X)).all()
        assert again.rules_ == model.rules_ and again.to_json() == text and again.locked_ == model.locked_
        assert again.classes_.dtype == model.classes_.dtype and again.get_params()["ordinal"] is True
    json.loads(text, parse_constant=lambda c: pytest.fail(f"{c} is no JSON"))
    model.remove_rule(len(model.rules_) - 1)
    if inference == "mixture":
        with pytest.raises(RuntimeError, match="fit_mixture"):
            FuzzyRuleClassifier.from_json(model.to_json()).predict(X)


def test_a_fuzzy_set_that_is_a_function_cannot_be_stored(iris):
    X, y = iris
    model = quick(partitions={"petal width": {"sine": lambda x: np.sin(x) ** 2, "rest": lambda x: np.cos(x) ** 2}}).fit(X, y)
    with pytest.raises(ValueError, match="'petal width', term 'sine'"):
        model.to_json()


def test_latex_escapes_and_has_a_line_for_each_rule(iris):
    X, y = iris
    model = quick().fit(X.rename(columns=lambda c: c.replace(" ", "_")), y)
    text = model.to_latex()
    assert "petal\\_width" in text and text.count(r"\\") == len(model.rules_) + 1 and "_width" not in text.replace("\\_width", "")


@pytest.mark.parametrize("inference", ["mixture", "winning_rule"])
def test_explanations_under_both_inferences(iris, plt, inference):
    X, y = iris
    model = quick(inference=inference).fit(X, y)
    everything, some, one = model.explain_global(X), model.explain_local(X.iloc[:5]), model.explain_local(X, 77)
    assert len(everything.to_frame()) == len(model.rules_) and everything.to_text() == model.to_text()
    assert sorted(some.to_frame().row.unique()) == list(range(5)) and (one.to_frame().row == 77).all()
    assert one.to_text().startswith(f"Row 77 is {model.predict(X.iloc[[77]])[0]}")
    if inference == "mixture":
        sums = some.to_frame().groupby("row")[[f"for {c}" for c in model.classes_]].sum()
        assert np.allclose(sums, model.mixture_scores(X.iloc[:5])) and "No single rule decides" in one.to_text()
    else:
        frame = some.to_frame()
        assert (frame[frame.decides].then.to_numpy() == model.predict(X.iloc[:5])).all() and "decides" in one.to_text()
    for ax in (everything.plot(), one.plot(77), one.plot(), some.plot(), model.coverage_report(X).plot(), model.plot_surface(X, y, ["petal length", "petal width"]), model.plot_terms(X)[0, 0]):
        assert ax.get_xlabel()
    array = quick(inference=inference).fit(X.to_numpy(), y)
    assert array.plot_surface(X.to_numpy(), y, ["x3", "x4"]).get_xlabel() == "x3"


def test_coverage_report_counts(iris, fitted):
    X, _ = iris
    F, report = fitted.firing(X), fitted.coverage_report(X)
    assert np.isclose(report.uncovered, (F.max(axis=1) == 0).mean()) and np.isclose(report.rules_per_row, (F > 0).sum(axis=1).mean())
    assert np.allclose(report.to_frame().fires, (F > 0).mean(axis=0))


def test_locked_rules_stay_and_expert_rules_begin(iris):
    X, y = iris
    text = "sepal width is Low and sepal length is High -> setosa"
    for search in ("greedy", "genetic"):
        for inference in ("mixture", "winning_rule"):
            model = FuzzyRuleClassifier(search=search, inference=inference, locked_rules=[text], **SMALL).fit(X, y)
            keys = [r.antecedent for r in model.rules_]
            assert parse_rule(text, model.rules_.partition).antecedent in keys
            with pytest.raises(ValueError, match="locked"):
                model.remove_rule(keys.index(parse_rule(text, model.rules_.partition).antecedent))
    expert = quick(expert_rules=["petal width is at least Medium and sepal width is Low -> virginica"]).fit(X, y)
    assert expert.rules_[0].features == ("petal width", "sepal width") or expert.rules_[0].features == ("sepal width", "petal width")


def test_prune_lock_and_pareto(iris):
    X, y = iris
    model = quick(n_rules=10).fit(X, y)
    model.lock_rule(3)
    key = model.rules_[3].antecedent
    model.prune(X, y, threshold=1.0)
    assert len(model.rules_) < 10 and key in [r.antecedent for r in model.rules_] and model.predict(X).shape == (150,)
    front = FuzzyRuleClassifier(pareto=True, **SMALL).fit(X, y)
    assert len(front.front_) >= 1 and {"rules", "conditions"} <= set(front.front_.columns)
    for i in range(len(front.front_)):
        front.select_pareto_solution(i)
        assert len(front.rules_) == front.front_.rules[i] and front.predict(X).shape == (150,)
    mixed = FuzzyRuleClassifier(pareto=True, inference="mixture", **SMALL).fit(X, y).remove_rule(0)
    mixed.select_pareto_solution(0)
    if mixed.mixture_rules_[0] != tuple(r.antecedent for r in mixed.rules_):
        with pytest.raises(RuntimeError, match="fit_mixture"):
            mixed.predict(X)
    with pytest.raises(ValueError, match="pareto=True"):
        model.select_pareto_solution(0)


# ---------------------------------------------------------------- calibration

def test_calibration_by_folds_helps_a_model_that_is_too_sure():
    def noisy(n, seed):
        rng = np.random.default_rng(seed)
        Z = rng.normal(size=(n, 5))
        return Z, (Z[:, 0] * Z[:, 1] + rng.logistic(0, 1, n) > 0).astype(int)

    (X, y), (X2, y2) = noisy(250, 0), noisy(3000, 1)
    raw = quick(n_rules=15, mixture_C=30.0).fit(X, y)
    for kind in ("temperature", "sigmoid", "isotonic"):
        model = quick(n_rules=15, mixture_C=30.0, calibration=kind).fit(X, y)
        p = model.predict_proba(X2)
        assert np.allclose(p.sum(axis=1), 1) and p.min() > 0 and model.rules_ == raw.rules_
        assert calibration_error(p, y2) < calibration_error(raw.predict_proba(X2), y2) and log_loss(y2, p) < log_loss(y2, raw.predict_proba(X2))
        assert (model.predict(X2) == model.classes_[p.argmax(axis=1)]).all()


def test_temperature_keeps_the_order_and_unknown_kinds_are_refused(iris):
    s = np.random.default_rng(0).normal(size=(50, 3))
    assert (fit_calibration(s, np.arange(50) % 3, "temperature")(s).argmax(axis=1) == s.argmax(axis=1)).all()
    assert reliability_curve(np.full((9, 3), 1 / 3), np.arange(9) % 3)["observed"].tolist() == pytest.approx([1 / 3])
    with pytest.raises(ValueError, match="calibration"):
        quick(calibration="magic").fit(*iris)
    with pytest.warns(UserWarning, match="has one row"):
        assert quick(calibration="sigmoid").fit(iris[0], ["a"] * 149 + ["b"]).calibration_ is None


# ---------------------------------------------------------------- bad input

def test_bad_input(iris):
    X, y = iris
    with pytest.raises(ValueError, match="single class 'a'.*at least 2 classes"):
        quick().fit(X, ["a"] * 150)
    with pytest.raises(ValueError, match="'petal width' contains NaN.*row 3"):
        quick().fit(X.assign(**{"petal width": np.where(np.arange(150) == 3, np.nan, 1.0 * np.arange(150))}), y)
    with pytest.raises(ValueError, match="x2.*inf"):
        quick().fit(np.column_stack([np.arange(4.0), [0, 1, 2, np.inf]]), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="y contains NaN"):
        quick().fit(X, [np.nan] + [1.0] * 149)
    with pytest.raises(ValueError, match="'petal width' contains NaN"):
        quick().fit(X, y).predict(X.assign(**{"petal width": np.nan}))
    for name, value in dict(n_rules=0, n_terms=1, n_antecedents=2.5, inference="sum", search="luck", tolerance=-1, mixture_C=0.0, ds_mode=3, t_norm="max",
                            mixture_prune_threshold=-0.1, stop="never").items():
        with pytest.raises(ValueError, match=name):
            quick(**{name: value}).fit(X, y)
    with pytest.raises(ValueError, match="'town' has 60 different levels"):
        quick().fit(pd.DataFrame({"town": [f"t{i}" for i in range(60)]}), np.arange(60) % 2)


def test_one_row_of_a_class_constant_columns_and_too_many_rules(iris):
    X, y = iris
    assert quick().fit(X, ["a"] * 149 + ["b"]).classes_.tolist() == ["a", "b"]
    assert FuzzyRuleClassifier(**SMALL).fit(X, ["a"] * 149 + ["b"]).predict(X).shape == (150,)
    with pytest.warns(UserWarning, match="'planet' has the single value Earth"):
        model = quick().fit(X.assign(planet="Earth"), y)
    assert all("planet" not in r.features for r in model.rules_)
    with pytest.warns(UserWarning, match="n_rules=500"):
        model = quick(n_rules=500, n_antecedents=1).fit(X, y)
    assert len(model.rules_) <= 12
    with pytest.warns(UserWarning, match="n_rules=500"):
        FuzzyRuleClassifier(**{**SMALL, "n_rules": 500, "n_antecedents": 1}).fit(X, y)
    with pytest.raises(ValueError, match="'petal width' occurs twice"):
        quick().fit(pd.concat([X, X[["petal width"]]], axis=1), y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for search in ("greedy", "genetic"):
            alone = FuzzyRuleClassifier(search=search, inference="mixture", **SMALL).fit(np.ones((10, 2)), [0] * 7 + [1] * 3)
            assert len(alone.rules_) == 0 and (alone.predict(np.ones((3, 2))) == 0).all() and np.allclose(alone.predict_proba(np.ones((1, 2))), [[.7, .3]])


# ---------------------------------------------------------------- what it must reach

@pytest.mark.parametrize("load, loss_12, loss_6, f1", [(load_iris, .135, .16, .955), (load_wine, .135, .18, .962), (load_breast_cancer, .105, .12, .963)])
def test_marks_of_the_greedy_search(load, loss_12, loss_6, f1):
    X, y = load(return_X_y=True)
    said = {12: [], 6: []}
    for a, b in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        for R in said:
            m = quick(n_rules=R, ordinal=True, mixture_C=2.0).fit(X[a], y[a])
            said[R].append((log_loss(y[b], m.predict_proba(X[b])), f1_score(y[b], m.predict(X[b]), average="macro")))
            assert len(m.rules_) <= R and max(len(r.conditions) for r in m.rules_) <= 2
    assert np.mean(said[12], axis=0)[0] <= loss_12 and np.mean(said[12], axis=0)[1] >= f1 and np.mean(said[6], axis=0)[0] <= loss_6


@pytest.mark.parametrize("load, loss", [(load_iris, .20), (load_wine, .22), (load_breast_cancer, .14)])
def test_marks_of_the_genetic_default_with_a_mixture(load, loss):
    X, y = load(return_X_y=True)
    said = []
    for a, b in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        said.append(log_loss(y[b], FuzzyRuleClassifier(inference="mixture").fit(X[a], y[a]).predict_proba(X[b])))
    assert np.mean(said) <= loss


# ---------------------------------------------------------------- rules changed by hand

def test_a_waterfall_shows_the_first_explained_row_and_refuses_others(iris, plt):
    X, y = iris
    for inference in ("mixture", "winning_rule"):
        model = quick(inference=inference).fit(X, y)
        for i in (0, 70, 149, -1):
            assert model.explain_local(X, i).rows == [i % 150] and model.explain_local(X, i).plot().get_xlabel()
        with pytest.raises(ValueError, match="row 0 is not explained here; the explained rows are 70"):
            model.explain_local(X, 70).plot(0)
        with pytest.raises(ValueError, match="there is no row 150 in X; its rows are numbered 0 to 149"):
            model.explain_local(X, 150)
    with pytest.raises(ValueError, match="no class 'rose'.*setosa"):
        quick().fit(X, y).explain_local(X, 70).plot(first="rose")
    silent = FuzzyRuleClassifier(1, search="greedy", n_antecedents=1).fit(X, y)
    row = int(np.flatnonzero(silent.firing(X).max(axis=1) == 0)[0])
    assert [t.get_text() for t in silent.explain_local(X, row).plot().texts] == ["no rule fires"]


@pytest.mark.parametrize("kind", ["temperature", "sigmoid", "isotonic"])
@pytest.mark.parametrize("inference", ["mixture", "winning_rule"])
def test_a_calibration_is_never_lost_in_silence(kind, inference):
    X, y = load_breast_cancer(return_X_y=True)
    make = lambda: quick(inference=inference, calibration=kind).fit(X, y)
    plain = make().set_params(calibration=None)
    for change in (lambda m: m.remove_rule(0), lambda m: m.add_rule("x3 is Low -> 1")):
        model = make()
        change(model)
        if inference == "mixture":
            with pytest.raises(RuntimeError, match="fit_mixture"):
                model.predict_proba(X)
            assert model.fit_mixture(X, y).predict_proba(X).shape == (569, 2)                  # which calibrates again
        else:
            for call in (model.predict, model.predict_proba):
                with pytest.raises(RuntimeError, match=r"calibrate\(X, y\).*calibration=None"):
                    call(X)
            back = FuzzyRuleClassifier.from_json(model.to_json())
            with pytest.raises(RuntimeError, match="calibrate"):
                back.predict_proba(X)
            model.calibrate(X, y)
        p, raw = model.predict_proba(X), clone(model)
        assert np.abs(p - model.set_params(calibration=None).predict_proba(X)).max() > 1e-3 and raw.calibration == kind
    model = make().prune(X, y, threshold=0.3 if inference == "mixture" else 0.05)
    assert np.abs(model.predict_proba(X) - model.set_params(calibration=None).predict_proba(X)).max() > 1e-3
    with pytest.raises(ValueError, match="calibration is None"):
        plain.calibrate(X, y)


def test_a_calibration_belongs_to_one_inference_and_one_kind():
    X, y = load_breast_cancer(return_X_y=True)
    model = quick(inference="winning_rule", calibration="sigmoid").fit(X, y)
    before = model.predict_proba(X)
    model.set_params(inference="mixture").fit_mixture(X, y)
    assert log_loss(y, model.predict_proba(X)) < log_loss(y, before)
    model.set_params(inference="winning_rule")
    with pytest.raises(RuntimeError, match="calibrate"):
        model.predict(X)
    assert model.calibrate(X, y).predict(X).shape == (569,)
    with pytest.raises(RuntimeError, match="calibrate"):
        model.set_params(calibration="isotonic").predict(X)
    changed = quick(calibration="sigmoid").fit(X, y)
    first = changed.predict_proba(X)
    changed.remove_rule(5).add_rule(quick().fit(X, y).rules_[5])
    assert np.allclose(changed.predict_proba(X), first)                   # the same rules again: weights and calibration hold
    with pytest.warns(UserWarning, match="class 1 has one row"):
        assert changed.calibrate(X[y == 0], np.r_[1, y[y == 0][1:]]).calibration_ is None
    assert "Calibrated, the most probable class is" in quick(calibration="temperature").fit(X, y).explain_local(X, 3).to_text()


LOCKED = ["petal width is High -> virginica", "petal width is High -> versicolor"]


@pytest.mark.parametrize("search", ["greedy", "genetic"])
@pytest.mark.parametrize("name", ["locked_rules", "expert_rules"])
def test_locked_rules_with_the_same_conditions(iris, search, name):
    X, y = iris
    make = lambda rules, **kw: FuzzyRuleClassifier(search=search, **{name: rules}, **SMALL, **kw).fit(X, y)
    with pytest.raises(ValueError, match=rf"{name}\[1\] .*versicolor.* contradicts {name}\[0\] .*virginica"):
        make(LOCKED)
    with pytest.warns(UserWarning, match=rf"{name}\[1\].*same conditions as {name}\[0\].*one rule, whose weights"):
        model = make(LOCKED, inference="mixture")
    keys = [r.antecedent for r in model.rules_]
    assert keys.count(parse_rule(LOCKED[0], model.rules_.partition).antecedent) == 1 or name == "expert_rules"
    with pytest.warns(UserWarning, match="says nothing new"):
        make([LOCKED[0], LOCKED[0].replace("is High", "is high")])
    with pytest.warns(UserWarning, match="says nothing new"):
        taken = make(["petal width is High", LOCKED[1]])                      # a rule without a class takes that of its repeat
    assert name == "expert_rules" or "versicolor" in [r.consequent for r in taken.rules_ if r.antecedent in taken.locked_]


def test_a_locked_rule_and_an_experts_rule(iris):
    X, y = iris
    with pytest.raises(ValueError, match=r"expert_rules\[0\].*contradicts locked_rules\[0\]"):
        FuzzyRuleClassifier(locked_rules=LOCKED[:1], expert_rules=LOCKED[1:], **SMALL).fit(X, y)
    model = FuzzyRuleClassifier(locked_rules=LOCKED[:1], expert_rules=LOCKED[:1], **SMALL).fit(X, y)       # the same thing twice over: no complaint
    assert [r.consequent for r in model.rules_ if r.antecedent in model.locked_] == ["virginica"]


def test_contradictions_are_not_added_by_hand(iris):
    X, y = iris
    model = quick(inference="winning_rule", locked_rules=LOCKED[:1]).fit(X, y)
    with pytest.raises(ValueError, match=r"contradicts rule 0.*remove_rule\(0\)"):
        model.add_rule(LOCKED[1])
    with pytest.warns(UserWarning, match="repeats rule 0"):
        model.add_rule(LOCKED[0])


def test_every_public_method_asks_for_a_fit(iris):
    X, y = iris
    arguments = {"add_rule": ("petal width is High -> setosa",), "remove_rule": (0,), "lock_rule": (0,), "select_pareto_solution": (0,), "to_json": (), "to_dict": (),
                 "save": ("nowhere.json",), "to_text": (), "to_latex": (), "mixture_text": (), "print_mixture": (), "explain_global": (),
                 "plot_surface": (X, y, ["petal length", "petal width"]), **{k: (X, y) for k in ("fit_mixture", "calibrate", "prune", "score")},
                 **{k: (X,) for k in ("predict", "predict_proba", "decision_function", "firing", "mixture_scores", "mixture_contributions", "explain_local",
                                      "coverage_report", "plot_terms")}}
    other = {"fit", "from_dict", "from_json", "load", "get_params", "set_params", "get_metadata_routing", "set_fit_request", "set_score_request"}
    public = {name for name in dir(FuzzyRuleClassifier) if not name.startswith("_") and callable(getattr(FuzzyRuleClassifier, name))}
    assert public - other == set(arguments)
    for inference in ("winning_rule", "mixture"):
        for name, given_ in arguments.items():
            with pytest.raises(NotFittedError, match="not fitted yet"):
                getattr(FuzzyRuleClassifier(inference=inference), name)(*given_)


@pytest.mark.parametrize("unknown", [False, True])
def test_pruning_everything_by_hand_says_what_is_left(iris, unknown):
    X, y = iris
    model = quick(allow_unknown=unknown).fit(X, y)
    with pytest.warns(UserWarning, match="no rule is left.*" + ("unknown" if unknown else "largest bias")):
        model.prune(X, y, threshold=1e6)
    assert np.allclose(model.predict_proba(X), 1 / 3) and len(set(model.predict(X))) == 1
    winner = quick(inference="winning_rule", allow_unknown=unknown).fit(X, y)
    with pytest.warns(UserWarning, match="no rule is left.*" + ("unknown" if unknown else "most frequent")):
        winner.prune(X, y, threshold=1.0)
    assert np.allclose(winner.predict_proba(X), winner.class_prior_)
    one = quick(n_rules=1).fit(X, y)
    with pytest.warns(UserWarning, match="no rule is left"):
        one.remove_rule(0)
    with pytest.raises(ValueError, match="no rule is left"):
        one.remove_rule(0)
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="none of 4 has an effect above the threshold of 1e[+]06"):
        assert len(prune_by_mixture(rng.random((50, 4)), np.arange(50) % 2, 2, threshold=1e6)[0]) == 0


def test_what_is_no_stored_model_is_said(iris, fitted, tmp_path):
    for text, said in (("{}", "holds nothing"), ("not json", "'not json' is neither"), ("", "'' is neither"), ("[]", "neither"), ("3", "neither"),
                       ('{"kind": "other"}', "holds 'kind'"), ('{"format": "other", "version": 1}', "format is 'other'"), (fitted.to_json()[:99], "no complete JSON")):
        with pytest.raises(ValueError, match=said):
            FuzzyRuleClassifier.from_json(text)
    with pytest.raises(ValueError, match="version 7; this mixlit reads version 1"):
        FuzzyRuleClassifier.from_dict({**fitted.to_dict(), "version": 7})
    with pytest.raises(ValueError, match="incomplete: 'base' missing"):
        FuzzyRuleClassifier.from_dict({k: v for k, v in fitted.to_dict().items() if k != "base"})
    with pytest.raises(ValueError, match="not an object of type int"):
        FuzzyRuleClassifier.from_json(3)
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(ValueError, match="but a list"):
        FuzzyRuleClassifier.from_json(tmp_path / "list.json")
    with pytest.raises(FileNotFoundError):
        FuzzyRuleClassifier.load(tmp_path / "gone.json")
    with pytest.raises(ValueError, match="lacks 'columns', 'rules', 't_norm'"):
        FuzzyRuleBase.from_json("{}")
    fitted.save(tmp_path / "m.json")
    assert FuzzyRuleClassifier.from_json(str(tmp_path / "m.json")).rules_ == FuzzyRuleClassifier.from_json("\n " + fitted.to_json()).rules_ == fitted.rules_


@pytest.mark.parametrize("terms, said", [({}, "has no terms"), ({"f": lambda v: v}, "term 'f' gives the membership 1.4 at the value 1.4"),
                                         ({"f": lambda v: np.where(v > 2, np.nan, 1)}, "gives the membership nan at the value 2.5"), ({"f": lambda v: -np.ones(len(v))}, "-1"),
                                         ({"f": lambda v: 0.5}, r"shape \(\) for 150 values"), ({"f": 0.5}, "term 'f' is 0.5"), ({"f": lambda v: 1 if v > 1 else 0}, "cannot be computed"),
                                         ({3: Trapezoid(0, 1, 2, 3)}, "name of a term must be a text"), ({"f": Level(("a",))}, "holds 'a', but the column holds numbers")])
def test_expert_terms_are_checked(iris, terms, said):
    X, y = iris
    with pytest.raises(ValueError, match=f"'petal width'.*{said}"):
        quick(partitions={"petal width": terms}).fit(X, y)


def test_expert_terms_of_the_wrong_kind(iris):
    X, y = iris
    for kinds in (["a", "b"] * 75, ["a"] * 150):
        with pytest.raises(ValueError, match="'kind', term 't' is for numbers, but the column holds 'a'"):
            quick(partitions={"kind": {"t": Trapezoid(0, 1, 2, 3)}}).fit(X.assign(kind=kinds), y)
    with pytest.raises(ValueError, match="partitions holds 3 for column 'petal width'"):
        quick(partitions={"petal width": 3}).fit(X, y)
    with pytest.raises(ValueError, match="partitions holds 'petal'"):
        quick(partitions=["petal"]).fit(X, y)
    twice = LinguisticVariable("petal width", {"t": Trapezoid(0, 1, 2, 3)})
    with pytest.raises(ValueError, match="'petal width' twice"):
        quick(partitions=[twice, twice]).fit(X, y)


def test_rules_are_readable_while_weights_are_missing(iris, plt):
    X, y = iris
    model = quick().fit(X, y)
    old = model.mixture_.coef_.copy()
    model.add_rule("sepal width is Low -> versicolor")
    text = model.to_text()
    assert text.startswith("These weights cannot be used: the rules changed") and "fit_mixture" in text.splitlines()[0]
    assert text.endswith("sepal width is Low (up to 2.8-2.97) THEN versicolor (no weights yet)") or text.endswith("THEN versicolor (no weights yet)")
    assert model.mixture_text().endswith("; no weights yet") and model.to_latex().startswith("% These weights") and "sepal width is Low" in model.to_latex()
    frame = model.explain_global(X).to_frame()
    assert np.isnan(frame["for setosa"].iloc[-1]) and np.allclose(frame["for setosa"][:-1], old[:, 0]) and pd.isna(frame.strongest.iloc[-1])
    assert model.explain_global().plot().get_xlabel()
    assert FuzzyRuleClassifier.from_json(model.to_json()).to_text() == text
    model.remove_rule(0)
    assert "no weights yet" in model.to_text() and model.explain_global().to_frame()["for setosa"].iloc[0] == old[1, 0]
    never = quick(inference="winning_rule").fit(X, y).set_params(inference="mixture")
    assert never.to_text().count("no weights yet") == len(never.rules_) and "no mixture weights yet" in never.to_text() and never.explain_global().plot().get_xlabel()


HOSTILE = ["this is it", "salt and pepper", "a -> b", "IF", "is", "x THEN y", "THEN", "b AND c is High", "or", "IF a", "-> z", "from", "a (b)", "x"]


@given(st.integers(0, 100_000))
@settings(max_examples=150, deadline=None)
def test_rules_with_hostile_names_survive_text(seed):
    rng = np.random.default_rng(seed)
    partition = make_partition(pd.DataFrame(np.random.default_rng(0).random((40, len(HOSTILE))), columns=HOSTILE), n_terms=4)
    literals, classes = term_literals(partition, ordinal=True), ["yes", "a -> b", "x THEN y"]
    columns = rng.choice(len(HOSTILE), rng.integers(0, 4), replace=False)
    rule = FuzzyRule(tuple(literals.condition(int(rng.choice(np.flatnonzero(literals.column == c)))) for c in columns), [None, *classes][rng.integers(4)])
    for text in (str(rule), rule.to_text(partition)):
        back = parse_rule(text, partition, classes)
        assert back.antecedent == rule.antecedent and back.consequent == rule.consequent
    assert FuzzyRuleBase([rule], partition).to_frame()["then"].tolist() == [rule.consequent]


def test_a_text_with_two_meanings_is_refused():
    shapes = {"Low": Trapezoid(-np.inf, -np.inf, 1, 2), "Low -> c": Trapezoid(1, 2, np.inf, np.inf)}
    partition = make_partition(pd.DataFrame({"b": np.arange(4.5, step=0.5)}), {"b": shapes})
    with pytest.raises(ValueError, match="can be read in 2 ways; give a FuzzyRule"):
        parse_rule("b is Low -> c", partition)
    assert parse_rule("b is Low -> c", partition, ["d"]).consequent is None and parse_rule("b is Low -> c -> d", partition, ["d"]).consequent == "d"


def test_a_front_from_the_greedy_search_is_refused(iris):
    with pytest.raises(ValueError, match="pareto=True needs search='genetic'"):
        quick(pareto=True).fit(*iris)


def test_messages_show_plain_numbers_and_no_minus_zero(iris):
    X, y = iris
    Z = pd.DataFrame({"k": [0, 1, 2, 3] * 25, "x": np.linspace(0, 1, 100)})
    model = quick(n_rules=3).fit(Z, (Z.k > 1).astype(int))
    with pytest.warns(UserWarning, match="column 'k' holds 2.5 in 1 of 1 rows"):
        model.predict(pd.DataFrame({"k": [2.5], "x": [.5]}))
    far = [Z.assign(k=9.0).iloc[:1], Z.assign(k=3.0).iloc[:1]]
    assert (model.firing(far[0]) == model.firing(far[1])).all()          # beyond the range: clipped, also among crisp terms
    for name in ("n_rules", "tolerance", "mixture_C", "inference", "ds_mode"):
        with pytest.raises(ValueError) as error:
            quick(**{name: np.float64(-2.5)}).fit(X, y)
        assert "np." not in str(error.value) and "-2.5" in str(error.value)
    with pytest.raises(ValueError) as error:
        model.remove_rule(np.int64(99))
    assert "there is no rule 99" in str(error.value)
    texts = quick(n_rules=12, mixture_non_negative=True).fit(X, y)
    assert not any("-0.00" in t for t in (texts.to_text(), texts.to_latex(), texts.mixture_text(), texts.explain_local(X).to_text()))


def test_allow_unknown_counts_in_the_objective(iris):
    X, y = iris
    for unknown in (False, True):
        model = FuzzyRuleClassifier(allow_unknown=unknown, **{**SMALL, "n_rules": 2}).fit(X, y)
        covered, conditions = len({r.consequent for r in model.rules_}), sum(len(r.conditions) for r in model.rules_)
        objective = f1_score(y, model.predict(X), average="macro", labels=model.classes_) - 0.05 * (1 - covered / 3) - 0.03 * conditions / 4
        assert np.isclose(model.history_.best.iloc[-1], objective)


def test_a_rule_without_a_class_speaks_in_a_mixture_alone(iris):
    X, y = iris
    model = quick().fit(X, y).add_rule("sepal width is High").fit_mixture(X, y)
    assert model.predict(X).shape == (150,) and model.rules_[-1].consequent is None and "THEN" in model.to_text().splitlines()[-1]
    model.set_params(inference="winning_rule")
    for call in (lambda: model.predict(X), lambda: model.prune(X, y)):
        with pytest.raises(ValueError, match="rule 6 .*sepal width is High.*has no class"):
            call()
    with pytest.raises(ValueError, match="has no class"):
        quick(inference="winning_rule").fit(X, y).add_rule("sepal width is High")


def test_latex_has_minus_signs(iris, fitted):
    assert "& $-" in fitted.to_latex() and "& $+" in fitted.to_latex() and fitted.to_latex().count("$") == 2 * 3 * len(fitted.rules_)
    assert "& $0." in quick(inference="winning_rule").fit(*iris).to_latex()


@pytest.mark.parametrize("inference", ["mixture", "winning_rule"])
def test_local_explanations_of_many_rows(inference):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 4))
    model = quick(inference=inference, n_rules=3).fit(X[:500], (X[:500, 0] + X[:500, 1] > 0).astype(int))
    F, explained = model.firing(X), model.explain_local(X)                 # one table for all rows, not one a row
    frame = explained.to_frame()
    assert len(frame) == (F > 0).sum() + (len(F) if inference == "mixture" else 0) and explained.rows == list(range(20_000))
    if inference == "mixture":
        assert np.allclose(frame.groupby("row")[["for 0", "for 1"]].sum(), model.mixture_scores(X))
    else:
        decides = frame[frame.decides].set_index("row").then
        assert (decides.to_numpy() == model.predict(X)[decides.index]).all() and len(decides) == (F.max(axis=1) > 0).sum()
    again = pickle.loads(pickle.dumps(model.explain_local(X[:5])))
    assert again.to_text() == model.explain_local(X[:5]).to_text() and again.to_text().splitlines()[0].startswith("Row 0 is")
