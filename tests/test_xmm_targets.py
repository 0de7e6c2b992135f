"""XMM on every kind of target: numbers, classes, point masses, several targets; by Gaussian mixtures and by splines."""
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from mixlit.rules import Condition, Rule
from mixlit.xmm import XMM

TREE = dict(init="tree", random_state=0)  # no gradient steps
LOW, HIGH = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.2, 0.7])  # probabilities of three classes, by side
NAMES = np.array(["small", "medium", "large"])


def draw(kind, n, seed):
    """Features (only 'a' matters, at .5) and a target of the given kind."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.random(n), "b": rng.random(n)})
    right = X["a"].to_numpy() >= 0.5
    if kind in ("names", "integers", "bools", "category"):
        code = np.where(right, rng.choice(3, n, p=HIGH), rng.choice(3, n, p=LOW))
        y = {"names": NAMES[code], "integers": 10 + 5 * code, "bools": code == 2,
             "category": pd.Categorical.from_codes(code, NAMES)}[kind]
        return X, pd.Series(y, name="size")
    if kind == "mixed":
        rest = rng.gamma(np.where(right, 9.0, 3.0), 1.0)
        return X, pd.Series(np.where(rng.random(n) < np.where(right, 0.7, 0.2), 0.0, rest), name="burnt")
    if kind in ("gmm", "nsf"):
        return X, pd.Series(np.where(right, 6 - rng.exponential(1, n), rng.exponential(1, n)), name="y")
    u, v = rng.normal(size=(2, n))  # two targets that depend on each other, the other way round on the right
    sign = np.where(right, -1.0, 1.0)
    return X, pd.DataFrame({"u": u + 4 * right, "v": 0.9 * sign * u + np.sqrt(1 - 0.81) * v})


DENSITY = dict(gmm="gmm", nsf="nsf", names="categorical", category="categorical", integers="categorical",
               bools="categorical", mixed="mixed", gmm2="gmm", nsf2="nsf")
KINDS = ["gmm", "nsf", "names", "category", "integers", "bools", "mixed", "gmm2", "nsf2"]
FAST = [kind for kind in KINDS if not kind.startswith("nsf")]
ONE = [kind for kind in KINDS if not kind.endswith("2")]
_models = {}


def rows(kind):
    return draw(kind, 400 if kind.startswith("nsf") else 800, 1)


def fitted(kind):
    """A fitted model of the kind and fresh rows, not to be changed."""
    if kind not in _models:
        _models[kind] = XMM(density=DENSITY[kind], **TREE).fit(*rows(kind))
    return _models[kind], *draw(kind, 500, 2)


def same_row(X, i, n):
    return X.iloc[np.repeat(i, n)]


def density_of_row(model, X, i, y):
    return np.exp(model.score_samples(same_row(X, i, len(y)), y))


def near_and_far(y, points=20_001, far=1e3):
    """A grid that is fine near the data and reaches `far` standard deviations on both sides."""
    reach = np.arcsinh(far * 50)
    return np.mean(y) + np.std(y) * np.sinh(np.linspace(-reach, reach, points)) / 50


# ---------------------------------------------------------------- what holds for every kind


@pytest.mark.parametrize("kind", KINDS)
def test_new_rows_have_finite_scores_better_than_the_population(kind):
    model, X, y = fitted(kind)
    scores = model.score_samples(X, y)
    assert scores.shape == (500,) and np.isfinite(scores).all()
    assert model.score(X, y) == pytest.approx(scores.mean())
    assert scores.mean() > XMM(density=DENSITY[kind], forbidden=["a"], **TREE).fit(*rows(kind)).score(X, y) + 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_the_cut_is_found(kind):
    model, X, _ = fitted(kind)
    assert {c.feature for rule in model.rules_ for c in rule.conditions} == {"a"}
    clear = (X["a"] < 0.45) | (X["a"] > 0.55)
    sides = [model.gating(X[clear & (X["a"] < 0.5)]), model.gating(X[clear & (X["a"] > 0.5)])]
    assert ((sides[0].max(axis=0) == 0) | (sides[1].max(axis=0) == 0)).all()  # no component is at work on both sides


@pytest.mark.parametrize("kind", KINDS)
def test_file_gives_the_same_model_to_the_last_bit(kind, tmp_path):
    model, X, y = fitted(kind)
    model.save(tmp_path / "model.json")
    again = XMM.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.score_samples(X, y), model.score_samples(X, y))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.sample(X, random_state=3), model.sample(X, random_state=3))
    assert again.to_dict() == model.to_dict() and again.rules_ == model.rules_
    assert (again.density_, again.classes_) == (model.density_, model.classes_)
    assert again.explain_global().to_text() == model.explain_global().to_text()


@pytest.mark.parametrize("kind", KINDS)
def test_pickle_gives_the_same_model(kind):
    model, X, y = fitted(kind)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.score_samples(X, y), model.score_samples(X, y))


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_model(kind):
    model, X, y = fitted(kind)
    again = clone(model).fit(*rows(kind))
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.score_samples(X, y), model.score_samples(X, y))
    np.testing.assert_array_equal(again.sample(X, random_state=1), model.sample(X, random_state=1))
    assert not np.array_equal(again.sample(X, random_state=1), model.sample(X, random_state=2))


@pytest.mark.parametrize("kind", KINDS)
def test_score_is_gating_times_component_densities(kind):
    model, X, y = fitted(kind)
    density = model.component_pdf(y[:50])
    assert density.shape == (len(model.rules_) + 1, 50)
    by_hand = np.log((model.gating(X[:50]) * density.T).sum(axis=1))
    np.testing.assert_allclose(model.score_samples(X[:50], y[:50]), by_hand, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_responsibilities_sum_to_one(kind):
    model, X, y = fitted(kind)
    responsibilities = model.responsibilities(X, y)
    assert responsibilities.shape == (500, len(model.rules_) + 1) and (responsibilities >= 0).all()
    np.testing.assert_allclose(responsibilities.sum(axis=1), 1, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_rows_plays_no_part(kind):
    model, X, y = fitted(kind)
    np.testing.assert_allclose(model.score_samples(X[::-1], y[::-1])[::-1], model.score_samples(X, y), rtol=1e-9)
    np.testing.assert_allclose(model.score_samples(X[:1], y[:1]), model.score_samples(X, y)[:1], rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_explanations_have_words_for_it(kind):
    model, X, _ = fitted(kind)
    text, frame = model.explain_global().to_text(), model.explain_global().to_frame()
    assert len(frame) == len(model.rules_) + 1 and "a >= " in text and "a < " in text and "nan" not in text
    local = model.explain_local(X[:3])
    assert set(local.to_frame()["row"]) == {0, 1, 2} and "a" in local.to_text() and "nan" not in local.to_text()
    if kind in ("names", "category", "bools"):
        likely = {"bools": "True"}.get(kind, "large")
        assert likely in model.explain_local(X[X["a"] > 0.6][:1]).to_text()


@pytest.mark.parametrize("kind", KINDS)
def test_plots_draw(kind, plt):
    model, X, _ = fitted(kind)
    for plot in (model.plot_densities, model.explain_local(X[:2]).plot, lambda ax: model.plot_gating("a", ax=ax)):
        _, ax = plt.subplots()
        plot(ax=ax)
        assert ax.has_data() or ax.images


@pytest.mark.parametrize("kind", ["names", "integers", "bools", "mixed", "gmm2", "gmm"])
def test_weights_are_repetitions(kind):
    X, y = rows(kind)
    times = np.random.default_rng(0).integers(1, 4, len(X))
    weighted = XMM(density=DENSITY[kind], **TREE).fit(X, y, sample_weight=times)
    repeated = XMM(density=DENSITY[kind], **TREE).fit(X.iloc[np.repeat(np.arange(len(X)), times)],
                                                      y.iloc[np.repeat(np.arange(len(X)), times)])
    assert weighted.rules_ == repeated.rules_
    new = draw(kind, 300, 2)
    np.testing.assert_allclose(weighted.score_samples(*new), repeated.score_samples(*new), atol=1e-3)


@pytest.mark.parametrize("kind", ["names", "integers", "bools", "mixed", "gmm2", "gmm"])
def test_weights_are_repetitions_for_densities_of_given_rules(kind):
    """The same without the search."""
    X, y = rows(kind)
    times = np.random.default_rng(0).integers(1, 4, len(X))
    again = np.repeat(np.arange(len(X)), times)
    settings = dict(locked_rules=[Rule(Condition("a", low=0.5)), Rule(Condition("a", high=0.5))], max_rules=2, **TREE)
    weighted = XMM(density=DENSITY[kind], **settings).fit(X, y, sample_weight=times)
    repeated = XMM(density=DENSITY[kind], **settings).fit(X.iloc[again], y.iloc[again])
    new = draw(kind, 300, 2)
    np.testing.assert_allclose(weighted.score_samples(*new), repeated.score_samples(*new), atol=0.02)
    np.testing.assert_allclose(weighted.weights_, repeated.weights_)
    np.testing.assert_array_equal(weighted.support_, repeated.support_)


def test_weights_count_in_splines():
    """Rows of weight zero, all at 50, leave no density there."""
    X, y = rows("nsf")
    odd = np.arange(len(y)) % 4 == 0
    model = XMM(density="nsf", **TREE).fit(X, y.where(~odd, 50.0), sample_weight=np.where(odd, 0.0, 1.0))
    assert model.score_samples(X, np.full(len(X), 50.0)).max() < -6
    assert model.score(*draw("nsf", 500, 2)) > fitted("nsf")[0].score(*draw("nsf", 500, 2)) - 0.15


@pytest.mark.parametrize("kind", KINDS)
def test_score_takes_weights(kind):
    model, X, y = fitted(kind)
    weight = np.random.default_rng(0).random(len(X))
    expected = np.average(model.score_samples(X, y), weights=weight)
    assert model.score(X, y, sample_weight=weight) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["gmm", "names", "mixed", "gmm2"])
def test_marginal_weights_for_every_kind(kind):
    X, y = rows(kind)
    model = XMM(density=DENSITY[kind], conditional=False, **TREE).fit(X, y)
    gating = model.gating(draw(kind, 100, 2)[0])
    np.testing.assert_allclose(gating, np.broadcast_to(gating[0], gating.shape), rtol=1e-12)
    scores = model.score_samples(X, y)
    np.testing.assert_allclose(model.score_samples(X[::-1], y), scores, rtol=1e-12)


def test_grid_search_over_densities():
    X, y = draw("gmm", 300, 0)
    search = GridSearchCV(XMM(**TREE), {"density": ["gmm", "auto", "nsf"]}, cv=2, error_score="raise").fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.score(X, y) == pytest.approx(search.best_estimator_.score(X, y))


def test_grid_search_over_densities_of_classes():
    X, y = draw("names", 400, 0)
    search = GridSearchCV(XMM(**TREE), {"density": ["categorical", "auto"]}, cv=2, error_score="raise").fit(X, y)
    np.testing.assert_allclose(*search.cv_results_["mean_test_score"])


# ---------------------------------------------------------------- classes


@pytest.mark.parametrize("kind", ["names", "category"])
def test_classes_with_names(kind):
    model, X, y = fitted(kind)
    assert set(model.classes_) == set(NAMES)
    predicted, drawn = model.predict(X), model.sample(X, random_state=0)
    assert set(drawn) == set(NAMES)
    np.testing.assert_array_equal(predicted[X["a"] > 0.55], "large")
    np.testing.assert_array_equal(predicted[X["a"] < 0.45], "small")
    assert np.isfinite(model.score_samples(X, drawn)).all()


@pytest.mark.parametrize("kind, classes", [("names", NAMES), ("category", NAMES), ("integers", np.array([10, 15, 20]))])
def test_probabilities_of_classes(kind, classes):
    """They sum to one and are near the truth."""
    model, X, _ = fitted(kind)
    p = np.column_stack([density_of_row(model, X, i, np.repeat(classes, 1)) for i in range(60)]).T
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=0.02)  # a lattice of whole numbers keeps a little for its gaps
    sure = (np.abs(X["a"][:60] - 0.5) > 0.05).to_numpy()
    truth = np.where(X["a"].to_numpy()[:60, None] >= 0.5, HIGH, LOW)
    assert np.abs(p - truth)[sure].max() < 0.08


def test_probabilities_of_names_sum_to_one_exactly():
    model, X, _ = fitted("names")
    assert density_of_row(model, X, 0, NAMES).sum() == pytest.approx(1, abs=1e-9)


def test_probabilities_of_whole_numbers_sum_to_one():
    model, X, _ = fitted("integers")
    lattice = np.arange(-500.0, 500.0)
    p = density_of_row(model, X, 0, lattice)
    assert p[np.isfinite(p)].sum() == pytest.approx(1, abs=1e-6)


def test_whole_numbers_predict_the_mean_and_draw_whole_numbers():
    model, X, y = fitted("integers")
    lattice = np.arange(-100.0, 100.0)
    p = density_of_row(model, X, 0, lattice)
    assert model.predict(X)[0] == pytest.approx((p * lattice).sum(), abs=1e-6)
    drawn = model.sample(X, random_state=0)
    assert np.isin(drawn, np.arange(0, 35, 5)).all() and np.isin(drawn, [10, 15, 20]).mean() > 0.98


def test_a_whole_number_unseen_in_training_is_not_impossible():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.random(800)})
    y = rng.poisson(np.where(X["a"] > 0.5, 8, 3))
    keep = y != 5
    model = XMM(density="categorical", **TREE).fit(X[keep], y[keep])
    scores = model.score_samples(X[:2], np.array([5, 5]))
    assert np.isfinite(scores).all() and (scores < np.log(0.05)).all()


def test_predicted_bools_can_be_compared_with_the_target():
    model, X, y = fitted("bools")
    assert np.mean(model.predict(X) == y.to_numpy()) > 0.7


def test_drawn_bools_can_be_compared_with_the_target():
    model, X, y = fitted("bools")
    side = X["a"].to_numpy() > 0.5
    assert np.mean(model.sample(X, random_state=0)[side] == True) == pytest.approx(0.7, abs=0.1)  # noqa: E712


def test_class_unseen_in_training_is_named():
    model, X, y = fitted("names")
    with pytest.raises(ValueError, match="'huge'"):
        model.score_samples(X, y.where(y.index != 3, "huge"))


def test_missing_class_is_refused():
    X, y = rows("names")
    with pytest.raises(ValueError, match="missing.*7|7.*missing"):
        XMM(density="categorical", **TREE).fit(X, y.where(y.index != 7, None))


def test_names_need_a_density_for_classes():
    X, y = rows("names")
    for density in ("gmm", "nsf", "mixed"):
        with pytest.raises(ValueError, match="categorical"):
            XMM(density=density, **TREE).fit(X, y)


# ---------------------------------------------------------------- auto


@pytest.mark.parametrize("kind, density, words", [
    ("names", "categorical", ["size", "3"]),
    ("category", "categorical", ["size", "3"]),
    ("bools", "categorical", ["size", "2"]),
    ("integers", "categorical", ["size", "3"]),
    ("mixed", "mixed", ["burnt", "0", "%"]),
    ("gmm", "gmm", ["y"]),
    ("gmm2", "gmm", ["2"]),
])
def test_auto_decides_by_the_target_and_says_so(kind, density, words):
    model = XMM(density="auto", **TREE).fit(*rows(kind))
    assert model.density_ == density and model.density == "auto"
    assert all(word in model.density_reason_ for word in words), model.density_reason_
    plain, X, y = fitted(kind)
    np.testing.assert_array_equal(model.score_samples(X, y), plain.score_samples(X, y))


def test_auto_takes_many_whole_numbers_for_numbers():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.random(600)})
    y = np.round(rng.normal(np.where(X["a"] > 0.5, 9000, 5000), 800))
    assert XMM(density="auto", **TREE).fit(X, y).density_ == "gmm"


def test_reason_is_empty_unless_auto():
    assert fitted("gmm")[0].density_reason_ == "" and fitted("names")[0].density_reason_ == ""


# ---------------------------------------------------------------- point masses


def test_point_mass_has_the_right_probability():
    model, X, _ = fitted("mixed")
    mass = np.exp(model.score_samples(X, np.zeros(500)))
    clear = (np.abs(X["a"] - 0.5) > 0.05).to_numpy()
    assert np.abs(mass - np.where(X["a"] >= 0.5, 0.7, 0.2))[clear].max() < 0.08


def test_point_mass_and_density_make_one():
    model, X, y = fitted("mixed")
    grid = near_and_far(y, 40_000)  # an even number of points: none is 0
    assert not (grid == 0).any()
    for i in range(5):
        mass = density_of_row(model, X, i, np.zeros(1)).item()
        rest = np.trapezoid(density_of_row(model, X, i, grid), grid)
        assert mass + rest == pytest.approx(1, abs=1e-3)


def test_density_beside_the_mass_is_finite_everywhere():
    model, X, _ = fitted("mixed")
    for value in (1e-12, -1e-12, 1e-3, -5.0, 1e3, -1e6):
        assert np.isfinite(model.score_samples(X, np.full(500, value))).all()


def test_prediction_and_draws_count_the_mass():
    model, X, y = fitted("mixed")
    right = (X["a"] > 0.55).to_numpy()
    assert model.predict(X)[right].mean() == pytest.approx(0.3 * 9, abs=0.4)
    assert model.predict(X)[X["a"] < 0.45].mean() == pytest.approx(0.8 * 3, abs=0.4)
    drawn = model.sample(same_row(X, int(right.argmax()), 4000), random_state=0)
    assert np.mean(drawn == 0) == pytest.approx(np.exp(model.score_samples(X, np.zeros(500)))[right][0], abs=0.03)
    assert drawn.mean() == pytest.approx(model.predict(X)[right][0], abs=0.25)


def test_distribution_function_jumps_at_the_mass():
    model, X, _ = fitted("mixed")
    jump = model.cdf(X, np.zeros(500)) - model.cdf(X, np.full(500, -1e-9))
    np.testing.assert_allclose(jump, np.exp(model.score_samples(X, np.zeros(500))), atol=1e-6)


def test_mass_at_another_value():
    """Heights cut off at 10: the mass is there, not at zero."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.random(800)})
    y = np.minimum(rng.normal(np.where(X["a"] > 0.5, 10.5, 8.0), 1.0), 10.0)
    model = XMM(density="auto", **TREE).fit(X, y)
    assert model.density_ == "mixed" and "10" in model.density_reason_
    right = np.exp(model.score_samples(pd.DataFrame({"a": [0.9]}), [10.0])).item()
    assert right == pytest.approx(stats.norm.sf(10, 10.5, 1), abs=0.08)


# ---------------------------------------------------------------- neural splines


@pytest.mark.parametrize("kind", ["nsf", "gmm"])
def test_integrates_to_one_also_far_out(kind):
    model, X, y = fitted(kind)
    grid = near_and_far(y)
    for i in range(6):
        assert np.trapezoid(density_of_row(model, X, i, grid), grid) == pytest.approx(1, abs=2e-3)
    assert np.trapezoid(model.population_pdf(grid), grid) == pytest.approx(1, abs=2e-3)
    for component in model.component_pdf(grid):
        assert np.trapezoid(component, grid) == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("kind", ["nsf", "nsf2"])
def test_splines_are_finite_and_falling_far_out(kind):
    model, X, y = fitted(kind)
    scores = [model.score_samples(X, np.full(y.shape, value)) for value in (1e2, 1e3, 1e6)]
    assert all(np.isfinite(s).all() for s in scores)
    assert (scores[0] > scores[1]).all() and (scores[1] > scores[2]).all() and scores[2].max() < -20


def test_splines_keep_the_rules():
    """A search with Gaussian mixtures and one for splines find the same side of the same cut."""
    X, y = rows("nsf")
    plain = XMM(**TREE).fit(X, y)
    model = fitted("nsf")[0]
    assert len(model.rules_) == len(plain.rules_)
    assert np.mean(model.rules_.covers(X) == plain.rules_.covers(X)) > 0.98


def test_splines_follow_a_skewed_target():
    model, X, y = fitted("nsf")
    clear = (np.abs(X["a"] - 0.5) > 0.03).to_numpy()
    assert model.score(X[clear], y[clear]) == pytest.approx(-1, abs=0.25)  # minus the entropy of an exponential


def test_spline_mean_and_distribution_function_agree_with_the_density():
    model, X, y = fitted("nsf")
    grid = near_and_far(y, far=50)
    for i in (0, 1, 2):
        density = density_of_row(model, X, i, grid)
        cdf = model.cdf(same_row(X, i, len(grid)), grid)
        steps = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))])
        np.testing.assert_allclose(cdf, steps, atol=2e-3)
        assert (np.diff(cdf) >= -1e-12).all()
        assert model.predict(X)[i] == pytest.approx(np.trapezoid(grid * density, grid), abs=0.02)


@pytest.mark.parametrize("kind", ["nsf", "gmm"])
def test_draws_follow_the_distribution_function(kind):
    model, X, _ = fitted(kind)
    assert stats.kstest(model.cdf(X, model.sample(X, random_state=0)), "uniform").pvalue > 1e-4


def test_unit_of_the_target_of_splines():
    X, y = rows("nsf")
    scaled = XMM(density="nsf", **TREE).fit(X, 1e4 * y - 3e6)
    model, X, y = fitted("nsf")
    np.testing.assert_allclose(scaled.score_samples(X, 1e4 * y - 3e6), model.score_samples(X, y) - np.log(1e4), atol=0.02)


# ---------------------------------------------------------------- several targets


@pytest.mark.parametrize("kind", ["gmm2", "nsf2"])
def test_density_in_the_plane_integrates_to_one(kind):
    model, X, y = fitted(kind)
    axis = np.linspace(-9, 13, 201)
    plane = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    for i in (0, 1, 2):
        density = density_of_row(model, X, i, plane).reshape(201, 201)
        assert np.trapezoid(np.trapezoid(density, axis), axis) == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize("kind", ["gmm2", "nsf2"])
def test_several_targets_have_means_and_draws_in_the_plane(kind):
    model, X, y = fitted(kind)
    predicted, drawn = model.predict(X), model.sample(X, random_state=0)
    assert predicted.shape == drawn.shape == (500, 2)
    right = (X["a"] > 0.55).to_numpy()
    np.testing.assert_allclose(predicted[right].mean(axis=0), [4, 0], atol=0.3)
    np.testing.assert_allclose(predicted[X["a"] < 0.45].mean(axis=0), [0, 0], atol=0.3)
    many = model.sample(same_row(X, int(right.argmax()), 3000), random_state=0)
    np.testing.assert_allclose(many.mean(axis=0), predicted[right][0], atol=0.15)
    assert np.corrcoef(many.T)[0, 1] < -0.75
    assert list(model.target_names_) == ["u", "v"]


@pytest.mark.parametrize("kind, tolerance", [("gmm2", 0.1), ("nsf2", 0.3)])
def test_dependence_between_targets_is_learned(kind, tolerance):
    model, X, y = fitted(kind)
    clear = (np.abs(X["a"] - 0.5) > 0.03).to_numpy()
    truth = -np.log(2 * np.pi) - 1 - 0.5 * np.log(1 - 0.81)
    assert model.score(X[clear], y[clear]) == pytest.approx(truth, abs=tolerance)


def test_order_of_the_targets_plays_no_part():
    X, y = rows("gmm2")
    swapped = XMM(**TREE).fit(X, y[["v", "u"]])
    model, X, y = fitted("gmm2")
    assert swapped.score(X, y[["v", "u"]]) == pytest.approx(model.score(X, y), abs=0.03)


def test_array_and_frame_of_targets_are_the_same():
    X, y = rows("gmm2")
    model, new, target = fitted("gmm2")
    plain = XMM(**TREE).fit(X, y.to_numpy())
    np.testing.assert_array_equal(plain.score_samples(new, target.to_numpy()), model.score_samples(new, target))


def test_three_targets():
    X, y = rows("gmm2")
    y = y.assign(w=y["u"] + np.random.default_rng(0).normal(size=len(y)))
    model = XMM(**TREE).fit(X, y)
    assert model.predict(X).shape == model.sample(X, random_state=0).shape == (len(X), 3)
    assert np.isfinite(model.score_samples(X, y)).all()
    assert model.score(X, y) > model.score(X, y.assign(w=y["w"][::-1].to_numpy()))


def test_units_of_several_targets():
    X, y = rows("gmm2")
    factor = np.array([1e6, 1e-6])
    scaled = XMM(**TREE).fit(X, y * factor)
    model, X, y = fitted("gmm2")
    np.testing.assert_allclose(scaled.score_samples(X, y * factor), model.score_samples(X, y), atol=1e-3)


@pytest.mark.parametrize("change, words", [
    (lambda y: y.assign(v=y["v"].where(y.index != 3, np.nan)), ["'v'", "nan", "3"]),
    (lambda y: y.assign(v=y["v"].where(y.index != 3, np.inf)), ["'v'", "inf", "3"]),
    (lambda y: y.assign(v=7.5), ["'v'", "7.5"]),
    (lambda y: y.assign(v="wide"), ["'v'", "wide"]),
], ids=["nan", "inf", "constant", "words"])
def test_bad_target_among_several_is_named(change, words):
    X, y = rows("gmm2")
    with pytest.raises(ValueError) as caught:
        XMM(**TREE).fit(X, change(y))
    for word in words:
        assert word.lower() in str(caught.value).lower(), f"{word!r} is not in: {caught.value}"


@pytest.mark.parametrize("change", [lambda y: y[:, 0], lambda y: np.column_stack([y, y[:, 0]])], ids=["one", "three"])
def test_wrong_number_of_targets_is_said(change):
    model, X, y = fitted("gmm2")
    for method in (model.score_samples, model.responsibilities):
        with pytest.raises(ValueError, match="target|column"):
            method(X, change(y.to_numpy()))


@pytest.mark.parametrize("kind", ONE)
def test_one_target_given_as_two_is_refused(kind):
    model, X, y = fitted(kind)
    with pytest.raises(ValueError, match=r"shape|target|column"):
        model.score_samples(X, np.column_stack([y, y]))


# ---------------------------------------------------------------- awkward targets


def test_two_point_masses():
    """A gauge that stops at 0 and at 10: both ends have a probability, the middle a density, and all of it is one."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.random(800)})
    y = np.clip(rng.normal(np.where(X["a"] > 0.5, 9.0, 2.0), 3.0), 0, 10)
    model = XMM(density="mixed", **TREE).fit(X, y)
    row = pd.DataFrame({"a": [0.9]})
    ends = np.exp([model.score_samples(row, [end])[0] for end in (0.0, 10.0)])
    np.testing.assert_allclose(ends, [stats.norm.cdf(0, 9, 3), stats.norm.sf(10, 9, 3)], atol=0.08)
    grid = near_and_far(y, 20_000)
    assert ends.sum() + np.trapezoid(density_of_row(model, row, 0, grid), grid) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("values", [np.array([-0.5, 0.5, 1.0]), np.array([-3, 0, 3]), np.array([7, 10**9, 10**9 + 1])],
                         ids=["halves", "negative", "large"])
def test_any_numbers_can_be_classes(values):
    X, _ = rows("integers")
    rng = np.random.default_rng(5)
    y = values[np.where(X["a"] >= 0.5, rng.choice(3, len(X), p=HIGH), rng.choice(3, len(X), p=LOW))]
    model = XMM(density="categorical", **TREE).fit(X, y)
    assert np.isfinite(model.score_samples(X, y)).all()
    assert np.exp(model.score_samples(X[X["a"] > 0.6][:1], values[-1:])).item() == pytest.approx(0.7, abs=0.08)
    assert np.isin(np.round(model.sample(X, random_state=0), 6), values).mean() > 0.98


def test_one_class_is_refused_by_name():
    X, y = rows("names")
    for density in ("categorical", "auto"):
        with pytest.raises(ValueError, match="size.*small"):
            XMM(density=density, **TREE).fit(X, y.where(y == "-", "small"))


def test_a_class_with_one_row():
    X, y = rows("names")
    model = XMM(density="categorical", **TREE).fit(X, y.where(y.index != 4, "huge"))
    scores = model.score_samples(X, np.full(len(X), "huge"))
    assert np.isfinite(scores).all() and (scores < np.log(0.05)).all()


def test_splines_on_a_target_with_spikes():
    X, y = draw("mixed", 300, 1)
    model = XMM(density="nsf", **TREE).fit(X, y)
    assert np.isfinite(model.score_samples(X, y)).all()
    grid = np.unique(np.concatenate([near_and_far(y), np.linspace(-0.5, 0.5, 20_001)]))
    assert np.trapezoid(density_of_row(model, X, 0, grid), grid) == pytest.approx(1, abs=1e-2)


def test_splines_on_few_rows():
    X, y = draw("nsf", 30, 1)
    model = XMM(density="nsf", **(TREE | {"n_rules": 10})).fit(X, y)
    new = draw("nsf", 100, 2)
    assert np.isfinite(model.score_samples(*new)).all() and model.score(*new) > -10


def test_targets_on_a_line():
    """The second target is twice the first: no spike without a floor, no crash."""
    X, y = rows("gmm2")
    model = XMM(**TREE).fit(X, y.assign(v=2 * y["u"]))
    X, y = draw("gmm2", 300, 2)
    assert np.isfinite(model.score_samples(X, y.assign(v=2 * y["u"]))).all()
    assert np.isfinite(model.score_samples(X, y)).all()


def test_a_target_given_as_one_column():
    X, y = rows("gmm")
    model, new, target = fitted("gmm")
    with pytest.warns(match="column-vector|1d array"):
        one = XMM(**TREE).fit(X, y.to_frame())
    assert one.predict(new).shape == (500,)
    np.testing.assert_array_equal(one.score_samples(new, target), model.score_samples(new, target))


@pytest.mark.parametrize("kind", KINDS)
def test_population_and_component_means_have_the_shape_of_the_target(kind):
    model, X, y = fitted(kind)
    k = len(model.rules_) + 1
    assert model.component_means().shape == ((k, 2) if kind.endswith("2") else (k,))
    assert model.population_pdf(y[:7]).shape == (7,)


@pytest.mark.parametrize("kind", ["integers", "mixed", "gmm", "nsf", "gmm2", "nsf2"])
def test_prediction_is_the_mean_of_the_draws(kind):
    model, X, _ = fitted(kind)
    many = model.sample(same_row(X, 0, 6000), random_state=0)
    np.testing.assert_allclose(many.mean(axis=0), model.predict(X)[0], atol=5 * many.std() / np.sqrt(6000))


def test_what_experts_and_tables_refuse_is_said(rng=np.random.default_rng(0)):
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    with pytest.raises(ValueError, match="describes one target, y has 2"):
        XMM(expert="linear").fit(X, rng.normal(size=(60, 2)))
    twice = X.set_axis(["a", "a"], axis=1)
    with pytest.raises(ValueError, match="column 'a' is there 2 times"):
        XMM().fit(twice, rng.normal(size=60))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("density", ["gmm", "mixed"])
def test_two_monotone_features_hold_at_once(seed, density):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.uniform(0, 10, 400), "b": rng.uniform(0, 10, 400)})
    y = 3 * np.sin(X.a) + X.b + rng.normal(size=400)
    y = np.where(y < 2, 0.0, y) if density == "mixed" else y
    model = XMM(init="tree", density=density, random_state=0, monotone={"b": 1, "a": 1}).fit(X, y)
    for name in "ab":
        along = np.array([model.predict(X.assign(**{name: v})) for v in np.linspace(-1, 11, 61)])
        assert np.diff(along, axis=0).min() > -1e-9


def test_a_marginal_mixture_does_not_say_that_rows_satisfy_rules():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(0, 10, 300), "c": rng.choice(list("uvw"), 300)})
    y = np.where((X.a > 5) & (X.c == "u"), 10.0, 0.0) + rng.normal(size=300)
    why = XMM(conditional=False, init="tree", random_state=0).fit(X, y).explain_local(X[:2])
    text, frame = why.to_text(), why.to_frame()
    assert "same for every row" in text and "satisfies" not in text and "change" not in text
    assert (frame.because == "").all() and frame.distance.isna().all()


def test_a_saved_expert_is_json_that_any_reader_takes():
    import json
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(0, 10, 300), "b": rng.normal(size=300)})
    X.loc[::5, "b"] = np.nan
    model = XMM(expert="linear", random_state=0).fit(X, 2 * X.a + np.nan_to_num(X.b) + rng.normal(size=300))
    text = json.dumps(model.to_dict(), allow_nan=False)
    assert np.array_equal(XMM.from_dict(json.loads(text)).predict(X), model.predict(X))


@pytest.mark.parametrize("settings, said", [
    ({"forbidden": "ab"}, "must be a list of columns"), ({"locked_rules": "a > 3"}, "is a text; give Rule objects"), ({"density": "mixed"}, "use 'categorical'"),
    ({"max_rules": 1, "locked_rules": [Rule([Condition("a", low=5)]), Rule([Condition("a", high=2)])]}, "more than max_rules = 1")])
def test_settings_that_were_read_letter_by_letter_or_not_at_all(settings, said):
    X = pd.DataFrame({"a": np.linspace(0, 10, 80), "b": np.tile([0.0, 1.0], 40)})
    with pytest.raises(ValueError, match=said):
        XMM(**settings).fit(X, np.repeat([0.0, 5.0], 40))


@pytest.mark.filterwarnings("ignore:A column-vector y:sklearn.exceptions.DataConversionWarning")
def test_the_name_of_a_target_in_a_table_of_one_column_is_kept():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(size=60)})
    assert XMM(init="tree").fit(X, pd.DataFrame({"price": rng.normal(size=60)})).target_name_ == "price"
    with pytest.raises(ValueError, match="no gradient start"):
        XMM(expert="linear").fit(X, rng.normal(size=60)).plot_history()


@pytest.mark.parametrize("seed", [6, 7, 8])
def test_monotone_features_beside_weights_levels_and_missing_values(seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.uniform(0, 10, 400), "b": rng.uniform(0, 10, 400), "c": rng.choice(list("uvw"), 400)})
    y = 3 * np.sin(X.a) + X.b * (X.c != "u") + rng.normal(size=400)
    X.loc[rng.random(400) < 0.1, "b"] = np.nan
    model = XMM(init="tree", random_state=0, monotone={"b": 1, "a": -1}).fit(X, y, sample_weight=rng.integers(1, 4, 400))
    for name, sign in (("a", -1), ("b", 1)):
        along = np.array([model.predict(X.assign(**{name: v})) for v in np.linspace(-1, 11, 61)])
        assert (sign * np.diff(along, axis=0)).min() > -1e-9


def test_monotone_holds_on_rows_that_a_first_look_leaves_out():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(0, 10, 6000), "b": rng.uniform(0, 10, 6000), "c": "u"})
    X.loc[1::3, "c"] = "v"  # every third row is looked at first, and none of these is 'v'
    y = pd.Series(np.where(X.c == "u", X.a, -X.a) + rng.normal(size=6000))
    model = XMM(init="tree", random_state=0, monotone={"a": 1, "b": 1}).fit(X, y)
    for name in "ab":
        along = np.array([model.predict(X.assign(**{name: v})) for v in np.linspace(-1, 11, 31)])
        assert np.diff(along, axis=0).min() > -1e-9


def test_a_marginal_mixture_of_formulas_does_not_say_that_all_rows_are_alike():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(0, 10, 300)})
    text = XMM(conditional=False, expert="linear", random_state=0).fit(X, 3 * X.a + rng.normal(size=300)).explain_local(X[:1]).to_text()
    assert "same for every row" in text and "density of all rows" not in text and "satisfies" not in text


@pytest.mark.parametrize("settings, said", [
    ({"forbidden": 3}, r"forbidden = 3 must be a list of columns: \[3\]"), ({"forbidden": np.array(["z", "y"])}, "names column 'y'"),
    ({"locked_rules": 3}, "give a list of Rule objects"), ({"expert_rules": ["a > 3"]}, "holds 'a > 3'; give Rule objects"),
    ({"max_rules": np.int64(0)}, "max_rules = 0 must"), ({"background": np.float64(-1)}, "background = -1.0 must"),
    ({"temperature": (np.float64(0.1), np.float64(0.2))}, r"temperature = \(0.1, 0.2\) must"), ({"monotone": {"a": np.int64(3)}}, r"monotone\['a'\] = 3 must")])
def test_settings_are_quoted_without_the_types_of_numpy(settings, said):
    X = pd.DataFrame({"a": np.linspace(0, 10, 80), "b": np.tile([0.0, 1.0], 40)})
    with pytest.raises(ValueError, match=said):
        XMM(**settings).fit(X, np.repeat([0.0, 5.0], 40) + X.b)


def test_values_are_quoted_without_the_types_of_numpy():
    X = pd.DataFrame({"a": np.linspace(0, 10, 80), "k": pd.Categorical(np.tile([0, 1], 40))})
    model = XMM(init="tree", random_state=0).fit(X, np.repeat([0.0, 5.0], 40) + np.tile([0.0, 0.3, 0.5, 0.1], 20))
    with pytest.warns(UserWarning, match="column 'k' holds 3, which training did not see"):
        model.predict(X.head(2).assign(k=np.array([3, 4])))
    with pytest.raises(ValueError, match="y must be numeric, it holds 'low'"):
        XMM().fit(X, np.array(["low", "high"] * 40))


@pytest.mark.parametrize("expert", ["linear", "additive"])
def test_what_a_formula_takes_for_a_missing_or_unknown_value_is_said(expert):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(0, 10, 301), "b": rng.normal(size=301), "c": rng.choice(["u", "u", "v"], 301)})
    model = XMM(expert=expert, random_state=0).fit(X, 2 * X.a + 3 * (X.c == "v") + rng.normal(scale=0.3, size=301))
    rows, median = X.head(3), float(np.median(X.a))
    for again in (model, XMM.from_dict(model.to_dict())):
        with pytest.warns(UserWarning, match=f"formulas take its median, {median}, instead"):
            missing = again.predict(rows.assign(a=np.nan))
        np.testing.assert_allclose(missing, model.predict(rows.assign(a=median)))
        with pytest.warns(UserWarning, match="'Mars', .*formulas take its most frequent level, 'u', instead"):
            unknown = again.predict(rows.assign(c="Mars"))
        np.testing.assert_allclose(unknown, model.predict(rows.assign(c="u")))
        with pytest.warns(UserWarning, match="no rule on this column covers these rows$"):
            again.predict(rows.assign(b=np.nan))  # in no formula


def test_an_array_with_missing_values_is_warned_about_as_a_table_is():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (200, 2))
    model = XMM(expert="linear", random_state=0).fit(X, 2 * X[:, 0] + rng.normal(size=200))
    with pytest.warns(UserWarning, match="'x1' is missing in 1 of 1 rows.*formulas take its median"):
        model.predict([[np.nan, 1.0]])


@pytest.mark.parametrize("seed", [1, 2, 7])
def test_a_cut_that_a_locked_rule_names_is_the_same_number_in_all_rules(seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.uniform(0, 10, 400), "b": rng.uniform(0, 10, 400)})
    y, bound = 3 * np.sin(X.a) + X.b + rng.normal(size=400), Condition("b", low=5.0123)
    model = XMM(init="tree", random_state=0, monotone={"a": 1, "b": 1}, locked_rules=[Rule([bound])]).fit(X, y)
    assert Rule([bound]) in list(model.rules_)
    cuts = {v for rule in model.rules_ for c in rule.conditions if c.feature == "b" for v in (c.low, c.high) if np.isfinite(v)}
    assert len({int((X.b < v).sum()) for v in cuts}) == len(cuts)  # no two numbers cut the rows alike
    along = np.array([model.predict(X.assign(b=v)) for v in np.linspace(4.9, 5.1, 41)])
    assert np.diff(along, axis=0).min() > -1e-9
