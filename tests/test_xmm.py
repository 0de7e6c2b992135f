"""The XMM estimator: scikit-learn's conventions, its densities checked numerically, explanations, bad input."""
import inspect
import json
import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from mixlit.generators import make_boxes, make_parity
from mixlit.rules import RuleSet
from mixlit.xmm import XMM

TREE = dict(init="tree", random_state=0)  # no gradient steps: fractions of a second
SHORT = dict(n_steps=80, batch_size=256)  # few gradient steps, where the result need not be good


def make_people(n=800, seed=0):
    """A table with one column of every kind; the target depends on smoker, bmi and region."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({
        "age": rng.integers(18, 65, n),
        "bmi": rng.normal(30, 6, n).round(1),
        "smoker": rng.choice(["yes", "no"], n, p=[0.3, 0.7]),
        "region": pd.Categorical(rng.choice(["NE", "NW", "SE", "SW"], n)),
        "member": rng.random(n) < 0.5,
        "noise": rng.random(n),
    })
    smoker, north = X["smoker"] == "yes", X["region"].isin(["NE", "NW"])
    mean = np.select([smoker & (X["bmi"] >= 30), smoker, north], [40.0, 22.0, 5.0], 10.0)
    y = pd.Series(mean + rng.normal(0, 1.0, n) + 3.0 * (rng.random(n) < 0.3), name="charges")
    return X, y


@pytest.fixture(scope="module")
def people():
    return make_people()


@pytest.fixture(scope="module")
def fitted(people):
    """A fitted model of the people, not to be changed."""
    return XMM(**TREE).fit(*people)


@pytest.fixture(scope="module")
def corner():
    """An array in which one corner differs from the rest."""
    rng = np.random.default_rng(4)
    X = rng.random((2000, 3))
    inside = (X[:, 0] > 0.6) & (X[:, 1] > 0.5)
    y = np.where(inside, rng.normal(6, 0.3, 2000), rng.normal(0, 1, 2000))
    return X, y


def wide_grid(y, points=20_001, margin=8):
    return np.linspace(y.min() - margin * y.std(), y.max() + margin * y.std(), points)


def repeat_row(X, i, n):
    """Row i of X, n times."""
    return X.iloc[np.repeat(i, n)] if isinstance(X, pd.DataFrame) else np.repeat(X[[i]], n, axis=0)


# ---------------------------------------------------------------- conventions


def test_defaults():
    defaults = XMM().get_params()
    expected = dict(n_rules=40, density="gmm", n_components="auto", overlap_penalty=0.3, select="bic", refine=True,
                    min_scale="auto", random_state=None, verbose=False)
    assert {name: defaults[name] for name in expected} == expected
    start, end = defaults["temperature"]
    assert start > end > 0
    starts = defaults["init"] if isinstance(defaults["init"], tuple) else (defaults["init"],)
    assert set(starts) <= {"tree", "kmeans++", "random"}


def test_constructor_only_stores():
    strange = dict(n_rules=-3, density=object(), temperature="cold", init=None)
    model = XMM(**strange)
    for name, value in strange.items():
        assert getattr(model, name) is value
    assert all(p.kind is not p.VAR_KEYWORD for p in inspect.signature(XMM.__init__).parameters.values())


def test_the_papers_procedure():
    model = XMM.paper()
    assert type(model) is XMM
    assert model.init == "kmeans++" and model.refine is False and model.select == "bic"
    assert XMM.paper(n_rules=7, random_state=3).get_params()["n_rules"] == 7
    assert clone(model).get_params() == model.get_params()


NEEDS_TARGET = "score_samples(X, y) is the log density of y given x, so it cannot be called with X alone"
EXPECTED_FAILURES = {
    "check_methods_sample_order_invariance": NEEDS_TARGET,
    "check_methods_subset_invariance": NEEDS_TARGET,
}


@parametrize_with_checks([XMM(init="tree", n_rules=10), XMM(init="kmeans++", n_rules=4, n_steps=3)],
                         expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_scikit_learn_conventions(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks fit tables of a few rows, which mixlit warns about
        check(estimator)


def test_answers_do_not_depend_on_the_other_rows(people, fitted):
    """What the two checks above cannot test."""
    X, y = people
    order = np.random.default_rng(0).permutation(len(X))
    for method in (fitted.score_samples, fitted.responsibilities, fitted.cdf):
        whole = method(X, y)
        np.testing.assert_allclose(method(X.iloc[order], y.iloc[order]), whole[order], rtol=1e-12)
        np.testing.assert_allclose(np.concatenate([method(X[i:i + 100], y[i:i + 100]) for i in range(0, 800, 100)]),
                                   whole, rtol=1e-12)


def test_clone_and_parameters():
    model = XMM(n_rules=7, init=("tree", "random"), random_state=5)
    again = clone(model)
    assert again is not model and again.get_params() == model.get_params()
    assert again.set_params(n_rules=3).n_rules == 3
    with pytest.raises(ValueError, match="n_ruels"):
        model.set_params(n_ruels=3)


def test_fit_returns_self_and_learns_names(people):
    X, y = people
    model = XMM(**TREE)
    assert model.fit(X, y) is model
    assert model.n_features_in_ == 6
    assert list(model.feature_names_in_) == list(X.columns)


def test_unfitted_model_says_so(people):
    X, y = people
    for call in (lambda m: m.predict(X), lambda m: m.score_samples(X, y), lambda m: m.gating(X),
                 lambda m: m.sample(X), lambda m: m.cdf(X, y), lambda m: m.explain_global(),
                 lambda m: m.explain_local(X), lambda m: m.responsibilities(X, y), lambda m: m.to_dict()):
        with pytest.raises(NotFittedError):
            call(XMM())


def test_input_is_left_as_it_was(people):
    X, y = people
    X_before, y_before = X.copy(deep=True), y.copy(deep=True)
    XMM(**TREE).fit(X, y).predict(X)
    pd.testing.assert_frame_equal(X, X_before)
    pd.testing.assert_series_equal(y, y_before)


def test_index_of_the_table_plays_no_part(people, fitted):
    X, y = people
    order = np.random.default_rng(0).permutation(len(X)) + 1000
    other = XMM(**TREE).fit(X.set_axis(order), y.set_axis(order[::-1]))
    np.testing.assert_array_equal(other.score_samples(X, y), fitted.score_samples(X, y))


def test_pickle(people, fitted):
    X, y = people
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.score_samples(X, y), fitted.score_samples(X, y))
    assert again.rules_ == fitted.rules_


def test_grid_search(people):
    X, y = people
    search = GridSearchCV(XMM(**TREE), {"n_rules": [1, 10]}, cv=2, error_score="raise").fit(X, y)
    assert search.best_params_ == {"n_rules": 10}
    assert search.score(X, y) == pytest.approx(search.best_estimator_.score(X, y))


def test_pipeline(corner):
    X, y = corner
    pipeline = make_pipeline(StandardScaler(), XMM(**TREE)).fit(X, y)
    np.testing.assert_allclose(pipeline.predict(X), XMM(**TREE).fit(X, y).predict(X), rtol=1e-6)
    assert pipeline.score(X, y) == pytest.approx(XMM(**TREE).fit(X, y).score(X, y), rel=1e-6)


# ---------------------------------------------------------------- randomness


@pytest.mark.parametrize("init", ["kmeans++", "random", ("tree", "kmeans++")], ids=str)
def test_same_seed_same_model(init, corner):
    X, y = corner
    one, two = (XMM(n_rules=8, init=init, random_state=11, **SHORT).fit(X[:600], y[:600]) for _ in range(2))
    assert one.rules_ == two.rules_
    np.testing.assert_array_equal(one.score_samples(X, y), two.score_samples(X, y))
    pd.testing.assert_frame_equal(one.history_, two.history_)


def test_global_random_state_is_left_alone(corner):
    torch = pytest.importorskip("torch")
    X, y = corner
    np.random.seed(123)
    torch.manual_seed(123)
    expected = np.random.random(), torch.rand(1).item()
    np.random.seed(123)
    torch.manual_seed(123)
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    model = XMM(n_rules=4, init=("tree", "kmeans++", "random"), random_state=0, **SHORT)
    model.fit(X[:300], y[:300]).sample(X, random_state=1)
    assert (np.random.random(), torch.rand(1).item()) == expected
    assert (torch.get_num_threads(), torch.get_default_dtype()) == (threads, dtype)


def test_a_random_state_object_works(corner):
    X, y = corner
    one, two = (XMM(n_rules=4, init="kmeans++", random_state=np.random.RandomState(1), **SHORT).fit(X[:300], y[:300])
                for _ in range(2))
    np.testing.assert_array_equal(one.predict(X), two.predict(X))


# ---------------------------------------------------------------- rules in words


def test_rules_name_the_columns_that_matter(fitted):
    text = fitted.rules_.to_text()
    assert isinstance(fitted.rules_, RuleSet)
    assert "smoker = yes" in text and "smoker = no" in text
    assert "bmi" in text and "region" in text
    assert "noise" not in text
    assert "smoker_yes" not in text and "<= smoker" not in text and "smoker >=" not in text


@pytest.mark.parametrize("values, text", [
    (np.array(["yes", "no"], dtype=object), ("smoker = yes", "smoker = no")),
    (pd.array(["yes", "no"], dtype="string"), ("smoker = yes", "smoker = no")),
    (pd.Categorical(["yes", "no"]), ("smoker = yes", "smoker = no")),
    (pd.Categorical(["yes", "no"], categories=["no", "never seen", "yes"]), ("smoker = yes", "smoker = no")),
    (np.array([True, False]), ("smoker = True", "smoker = False")),
    (pd.array([True, False], dtype="boolean"), ("smoker = True", "smoker = False")),
    (pd.Categorical([1, 2]), ("smoker = 1", "smoker = 2")),
], ids=["object", "string", "category", "category with an unused level", "bool", "nullable bool", "numeric category"])
def test_every_kind_of_category(values, text):
    rng = np.random.default_rng(0)
    which = rng.integers(0, 2, 400)
    X = pd.DataFrame({"smoker": pd.Series(values).iloc[which].reset_index(drop=True), "x": rng.random(400)})
    y = rng.normal(10.0 * which, 1)
    model = XMM(**TREE).fit(X, y)
    assert sorted(rule.to_text(levels=model.rules_.levels) if "levels" in inspect.signature(rule.to_text).parameters
                  else rule.to_text() for rule in model.rules_) == sorted(text)
    np.testing.assert_allclose(model.predict(X), y, atol=6)
    np.testing.assert_array_equal(model.rules_.covers(X).sum(axis=1), 1)


def test_levels_are_sets_not_codes():
    """The first and the last level in any order belong together: no interval of codes can say so."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"c": rng.choice(list("abcde"), 1500), "x": rng.random(1500)})
    y = np.where(X["c"].isin(["a", "c", "e"]), 0.0, 8.0) + rng.normal(size=1500)
    model = XMM(**TREE).fit(X, y)
    found = [set(rule.conditions[0].levels) for rule in model.rules_]
    assert {"a", "c", "e"} in found
    assert set().union(*found) == set("abcde") and sum(map(len, found)) == 5


def test_integers_are_numbers(people):
    X, _ = people
    y = np.where(X["age"] >= 40, 5.0, 0.0) + np.random.default_rng(0).normal(size=len(X))
    assert sorted(rule.to_text() for rule in XMM(**TREE).fit(X, y).rules_) == ["age < 40", "age >= 40"]


def test_an_array_gets_names_by_position(corner):
    X, y = corner
    model = XMM(**TREE).fit(X, y)
    assert not hasattr(model, "feature_names_in_")
    assert len(model.rules_.feature_names) == 3
    assert len(set(model.rules_.feature_names)) == 3


def test_cuts_are_short_numbers():
    X, y = make_people(3000)
    bounds = [bound for rule in XMM(**TREE).fit(X, y).rules_ for c in rule.conditions if c.feature == "bmi"
              for bound in (c.low, c.high) if math.isfinite(bound)]
    assert bounds
    assert all(len(repr(float(bound))) <= 4 for bound in bounds)  # the data have one decimal: 29.9, 30.0


# ---------------------------------------------------------------- densities


@pytest.fixture(scope="module", params=["people", "corner", "soft"])
def model_and_data(request, people, corner):
    """Three models: a mixed table, rules that leave rows over, and the paper's procedure without refinement."""
    if request.param == "people":
        return XMM(**TREE).fit(*people), *people
    X, y = corner
    if request.param == "corner":
        return XMM(**TREE).fit(X, y), X, y
    return XMM.paper(n_rules=6, random_state=0, n_steps=150).fit(X[:800], y[:800]), X[:800], y[:800]


def test_gating_sums_to_one(model_and_data):
    model, X, y = model_and_data
    gating = model.gating(X)
    assert gating.shape == (len(y), len(model.rules_) + 1)
    assert (gating >= 0).all()
    np.testing.assert_allclose(gating.sum(axis=1), 1, atol=1e-12)


def test_weights_and_support_are_those_of_the_training_rows(model_and_data):
    model, X, y = model_and_data
    np.testing.assert_allclose(model.weights_, model.gating(X).mean(axis=0), atol=1e-9)
    np.testing.assert_array_equal(model.support_, model.rules_.support(X))


def leaves_rows_over(X, y):
    """A model some of whose rows no rule covers, and which: few and short gradient starts leave gaps."""
    for seed in range(10):
        model = XMM.paper(n_rules=4, n_steps=100, random_state=seed).fit(X[:600], y[:600])
        left = ~model.rules_.covers(X).any(axis=1)
        if left.any() and not left.all():
            return model, left
    raise AssertionError("every model covers all rows, so that nothing is tested")


def test_hard_rules_share_a_row_equally_and_leave_the_rest_to_otherwise(corner):
    X, y = corner
    model, left = leaves_rows_over(X, y)
    covers = model.rules_.covers(X)
    expected = np.column_stack([covers, left]).astype(float)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.gating(X), expected, atol=1e-12)


def test_density_integrates_to_one(model_and_data):
    model, X, y = model_and_data
    grid = wide_grid(np.asarray(y))
    otherwise = model.gating(X)[:, -1]
    for i in {0, 1, 2, 3, 4, int(otherwise.argmax()), int(np.asarray(y).argmax())}:
        density = np.exp(model.score_samples(repeat_row(X, i, len(grid)), grid))
        assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-4)


def test_prediction_is_the_mean_of_the_density(model_and_data):
    model, X, y = model_and_data
    grid = wide_grid(np.asarray(y))
    predicted = model.predict(X)
    assert predicted.shape == (len(y),)
    for i in range(0, len(y), len(y) // 7):
        density = np.exp(model.score_samples(repeat_row(X, i, len(grid)), grid))
        assert predicted[i] == pytest.approx(np.trapezoid(grid * density, grid), abs=1e-3 * np.std(y))


def test_cdf_is_the_integral_of_the_density(model_and_data):
    model, X, y = model_and_data
    grid = wide_grid(np.asarray(y))
    for i in (0, 5):
        rows = repeat_row(X, i, len(grid))
        density, cdf = np.exp(model.score_samples(rows, grid)), model.cdf(rows, grid)
        integral = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))])
        np.testing.assert_allclose(cdf, integral, atol=1e-3)
        assert (np.diff(cdf) >= -1e-12).all() and cdf[0] >= 0 and cdf[-1] <= 1 + 1e-12


def test_score_samples_is_the_mixture_of_gating_and_densities(model_and_data):
    model, X, y = model_and_data
    values = np.asarray(y)[:200]
    density = model.component_pdf(values)
    assert density.shape == (len(model.rules_) + 1, 200)
    by_hand = np.log((model.gating(X[:200]) * density.T).sum(axis=1))
    np.testing.assert_allclose(model.score_samples(X[:200], values), by_hand, rtol=1e-9, atol=1e-9)


def test_responsibilities_are_bayes_rule(model_and_data):
    model, X, y = model_and_data
    values = np.asarray(y)[:200]
    joint = model.gating(X[:200]) * model.component_pdf(values).T
    responsibilities = model.responsibilities(X[:200], values)
    np.testing.assert_allclose(responsibilities.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(responsibilities, joint / joint.sum(axis=1, keepdims=True), rtol=1e-7, atol=1e-12)


def test_score_is_the_mean_log_density(model_and_data):
    model, X, y = model_and_data
    assert model.score(X, y) == pytest.approx(model.score_samples(X, y).mean())


def test_population_is_a_density(model_and_data):
    model, X, y = model_and_data
    grid = wide_grid(np.asarray(y))
    assert np.trapezoid(model.population_pdf(grid), grid) == pytest.approx(1, abs=1e-4)
    expected = np.mean((np.asarray(y)[:, None] <= np.quantile(y, [0.25, 0.5, 0.75])), axis=0)
    below = [np.trapezoid(model.population_pdf(g), g) for g in
             (np.linspace(grid[0], q, 20_001) for q in np.quantile(y, [0.25, 0.5, 0.75]))]
    np.testing.assert_allclose(below, expected, atol=0.05)


def test_targets_far_away_have_finite_logs(model_and_data):
    model, X, y = model_and_data
    far = np.full(len(y), np.mean(y) + 1e6 * np.std(y))
    for values in (far, -far):
        scores = model.score_samples(X, values)
        assert np.isfinite(scores).all() and (scores < -1e3).all()
        responsibilities = model.responsibilities(X, values)
        np.testing.assert_allclose(responsibilities.sum(axis=1), 1, atol=1e-9)


def test_samples_follow_the_model(model_and_data):
    model, X, y = model_and_data
    drawn = model.sample(X, random_state=0)
    assert drawn.shape == (len(y),)
    np.testing.assert_array_equal(drawn, model.sample(X, random_state=0))
    assert not np.array_equal(drawn, model.sample(X, random_state=1))
    assert stats.kstest(model.cdf(X, drawn), "uniform").pvalue > 1e-5


# ---------------------------------------------------------------- selection, refinement, history


def n_bounds(model):
    return sum(rule.n_bounds for rule in model.rules_)


def test_bic_counts_rule_parameters_only():
    toy = make_boxes(n_regions=4, n_samples=1500, random_state=0)
    model = XMM(**TREE).fit(toy.X, toy.y)
    nll = -model.score_samples(toy.X, toy.y).sum()
    assert model.bic_ == pytest.approx(2 * nll + n_bounds(model) * np.log(1500), rel=1e-6)


def test_stages_tell_what_refinement_adds():
    toy = make_parity(n_samples=2000, random_state=0)
    model = XMM(n_rules=20, init="kmeans++", random_state=0).fit(toy.X, toy.y)
    stages = model.stages_
    assert isinstance(stages, pd.DataFrame) and {"stage", "rules", "nll"} <= set(stages.columns)
    names = stages["stage"].tolist()
    nll = dict(zip(names, stages["nll"]))
    assert [any(word in name for name in names) for word in ("soft", "harden", "refine")] == [True] * 3
    soft, hardened, refined = (next(nll[n] for n in names if word in n) for word in ("soft", "harden", "refine"))
    assert refined < hardened
    assert stages["rules"].iloc[-1] == len(model.rules_)
    assert nll[names[-1]] == pytest.approx(-model.score(toy.X, toy.y), abs=1e-3)
    kept = stages[stages["kept"]]
    assert len(kept) == 1 and kept["rules"].item() == len(model.rules_)
    assert kept["nll"].item() == pytest.approx(-model.score(toy.X, toy.y), rel=1e-12)
    assert kept["bic"].item() == pytest.approx(model.bic_, rel=1e-12)


def test_history_is_the_training_curve(corner):
    X, y = corner
    model = XMM(n_rules=6, init="kmeans++", random_state=0, n_steps=150).fit(X[:600], y[:600])
    history = model.history_
    assert isinstance(history, pd.DataFrame) and len(history) > 1
    assert {"step", "nll", "temperature"} <= set(history.columns)
    start, end = model.temperature
    assert history["temperature"].max() <= start * (1 + 1e-9) and history["temperature"].min() >= end * (1 - 1e-9)
    assert history["nll"].iloc[-10:].mean() < history["nll"].iloc[:3].mean()
    assert isinstance(XMM(**TREE).fit(X[:600], y[:600]).history_, pd.DataFrame)


@pytest.mark.parametrize("init", ["tree", "kmeans++", "random", ("tree", "kmeans++"), ("tree", "kmeans++", "random"),
                                  ["tree", "random"]], ids=str)
def test_every_start(init, corner):
    X, y = corner
    model = XMM(n_rules=8, init=init, random_state=0, n_steps=150).fit(X[:800], y[:800])
    assert 1 <= len(model.rules_) <= 8
    assert model.score(X[800:], y[800:]) > XMM(n_rules=1, **TREE).fit(X[:800], np.random.default_rng(0).permutation(
        y[:800])).score(X[800:], y[800:]) + 0.2


@pytest.mark.parametrize("refine", [True, False])
@pytest.mark.parametrize("most", [1, 3])
def test_no_more_rules_than_allowed(most, refine, people):
    X, y = people
    assert len(XMM(n_rules=most, refine=refine, **TREE).fit(X, y).rules_) <= most
    model = XMM(n_rules=10, max_rules=most, init=("tree", "kmeans++"), refine=refine, random_state=0, **SHORT).fit(X, y)
    assert len(model.rules_) <= most


def test_smallest_scale_is_a_floor():
    """With a floor, no spike: the density of an integer target stays below that of the floor's normal density."""
    rng = np.random.default_rng(0)
    X, y = rng.random((600, 3)), rng.integers(0, 4, 600)
    for floor in (0.3, 0.05):
        model = XMM(min_scale=floor, **TREE).fit(X, y)
        assert model.score_samples(X, y).max() <= stats.norm.logpdf(0, scale=floor) + 1e-9


def test_number_of_components_can_be_fixed(people):
    X, y = people
    model = XMM(n_components=1, **TREE).fit(X, y)
    assert model.score(X, y) < XMM(n_components=3, **TREE).fit(X, y).score(X, y)


# ---------------------------------------------------------------- explanations


def test_global_explanation(fitted):
    explanation = fitted.explain_global()
    frame = explanation.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == len(fitted.rules_) + 1
    text = explanation.to_text()
    for rule in fitted.rules_.to_frame()["rule"]:
        assert rule in text
        assert rule in set(frame["rule"])
    assert "otherwise" in text
    assert "smoker" in explanation._repr_html_()
    assert frame["weight"].to_numpy() == pytest.approx(fitted.weights_)


def test_local_explanation(people, fitted):
    X, _ = people
    rows = X.iloc[[0, 7]]
    explanation = fitted.explain_local(rows)
    frame = explanation.to_frame()
    assert isinstance(frame, pd.DataFrame)
    text = explanation.to_text()
    names = fitted.rules_.to_frame()["rule"]
    for row, gating in zip(range(2), fitted.gating(rows)):
        for k in np.flatnonzero(gating[:-1] > 0):
            assert names[k] in text
    assert isinstance(explanation._repr_html_(), str)


def test_nearest_bound_is_where_the_rules_that_hold_change(corner):
    """Across the named bound other rules hold; at no smaller distance, in any column, do they."""
    X, y = corner
    model = XMM(**TREE).fit(X, y)
    names = list(model.rules_.feature_names)
    frame = model.explain_local(X[:60]).to_frame()
    sd = X.std(axis=0)
    assert set(frame["row"]) == set(range(60))
    for entry in frame.itertuples():
        row = X[entry.row]
        holds = model.rules_.covers(row[None])[0]
        name, _, bound = entry.nearest_bound.split()
        j = names.index(name)
        assert abs(row[j] - float(bound)) == pytest.approx(entry.distance * sd[j], rel=0.02, abs=1e-3)
        for share, same in ((0.98, True), (1.02, False)):
            moved = row.copy()
            moved[j] += share * (float(bound) - row[j])
            assert np.array_equal(model.rules_.covers(moved[None])[0], holds) == same
        for other in range(3):
            for step in np.linspace(-0.97, 0.97, 41) * entry.distance * sd[other]:
                moved = row.copy()
                moved[other] += step
                np.testing.assert_array_equal(model.rules_.covers(moved[None])[0], holds)


def test_a_row_that_no_rule_covers_is_explained(corner):
    X, y = corner
    model, left = leaves_rows_over(X, y)
    assert (model.gating(X[left])[:, -1] == 1).all()
    explanation = model.explain_local(X[left][:1])
    assert len(explanation.to_frame()) >= 1
    assert "no rule" in explanation.to_text().lower()


def test_explanations_of_awkward_names_are_safe_html():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"<script>a&b": rng.choice(["<b>", "x"], 300), "x": rng.random(300)})
    y = rng.normal(np.where(X["<script>a&b"] == "x", 0, 9), 1)
    model = XMM(**TREE).fit(X, y)
    for html in (model.explain_global()._repr_html_(), model.explain_local(X[:2])._repr_html_()):
        assert "<script>" not in html and "<b>x" not in html and "&lt;script&gt;" in html


def test_plots_return_axes_and_draw_where_told(people, fitted, corner, plt):
    from matplotlib.axes import Axes
    X, y = corner
    trained = XMM(n_rules=4, init="kmeans++", random_state=0, **SHORT).fit(X[:300], y[:300])
    draw = [fitted.explain_global().plot, fitted.explain_local(people[0].iloc[:3]).plot, fitted.plot_densities,
            lambda ax=None: fitted.plot_gating("bmi", ax=ax), lambda ax=None: fitted.plot_gating("smoker", ax=ax),
            trained.plot_history, trained.plot_densities]
    for plot in draw:
        made = plot()
        assert isinstance(made, Axes)
        _, mine = plt.subplots()
        assert plot(ax=mine) is mine
        assert mine.has_data() or mine.images
        plt.close("all")


def test_gating_of_an_unknown_column_names_it(fitted):
    with pytest.raises(ValueError, match="'weight'"):
        fitted.plot_gating("weight")


# ---------------------------------------------------------------- saved as JSON


def refuse(token):
    raise AssertionError(f"{token} is not JSON")


def test_saved_model_is_the_same(model_and_data, tmp_path):
    model, X, y = model_and_data
    path = tmp_path / "model.json"
    model.save(path)
    json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    again = XMM.load(path)
    assert type(again) is XMM
    np.testing.assert_allclose(again.score_samples(X, y), model.score_samples(X, y), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-12)
    np.testing.assert_array_equal(again.gating(X), model.gating(X))
    assert again.rules_ == model.rules_
    assert again.bic_ == model.bic_
    assert again.explain_global().to_text() == model.explain_global().to_text()
    assert again.to_dict() == model.to_dict()
    assert again.get_params()["n_rules"] == model.get_params()["n_rules"]


def test_dictionary_is_plain_json(fitted, people):
    text = json.dumps(fitted.to_dict(), allow_nan=False)
    again = XMM.from_dict(json.loads(text))
    np.testing.assert_array_equal(again.gating(people[0]), fitted.gating(people[0]))
    np.testing.assert_array_equal(again.feature_names_in_, fitted.feature_names_in_)


def test_loaded_model_can_be_fitted_again(fitted, people):
    again = XMM.from_dict(json.loads(json.dumps(fitted.to_dict()))).fit(*people)
    assert again.rules_ == fitted.rules_


def test_something_else_is_not_loaded(tmp_path):
    (tmp_path / "other.json").write_text('{"format": "other"}')
    with pytest.raises(ValueError):
        XMM.load(tmp_path / "other.json")


# ---------------------------------------------------------------- units and odd but valid tables


@pytest.mark.parametrize("factor", [1e9, 1e-9, -1.0])
@pytest.mark.parametrize("init", ["tree", "kmeans++"])
def test_unit_of_the_target(factor, init, corner):
    X, y = corner[0][:800], corner[1][:800]
    settings = dict(init=init, n_rules=8, random_state=0, **SHORT)
    plain, scaled = XMM(**settings).fit(X, y), XMM(**settings).fit(X, factor * y)
    if factor > 0:  # a mirrored target is split into groups at other places
        assert scaled.rules_ == plain.rules_
        np.testing.assert_allclose(scaled.score_samples(X, factor * y), plain.score_samples(X, y) - np.log(factor),
                                   atol=1e-4)
        np.testing.assert_allclose(scaled.predict(X), factor * plain.predict(X), rtol=1e-4, atol=1e-4 * factor)
    else:
        assert scaled.score(X, -y) == pytest.approx(plain.score(X, y), abs=0.05)


@pytest.mark.parametrize("offset", [1e6, -1e6])
def test_origin_of_the_target(offset, corner):
    X, y = corner
    plain, moved = XMM(**TREE).fit(X, y), XMM(**TREE).fit(X, y + offset)
    assert moved.rules_ == plain.rules_
    np.testing.assert_allclose(moved.score_samples(X, y + offset), plain.score_samples(X, y), atol=1e-3)


@pytest.mark.parametrize("change", [lambda X: 1e9 * X, lambda X: 1e-9 * X, lambda X: X + 1e6, np.exp, lambda X: X**3],
                         ids=["large", "small", "moved", "exp", "cube"])
def test_unit_of_a_feature(change, corner):
    X, y = corner
    plain, changed = XMM(**TREE).fit(X, y), XMM(**TREE).fit(change(X), y)
    np.testing.assert_array_equal(changed.rules_.covers(change(X)), plain.rules_.covers(X))
    np.testing.assert_allclose(changed.score_samples(change(X), y), plain.score_samples(X, y), atol=1e-9)


def test_duplicated_rows(people):
    X, y = people
    twice = XMM(**TREE).fit(pd.concat([X, X, X]), pd.concat([y, y, y]))
    assert np.isfinite(twice.score_samples(X, y)).all()
    assert "smoker = yes" in twice.rules_.to_text()


@pytest.mark.parametrize("dtype", ["int64", "int8", "float32", "Int64", "Float64", "bool"])
def test_integer_like_targets(dtype, people):
    X, _ = people
    rng = np.random.default_rng(0)
    y = pd.Series((X["smoker"] == "yes").astype(int) if dtype == "bool" else
                  np.where(X["smoker"] == "yes", 8, 2) + rng.integers(0, 3, len(X)))
    if dtype == "bool":
        y ^= rng.random(len(y)) < 0.1
    model = XMM(**TREE).fit(X, y.astype(dtype))
    assert np.isfinite(model.score_samples(X, y.astype(dtype))).all()
    assert "smoker" in model.rules_.to_text()


def test_few_rows(corner):
    X, y = corner
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = XMM(**TREE).fit(X[:5], y[:5])
    assert np.isfinite(model.score_samples(X, y)).all()


def test_one_column():
    rng = np.random.default_rng(0)
    X = rng.random((500, 1))
    y = np.where(X[:, 0] > 0.5, 5.0, 0.0) + rng.normal(size=500)
    assert len(XMM(**TREE).fit(X, y).rules_) == 2


# ---------------------------------------------------------------- bad input


def fitted_names(model):
    """Attributes that scikit-learn reads as 'this model is fitted'."""
    return sorted(name for name in vars(model) if name.endswith("_") and not name.startswith("__"))


def must_refuse(model, X, y, *words):
    """Fit raises a ValueError with all the words, and leaves nothing fitted, new or half."""
    with pytest.raises(ValueError) as caught:
        model.fit(X, y)
    for word in words:
        assert word.lower() in str(caught.value).lower(), f"{word!r} is not in: {caught.value}"
    assert fitted_names(model) == []


def must_refuse_or_warn(model, X, y, *words):
    """Fit raises a ValueError, or warns and works; either message has all the words."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(X, y)
        except ValueError as error:
            text = str(error)
            assert fitted_names(model) == []
        else:
            text = "\n".join(str(w.message) for w in caught)
            assert np.isfinite(model.score_samples(X, y)).all()
    for word in words:
        assert word.lower() in text.lower(), f"{word!r} is not in: {text!r}"


@pytest.mark.parametrize("value, word", [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "inf")])
def test_bad_value_in_the_target(value, word, people):
    X, y = people
    y = y.copy()
    y.iloc[3] = value
    must_refuse(XMM(**TREE), X, y, "charges", word)
    must_refuse(XMM(**TREE), X, y.to_numpy(), "y", word)


def test_missing_value_in_a_nullable_target(people):
    X, y = people
    y = y.round().astype("Int64").copy()
    y.iloc[3] = pd.NA
    must_refuse(XMM(**TREE), X, y, "charges")


def test_words_as_target(people):
    X, y = people
    must_refuse(XMM(**TREE), X, y.astype(str).where(y.index > 0, "lots"), "charges", "lots")


def test_empty_table(people):
    X, y = people
    must_refuse(XMM(**TREE), X.iloc[:0], y.iloc[:0], "0")
    must_refuse(XMM(**TREE), np.zeros((0, 3)), np.zeros(0), "0")


def test_no_columns(people):
    X, y = people
    must_refuse_or_warn(XMM(**TREE), X[[]], y, "no column")


def test_one_row(people):
    X, y = people
    must_refuse(XMM(**TREE), X.iloc[:1], y.iloc[:1], "1")


def test_lengths_differ(people):
    X, y = people
    must_refuse(XMM(**TREE), X, y.iloc[:-1], "800", "799")


@pytest.mark.parametrize("column", ["bmi", "smoker"])
def test_missing_feature(column, people, fitted):
    """Missing cells are welcome in training; where training had none, a warning names the column."""
    X, y = people
    X = X.copy()
    X.loc[3, column] = None
    model = XMM(**TREE).fit(X, y)
    assert np.isfinite(model.score_samples(X, y)).all()
    with pytest.warns(UserWarning, match=f"'{column}' is missing in 1 of"):
        assert np.isfinite(fitted.predict(X)).all()


def test_a_column_without_any_value_is_refused_by_name(people):
    X, y = people
    must_refuse(XMM(**TREE), X.assign(fax=np.nan), y, "'fax'", "missing in all")


def test_dates_are_refused_by_name(people):
    X, y = people
    must_refuse(XMM(**TREE), X.assign(since=pd.Timestamp("2020-01-01")), y, "'since'", "2020-01-01")


def test_infinite_feature(people):
    X, y = people
    X = X.copy()
    X.loc[3, "bmi"] = np.inf
    must_refuse(XMM(**TREE), X, y, "bmi", "inf")


def test_constant_feature(people):
    X, y = people
    must_refuse_or_warn(XMM(**TREE), X.assign(year=2020), y, "year", "2020")


def test_constant_category(people):
    X, y = people
    must_refuse_or_warn(XMM(**TREE), X.assign(country="DE"), y, "country", "DE")


def test_constant_target(people):
    X, y = people
    must_refuse_or_warn(XMM(**TREE), X, y * 0 + 7.5, "charges", "7.5")


def test_all_rows_equal(people):
    X, y = people
    same = X.iloc[[0] * 50].reset_index(drop=True)
    must_refuse_or_warn(XMM(**TREE), same, pd.Series(np.full(50, 3.25), name="charges"), "3.25")


def test_all_feature_rows_equal(people):
    X, y = people
    same = X.iloc[[0] * 800].reset_index(drop=True)
    must_refuse_or_warn(XMM(**TREE), same, y, "bmi")


@pytest.mark.parametrize("init", ["tree", ("tree", "kmeans++")], ids=str)
def test_more_rules_than_rows(init, people):
    X, y = people
    must_refuse_or_warn(XMM(n_rules=40, init=init, random_state=0, **SHORT), X.iloc[:30], y.iloc[:30], "40", "30")


def test_thousands_of_levels():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"id": [f"person {i}" for i in range(3000)], "x": rng.random(3000)})
    must_refuse_or_warn(XMM(**TREE), X, rng.normal(size=3000), "id", "3000")


@pytest.mark.parametrize("wrong, words", [
    (dict(density="gaussian"), ["density", "gaussian", "gmm"]),
    (dict(init="forest"), ["init", "forest", "tree"]),
    (dict(init=("tree", "forest")), ["init", "forest"]),
    (dict(init=()), ["init"]),
    (dict(select="aic"), ["select", "aic", "bic"]),
    (dict(n_rules=0), ["n_rules", "0"]),
    (dict(n_rules=2.5), ["n_rules", "2.5"]),
    (dict(n_components=0), ["n_components", "0"]),
    (dict(n_components="many"), ["n_components", "many"]),
    (dict(overlap_penalty=-1), ["overlap_penalty", "-1"]),
    (dict(temperature=(0.1, 0)), ["temperature", "0"]),
    (dict(temperature=0.1), ["temperature", "0.1"]),
    (dict(min_scale=0), ["min_scale", "0"]),
    (dict(min_scale=-1), ["min_scale", "-1"]),
], ids=str)
def test_impossible_settings(wrong, words, people):
    X, y = people
    must_refuse(XMM(**{**TREE, **wrong}), X, y, *words)


def test_columns_at_predict_are_matched_or_refused(people, fitted):
    """Another order either gives the same answers or is an error; a missing or renamed column is an error."""
    X, y = people
    shuffled = X[X.columns[::-1]]
    try:
        answer = fitted.score_samples(shuffled, y)
    except ValueError as error:
        assert "order" in str(error)
    else:
        np.testing.assert_array_equal(answer, fitted.score_samples(X, y))
    for call in (fitted.predict, fitted.gating, fitted.explain_local, fitted.sample,
                 lambda table: fitted.score_samples(table, y)):
        with pytest.raises(ValueError, match="bmi"):
            call(X.drop(columns="bmi"))
        with pytest.raises(ValueError, match="bmi"):
            call(X.rename(columns={"bmi": "BMI"}))


def test_wrong_number_of_columns_at_predict(corner):
    X, y = corner
    model = XMM(**TREE).fit(X, y)
    with pytest.raises(ValueError, match="2.*3|3.*2"):
        model.predict(X[:, :2])


def test_words_in_a_number_column_at_predict(people, fitted):
    X, _ = people
    with pytest.raises(ValueError, match="bmi.*thin"):
        fitted.predict(X.assign(bmi="thin"))


def test_a_new_level_at_predict_is_named_or_left_to_otherwise(people, fitted):
    X, y = people
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            scores = fitted.score_samples(X.assign(smoker="sometimes"), y)
        except ValueError as error:
            text = str(error)
        else:
            text = " ".join(str(w.message) for w in caught)
            assert np.isfinite(scores).all()
    assert "smoker" in text and "sometimes" in text


def test_bad_target_at_score(people, fitted):
    X, y = people
    with pytest.raises(ValueError, match="(?i)nan"):
        fitted.score_samples(X, y.where(y.index > 0))
    with pytest.raises(ValueError, match="799"):
        fitted.score_samples(X, y.iloc[1:])


def test_a_failed_second_fit_leaves_nothing_half_done(people, corner):
    """Afterwards the model is the old one, whole, or not fitted at all."""
    X, y = people
    model = XMM(**TREE).fit(X, y)
    before = model.score_samples(X, y)
    other = pd.DataFrame(corner[0], columns=["p", "q", "r"])
    with pytest.raises(ValueError):
        model.fit(other, np.where(np.arange(len(other)) == 9, np.nan, corner[1]))
    if fitted_names(model):
        np.testing.assert_array_equal(model.score_samples(X, y), before)
        assert model.n_features_in_ == 6
    else:
        with pytest.raises(NotFittedError):
            model.predict(X)


def test_far_outliers_leave_rules_and_coverage_in_step():
    """A density 1e16 times another's must not leave NaN, nor rules that contradict the rows they are said to cover."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(900, 4)), columns=list("abcd"))
    y = rng.normal(size=900)
    y[rng.choice(900, 11, replace=False)] += 1e9
    model = XMM(n_steps=40, random_state=0).fit(X, y)
    assert model.rules_.covers(X).sum(axis=0).tolist() == model.support_.tolist()
    assert np.isfinite(model.score_samples(X, y)).all()


@pytest.mark.parametrize("setting", [{"n_components": 2.5}, {"n_components": True}, {"learning_rate": float("nan")},
                                     {"ebic_gamma": float("inf")}, {"min_scale": float("inf")}, {"min_scale": None}, {"background": "a"},
                                     {"init": None}, {"init": ()}, {"refine": "no"}, {"temperature": (0.1, float("nan"))}, {"max_rules": 0}])
def test_settings_that_cannot_be_used_are_named(setting):
    (name, value), = setting.items()
    with pytest.raises(ValueError, match=name):
        XMM(**setting).fit(np.arange(40.0).reshape(20, 2), np.arange(20.0))


def test_columns_that_rules_cannot_name_are_refused_before_the_search():
    x = np.linspace(0, 1, 60)
    for column in (pd.cut(x, 3), pd.period_range("2020-01", periods=60, freq="M")):
        with pytest.raises(ValueError, match="'when'"):
            XMM().fit(pd.DataFrame({"x": x, "when": column}), x)
    with pytest.raises(ValueError, match="dates"):
        XMM().fit(pd.DataFrame({"x": x}), pd.date_range("2020-01-01", periods=60))


def test_true_and_false_in_an_object_column_are_levels():
    flag = np.array([True, False] * 100, dtype=object)
    y = np.where(flag.astype(bool), 3.0, -3.0) + np.random.default_rng(0).normal(size=200)
    rules = XMM(init="tree").fit(pd.DataFrame({"flag": flag}), y).rules_.to_text()
    assert "flag = True" in rules and "flag = False" in rules


def test_gating_along_a_column_takes_unseen_levels_and_single_values(people, fitted):
    X, _ = people
    with pytest.warns(UserWarning, match="maybe"):
        ax = fitted.plot_gating("smoker", X.assign(smoker=["maybe", *X["smoker"].iloc[1:]]))
    assert [t.get_text() for t in ax.get_xticklabels()] == ["no", "yes", "maybe"]
    assert fitted.plot_gating(X.columns[0], X.iloc[[0]]) is not None
    with pytest.raises(ValueError, match="no rows"):
        fitted.plot_gating("smoker", X.head(0))
