"""XMM on tables as they are: categories, missing values, weights, and the rules and wishes of a person."""
import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from mixlit.generators import make_parity
from mixlit.rules import Condition, Rule, RuleSet
from mixlit.xmm import XMM

TREE = dict(init="tree", random_state=0)  # no gradient steps
GRADIENT = dict(init="kmeans++", n_rules=8, n_steps=120, batch_size=256, random_state=0)


def levels_table(n=800, seed=0, values="ABCD"):
    """The target is high for the first and the third of four levels."""
    rng = np.random.default_rng(seed)
    code = rng.integers(0, 4, n)
    X = pd.DataFrame({"c": np.array(list(values), dtype=object)[code], "x": rng.random(n)})
    return X, np.where(code % 2 == 0, 8.0, 0.0) + rng.normal(size=n)


def gaps_table(truth, n=800, seed=0):
    """A numeric column m and a categorical one c, each missing in three rows of ten; 'truth' tells which rows are high."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"m": rng.random(n), "c": rng.choice(list("ABC"), n), "x": rng.random(n)})
    X.loc[rng.random(n) < 0.3, "m"] = np.nan
    X.loc[rng.random(n) < 0.3, "c"] = None
    high = truth(X).to_numpy()
    return X, np.where(high, 8.0, 0.0) + rng.normal(size=n), high


def mixed_table(n=1200, seed=0):
    """Numbers, levels, bools and gaps, all of which matter."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.random(n), "c": rng.choice(list("ABCD"), n), "m": rng.random(n), "s": rng.random(n) < 0.5})
    X.loc[rng.random(n) < 0.3, "m"] = np.nan
    y = 6.0 * X["m"].isna() + 12.0 * (X["c"].isin(["A", "C"]) & X["s"]) + 3.0 * (X["a"] > 0.5) + rng.normal(size=n)
    return X, y.to_numpy()


@pytest.fixture(scope="module")
def mixed():
    """A model of the mixed table, not to be changed."""
    X, y = mixed_table()
    return XMM(**TREE).fit(X, y), X, y


def features(model):
    return {c.feature for rule in model.rules_ for c in rule.conditions}


def texts(model):
    return set(model.rules_.to_frame()["rule"])


def error_of(model, X, y, **kwargs):
    """The words of the ValueError that fit must raise; nothing is fitted."""
    with pytest.raises(ValueError) as caught:
        model.fit(X, y, **kwargs)
    assert not hasattr(model, "rules_")
    return str(caught.value)


# ---------------------------------------------------------------- categories


@pytest.mark.parametrize("dtype, settings", [("object", TREE), ("string", TREE), ("category", TREE), ("category", GRADIENT)],
                         ids=["object", "string", "category", "category by gradient"])
def test_sets_of_levels_are_found_and_named(dtype, settings):
    X, y = levels_table()
    model = XMM(**settings).fit(X.astype({"c": dtype}), y)
    assert texts(model) == {"c in {A, C}", "c in {B, D}"}
    assert list(model.rules_.feature_names) == ["c", "x"]  # no one-hot columns


@pytest.mark.parametrize("dtype, settings", [("bool", TREE), ("boolean", TREE), ("bool", GRADIENT)],
                         ids=["bool", "boolean", "bool by gradient"])
def test_bools_are_found_and_named(dtype, settings):
    X, y = levels_table()
    X = pd.DataFrame({"flag": X["c"].isin(["A", "C"]).astype(dtype), "x": X["x"]})
    assert texts(XMM(**settings).fit(X, y)) == {"flag = True", "flag = False"}


def test_order_of_a_category_plays_no_part():
    X, y = levels_table()
    plain = XMM(**TREE).fit(X, y)
    for order in ("DCBA", "ACBD"):
        other = X.assign(c=pd.Categorical(X["c"], categories=list(order), ordered=True))
        np.testing.assert_allclose(XMM(**TREE).fit(other, y).score_samples(other, y), plain.score_samples(X, y), atol=1e-9)


def test_the_model_of_one_kind_of_column_reads_the_others():
    X, y = levels_table()
    model = XMM(**TREE).fit(X.astype({"c": "category"}), y)
    for dtype in ("object", "string"):
        np.testing.assert_array_equal(model.score_samples(X.astype({"c": dtype}), y), model.score_samples(X, y))
    alone = pd.DataFrame({"c": pd.Categorical(["D"]), "x": [0.5]})  # the only level of its column
    assert model.predict(alone)[0] == pytest.approx(0, abs=0.5)


def test_levels_combine_with_numbers():
    X, _ = levels_table(1200)
    high = X["c"].isin(["A", "C"]) & (X["x"] > 0.5)
    y = np.where(high, 8.0, 0.0) + np.random.default_rng(1).normal(size=len(X))
    model = XMM(**TREE).fit(X, y)
    speaking = [text for text in texts(model) if "x >= 0.5" in text and "c in {A, C}" in text]
    assert len(speaking) == 1
    np.testing.assert_allclose(model.predict(X), np.where(high, 8, 0), atol=1)


def test_many_levels_that_say_nothing_are_not_used():
    X, y = levels_table(1200)
    X["town"] = np.random.default_rng(3).choice([f"town {i}" for i in range(40)], len(X))
    assert features(XMM(**TREE).fit(X, y)) == {"c"}


def test_a_category_with_one_row():
    X, y = levels_table()
    X.loc[5, "c"] = "once"
    model = XMM(**TREE).fit(X, y)
    assert np.isfinite(model.score_samples(X, y)).all()
    for level, mean in zip("ABCD", (8, 0, 8, 0)):
        assert model.predict(X[X["c"] == level]) == pytest.approx(mean, abs=0.5)


@pytest.mark.parametrize("dtype", ["object", "string", "category"])
def test_unseen_levels_are_reported_and_fall_to_other_rules(dtype):
    X, y = levels_table()
    model = XMM(**TREE).fit(X, y)
    new = X[:6].assign(c=["E", "A", "E", "B", "F", "C"]).astype({"c": dtype})
    for call in (model.predict, model.gating, model.explain_local, model.sample, lambda t: model.score_samples(t, y[:6])):
        with pytest.warns(UserWarning, match="'c'.*'E'"):
            call(new)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gating = model.gating(new)
        assert np.isfinite(model.score_samples(new, y[:6])).all()
    np.testing.assert_array_equal(gating[:, -1], [1, 0, 1, 0, 1, 0])


def test_unseen_levels_of_a_column_that_no_rule_names_change_nothing():
    X, y = levels_table()
    X["town"] = np.random.default_rng(3).choice(["Ulm", "Bonn"], len(X))
    model = XMM(**TREE).fit(X, y)
    assert features(model) == {"c"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(model.predict(X.assign(town="Rome")), model.predict(X))


def test_an_unseen_level_may_still_satisfy_rules_on_other_columns(mixed):
    model, X, _ = mixed
    rows = X[(X["s"] == False) & X["m"].isna()][:5].assign(c="E")  # noqa: E712
    with pytest.warns(UserWarning, match="'E'"):
        gating = model.gating(rows)
    expected = [not any(c.feature == "c" for c in rule.conditions) for rule in model.rules_]
    assert not gating[:, :-1][:, ~np.array(expected)].any() and (gating[:, :-1].sum(axis=1) == 1).all()


# ---------------------------------------------------------------- missing values


@pytest.mark.parametrize("settings", [TREE, GRADIENT], ids=["tree", "gradient"])
def test_missing_number_as_a_sign(settings):
    """High where m is missing: one rule says so, and the rows with a value, all of them, have the other."""
    X, y, high = gaps_table(lambda X: X["m"].isna())
    model = XMM(**settings).fit(X, y)
    assert features(model) == {"m"} and texts(model) & {"m is missing", "m is known"}       # one of the two, 'otherwise' is the other
    np.testing.assert_allclose(model.predict(X), np.where(high, 8, 0), atol=1)


@pytest.mark.parametrize("settings", [TREE, GRADIENT], ids=["tree", "gradient"])
def test_missing_category_as_a_sign(settings):
    X, y, high = gaps_table(lambda X: X["c"].isna())
    model = XMM(**settings).fit(X, y)
    assert features(model) == {"c"} and "c is missing" in texts(model)
    np.testing.assert_allclose(model.predict(X), np.where(high, 8, 0), atol=1)


@pytest.mark.parametrize("truth, wanted", [
    (lambda X: X["m"].isna() | (X["m"] >= 0.5), "m >= 0.5 or missing"),
    (lambda X: X["m"].isna() | (X["m"] < 0.5), "m < 0.5 or missing"),
    (lambda X: X["c"].isna() | (X["c"] == "B"), "c = B or missing"),
    (lambda X: X["c"].isna() | X["c"].isin(["A", "C"]), "or missing"),
], ids=["number, high", "number, low", "one level", "two levels"])
@pytest.mark.parametrize("settings", [TREE, GRADIENT], ids=["tree", "gradient"])
def test_missing_goes_with_the_side_it_belongs_to(truth, wanted, settings):
    X, y, high = gaps_table(truth)
    model = XMM(**settings).fit(X, y)
    assert "missing" in " ".join(texts(model))
    if settings is TREE:
        assert any(wanted in text or wanted.replace("0.5", "0.499") in text for text in texts(model)), texts(model)
    wrong = np.abs(model.predict(X) - np.where(high, 8, 0)) > 2
    assert wrong.mean() < 0.02


@pytest.mark.parametrize("settings", [TREE, GRADIENT], ids=["tree", "gradient"])
def test_missing_that_says_nothing_is_not_asked_about(settings):
    X, y, high = gaps_table(lambda X: X["x"] >= 0.5)
    model = XMM(**settings).fit(X, y)
    assert features(model) == {"x"}
    assert np.mean(np.abs(model.predict(X) - np.where(high, 8, 0)) > 2) < 0.02


def test_missing_numbers_share_the_fate_of_neither_side():
    """m cuts at .5, and rows without it are a third kind."""
    X, y, _ = gaps_table(lambda X: X["m"] >= 0.5)
    y = y - 9.0 * X["m"].isna()
    model = XMM(**TREE).fit(X, y)
    np.testing.assert_allclose(model.predict(X[X["m"].isna()]), -9, atol=0.5)
    assert model.predict(X[X["m"] > 0.51]) == pytest.approx(8, abs=0.5)
    assert model.predict(X[X["m"] < 0.49]) == pytest.approx(0, abs=0.5)


@pytest.mark.parametrize("column", ["a", "c", "m", "s"])
@pytest.mark.parametrize("nothing", [np.nan, None, pd.NA], ids=["nan", "None", "NA"])
def test_no_kind_of_missing_value_breaks_an_answer(column, nothing, mixed):
    model, X, y = mixed
    rows = X[:20].astype({"s": "boolean", "a": "Float64", "m": "Float64"}) if nothing is pd.NA else X[:20].astype(object)
    rows.loc[rows.index[:10], column] = nothing
    if nothing is not pd.NA:
        rows = rows.astype({"a": float, "m": float})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isfinite(model.predict(rows)).all() and np.isfinite(model.sample(rows, random_state=0)).all()
        assert np.isfinite(model.score_samples(rows, y[:20])).all()
        np.testing.assert_allclose(model.gating(rows).sum(axis=1), 1)
        assert isinstance(model.explain_local(rows).to_text(), str)
        np.testing.assert_allclose(model.score_samples(rows, y[:20])[10:], model.score_samples(X, y)[10:20])


@pytest.mark.parametrize("density", ["nsf", "categorical", "mixed"])
def test_missing_values_and_levels_under_every_density(density):
    X, y, high = gaps_table(lambda X: X["m"].isna() | (X["c"] == "B"), n=400)
    y = {"nsf": y, "categorical": np.where(high, "up", "down"), "mixed": np.where(high & (X["x"] < 0.8), 0.0, y)}[density]
    if density == "categorical":
        y = np.where(np.random.default_rng(0).random(400) < 0.1, "up", y)
    model = XMM(density=density, **TREE).fit(X, y)
    assert np.isfinite(model.score_samples(X, y)).all()
    assert {"m", "c"} <= features(model) and "missing" in model.rules_.to_text()


def test_array_with_gaps_is_like_a_frame_with_gaps():
    X, y, _ = gaps_table(lambda X: X["m"].isna() | (X["m"] >= 0.5))
    X = X[["m", "x"]]
    frame, array = XMM(**TREE).fit(X, y), XMM(**TREE).fit(X.to_numpy(), y)
    assert "missing" in array.rules_.to_text()
    np.testing.assert_array_equal(array.score_samples(X.to_numpy(), y), frame.score_samples(X, y))


@pytest.mark.parametrize("dtype", ["Float64", "Int64"])
def test_nullable_columns(dtype):
    X, y, _ = gaps_table(lambda X: X["m"].isna() | (X["m"] >= 0.5))
    X["m"] = (1000 * X["m"]).round()
    plain = XMM(**TREE).fit(X, y)
    other = X.astype({"m": dtype})
    np.testing.assert_array_equal(XMM(**TREE).fit(other, y).score_samples(other, y), plain.score_samples(X, y))


@pytest.mark.parametrize("column", ["m", "c"])
def test_a_column_without_any_value_is_refused_by_name(column):
    X, y, _ = gaps_table(lambda X: X["x"] > 0.5)
    words = error_of(XMM(**TREE), X.assign(**{column: None if column == "c" else np.nan}), y)
    assert f"'{column}'" in words and "missing" in words


def test_an_array_column_without_any_value_is_refused():
    X, y, _ = gaps_table(lambda X: X["x"] > 0.5)
    words = error_of(XMM(**TREE), np.column_stack([X["x"], np.full(len(X), np.nan)]), y)
    assert "x2" in words and "missing" in words  # its name by position


def test_saved_model_keeps_levels_and_gaps(mixed, tmp_path):
    model, X, y = mixed
    model.save(tmp_path / "m.json")
    again = XMM.load(tmp_path / "m.json")
    np.testing.assert_array_equal(again.score_samples(X, y), model.score_samples(X, y))
    assert again.rules_ == model.rules_ and again.rules_.to_text() == model.rules_.to_text()
    new = X[:5].assign(c="E")
    with pytest.warns(UserWarning, match="'E'"):
        loaded = again.gating(new)
    with pytest.warns(UserWarning, match="'E'"):
        np.testing.assert_array_equal(loaded, model.gating(new))
    assert again.explain_local(X[:5]).to_text() == model.explain_local(X[:5]).to_text()


def test_pickled_and_cloned(mixed):
    model, X, y = mixed
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).score_samples(X, y), model.score_samples(X, y))
    np.testing.assert_array_equal(clone(model).fit(X, y).score_samples(X, y), model.score_samples(X, y))


# ---------------------------------------------------------------- weights


def test_weights_are_repetitions(mixed):
    _, X, y = mixed
    times = 1 + (np.arange(len(X)) % 7 == 0)
    again = np.repeat(np.arange(len(X)), times)
    weighted = XMM(**TREE).fit(X, y, sample_weight=times)
    repeated = XMM(**TREE).fit(X.iloc[again], y[again])
    assert weighted.score(X, y) == pytest.approx(repeated.score(X, y), abs=0.03)
    assert len(weighted.rules_) == len(repeated.rules_)


def test_support_and_bic_count_weights():
    X, y = levels_table()
    times = np.random.default_rng(0).integers(1, 4, len(X)).astype(float)
    model = XMM(**TREE).fit(X, y, sample_weight=times)
    covers = model.rules_.covers(X)
    np.testing.assert_allclose(model.support_, times @ covers)
    np.testing.assert_allclose(model.weights_, np.average(model.gating(X), axis=0, weights=times))
    n = times.sum()
    assert model.bic_ == pytest.approx(-2 * times @ model.score_samples(X, y) + model.n_parameters_ * np.log(n))


@pytest.mark.parametrize("settings", [TREE, GRADIENT], ids=["tree", "gradient"])
def test_weight_zero_leaves_a_row_out(settings):
    """Rows with weight zero say the opposite, lie elsewhere and hold a level of their own."""
    X, y = levels_table()
    other = pd.DataFrame({"c": np.tile(["B", "E"], 400), "x": np.linspace(5, 6, 800)})
    both, target = pd.concat([X, other], ignore_index=True), np.concatenate([y, np.full(800, 50.0)])
    weight = np.repeat([1.0, 0.0], 800)
    model, plain = XMM(**settings).fit(both, target, sample_weight=weight), XMM(**settings).fit(X, y)
    if settings is TREE:
        np.testing.assert_allclose(model.score_samples(X, y), plain.score_samples(X, y), atol=0.02)
    np.testing.assert_allclose(model.predict(X), plain.predict(X), atol=0.3)
    assert model.score_samples(X, np.full(800, 50.0)).max() < -8


def test_heavy_rows_decide():
    """Two kinds of rows that contradict each other: the heavy kind is the one that is learned."""
    X, y = levels_table()
    heavy = np.arange(len(X)) % 2 == 0
    mirrored = np.where(heavy, y, 8 - y)
    model = XMM(**TREE).fit(X, mirrored, sample_weight=np.where(heavy, 1.0, 1e-6))
    np.testing.assert_allclose(model.predict(X), np.where(X["c"].isin(["A", "C"]), 8, 0), atol=0.5)


@pytest.mark.parametrize("weight, words", [
    (lambda n: np.where(np.arange(n) == 7, -2.5, 1.0), ["sample_weight", "-2.5", "row 7"]),
    (lambda n: np.where(np.arange(n) == 7, np.nan, 1.0), ["sample_weight", "nan", "row 7"]),
    (lambda n: np.where(np.arange(n) == 7, np.inf, 1.0), ["sample_weight", "inf", "row 7"]),
    (lambda n: np.zeros(n), ["sample_weight", "zero"]),
    (lambda n: np.ones(n - 3), ["sample_weight", "797", "800"]),
    (lambda n: np.array(["heavy"] * n), ["sample_weight", "heavy"]),
], ids=["negative", "nan", "inf", "all zero", "length", "words"])
def test_bad_weights(weight, words):
    X, y = levels_table()
    said = error_of(XMM(**TREE), X, y, sample_weight=weight(len(X)))
    assert all(word in said for word in words), said


# ---------------------------------------------------------------- a person's rules


LOCKED = [Rule([Condition("x", low=0.21, high=0.43)], name="the band"), Rule([Condition("c", levels={"A", "B"}), Condition("x", high=0.77)])]


@pytest.mark.parametrize("given, settings", [
    (LOCKED, TREE), (RuleSet(LOCKED, ["c", "x"]), TREE), (LOCKED, GRADIENT), (LOCKED, dict(TREE, refine=False)),
], ids=["list", "RuleSet", "gradient", "no refinement"])
def test_locked_rules_stay_as_they_are(given, settings):
    """They say nothing about the target, and are kept; what matters is found beside them."""
    X, y = levels_table()
    model = XMM(locked_rules=given, **settings).fit(X, y)
    for rule in LOCKED:
        assert sum(found.conditions == rule.conditions for found in model.rules_) == 1
    assert any(rule.conditions and {c.feature for c in rule.conditions} == {"c"} for rule in model.rules_)
    free = XMM(**settings).fit(X, y)
    assert len(model.rules_) > len(LOCKED) and model.score(X, y) < free.score(X, y) + 0.05


def test_locked_rules_keep_their_names():
    X, y = levels_table()
    assert "the band" in [rule.name for rule in XMM(locked_rules=LOCKED, **TREE).fit(X, y).rules_]


@pytest.mark.parametrize("rules, words", [
    ([Rule([Condition("x", low=0.6), Condition("x", high=0.4)])], ["contradict", "x"]),
    ([Rule([Condition("c", levels={"A"}), Condition("c", levels={"B"})])], ["contradict", "c"]),
    ([Rule([Condition("zz", low=0.6)])], ["'zz'"]),
    ([Rule([Condition("x", low=7)])], ["x >= 7", "800"]),
    ([Rule([Condition("c", levels={"Q"})])], ["'Q'", "'c'"]),
    ([Rule([Condition("x", low=0.5)]), Rule([Condition("x", low=0.5)])], ["x >= 0.5", "twice"]),
    ([Rule([Condition("c", low=0.5)])], ["'c'", "levels"]),
    ([Rule([Condition("x", levels={"A"})])], ["'x'", "number"]),
    (["x >= 0.5"], ["x >= 0.5", "Rule"]),
], ids=["empty interval", "no level left", "unknown column", "no row", "unknown level", "twice", "interval of levels",
        "levels of a number", "a text"])
@pytest.mark.parametrize("setting", ["locked_rules", "expert_rules"])
def test_bad_rules_of_a_person(rules, words, setting):
    X, y = levels_table()
    model = XMM(**{setting: rules}, **TREE)
    if setting == "expert_rules" and "800" in words:  # only a start: a warning is enough
        with pytest.warns(UserWarning) as caught:
            model.fit(X, y)
        said = " ".join(str(w.message) for w in caught)
        words = words[:1]
    else:
        said = error_of(model, X, y)
    assert setting in said and all(word in said for word in words), said


def test_locked_rule_on_a_forbidden_column():
    X, y = levels_table()
    assert "'x'" in error_of(XMM(locked_rules=LOCKED, forbidden=["x"], **TREE), X, y)


def test_rules_of_a_person_survive_saving_and_cloning(tmp_path):
    X, y = levels_table()
    model = XMM(locked_rules=LOCKED, expert_rules=[Rule([Condition("c", levels={"A", "C"})])], **TREE).fit(X, y)
    again = XMM.from_dict(json.loads(json.dumps(model.to_dict(), allow_nan=False)))
    np.testing.assert_array_equal(again.score_samples(X, y), model.score_samples(X, y))
    for other in (again, clone(model)):
        np.testing.assert_array_equal(other.fit(X, y).score_samples(X, y), model.score_samples(X, y))


def test_expert_rules_find_what_no_single_cut_can():
    """Parity: the tree start finds nothing; four sloppy quadrants are enough to start from, and become exact."""
    toy, test = (make_parity(n_samples=1500, n_features=4, random_state=seed) for seed in (0, 100))
    truth = toy.log_density(test.X, test.y).mean()
    quadrants = [Rule([Condition("x1", *one), Condition("x2", *two)])
                 for one in ((0.44, np.inf), (-np.inf, 0.44)) for two in ((0.57, np.inf), (-np.inf, 0.57))]
    assert XMM(**TREE).fit(toy.X, toy.y).score(test.X, test.y) < truth - 0.3
    model = XMM(expert_rules=quadrants, **TREE).fit(toy.X, toy.y)
    assert model.score(test.X, test.y) > truth - 0.05
    assert len(model.rules_) == 4
    bounds = [b for rule in model.rules_ for c in rule.conditions for b in (c.low, c.high) if np.isfinite(b)]
    np.testing.assert_allclose(bounds, 0.5, atol=0.02)


def test_expert_rules_that_say_nothing_are_dropped():
    X, y = levels_table()
    model = XMM(expert_rules=LOCKED, **TREE).fit(X, y)
    assert texts(model) == {"c in {A, C}", "c in {B, D}"}


def test_forbidden_columns_play_no_part():
    X, y = levels_table()
    X["twin"] = np.where(X["c"].isin(["A", "C"]), "yes", "no")
    model = XMM(forbidden=["c"], **TREE).fit(X, y)
    assert features(model) == {"twin"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(model.predict(X.assign(c="E")), model.predict(X))
    assert "c" not in features(XMM(forbidden=["c"], **GRADIENT).fit(X, y))


def test_forbidden_column_of_an_array():
    X, y = mixed_table()[0][["a", "m"]].to_numpy(), mixed_table()[1]
    model = XMM(forbidden=["x1"], **TREE).fit(X, y)
    assert features(model) == {"x2"}


@pytest.mark.parametrize("forbidden, word", [(["zz"], "'zz'"), (["c", "x"], "every column")])
def test_bad_forbidden_columns(forbidden, word):
    X, y = levels_table()
    assert word in error_of(XMM(forbidden=forbidden, **TREE), X, y)


# ---------------------------------------------------------------- monotone


def wave(sign=1, n=1000):
    """The mean of y rises with a, in waves, at a pace that depends on b and c; y is noisy."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.random(n), "b": rng.random(n), "c": rng.choice(list("AB"), n)})
    mean = 6 * X["a"] * (1 + (X["b"] > 0.5)) + 2 * np.sin(12 * X["a"]) + 3 * (X["c"] == "A")
    return X, sign * mean + rng.normal(0, 0.5, n)


def steps_along(model, X, feature, grid):
    """Differences of the prediction of every row while one feature runs through a grid."""
    predicted = np.stack([model.predict(X.assign(**{feature: value})) for value in grid])
    return np.diff(predicted, axis=0)


@pytest.mark.parametrize("sign", [1, -1])
def test_monotone(sign):
    X, y = wave(sign)
    grid = np.linspace(-0.1, 1.1, 121)
    assert (sign * steps_along(XMM(**TREE).fit(X, y), X, "a", grid)).min() < -0.5
    model = XMM(monotone={"a": sign}, **TREE).fit(X, y)
    assert (sign * steps_along(model, X, "a", grid)).min() > -1e-9
    population = XMM(forbidden=["a"], **TREE).fit(X, y)
    assert model.score(X, y) > population.score(X, y) + 0.2  # the trend is still learned


def test_monotone_in_two_features():
    X, y = wave()
    model = XMM(monotone={"a": 1, "b": 1}, **TREE).fit(X, y)
    for feature in "ab":
        assert steps_along(model, X, feature, np.linspace(0, 1, 81)).min() > -1e-9


def test_monotone_against_the_truth_uses_nothing():
    X, y = wave()
    model = XMM(monotone={"a": -1}, **TREE).fit(X, y)
    assert steps_along(model, X, "a", np.linspace(0, 1, 81)).max() < 1e-9


def test_monotone_with_gaps_and_gradient():
    X, y = wave()
    X.loc[::5, "a"] = np.nan
    for settings in (TREE, GRADIENT):
        model = XMM(monotone={"a": 1}, **settings).fit(X, y)
        assert steps_along(model, X, "a", np.linspace(0, 1, 81)).min() > -1e-9


@pytest.mark.parametrize("density", ["mixed", "nsf"])
def test_monotone_under_other_densities(density):
    X, y = wave(n=500)
    y = y.where(np.random.default_rng(0).random(500) > 0.2, 0.0) if density == "mixed" else y
    model = XMM(density=density, monotone={"a": 1}, **TREE).fit(X, y)
    assert steps_along(model, X, "a", np.linspace(0, 1, 41)).min() > -1e-9


@pytest.mark.parametrize("monotone, word", [({"zz": 1}, "'zz'"), ({"a": 2}, "2"), ({"c": 1}, "'c'"), ({"a": "up"}, "up")])
def test_bad_monotone(monotone, word):
    X, y = wave(n=200)
    said = error_of(XMM(monotone=monotone, **TREE), X, y)
    assert "monotone" in said and word in said


# ---------------------------------------------------------------- marginal mixtures


OVERLAP = [Rule([Condition("x", high=0.6)]), Rule([Condition("x", low=0.3, high=0.8)])]  # nothing above .8


def marginal_weights(model, X, weight=None):
    covers = model.rules_.covers(X)
    e = np.average(np.column_stack([covers, ~covers.any(axis=1)]), axis=0, weights=weight)
    return e / e.sum()


@pytest.mark.parametrize("weighted", [False, True])
def test_marginal_weights(weighted):
    """w_i = E[e_i] / sum_j E[e_j], the same in every row, though the rules overlap."""
    X, y = levels_table()
    weight = np.random.default_rng(0).integers(1, 4, len(X)) if weighted else None
    model = XMM(conditional=False, locked_rules=OVERLAP, max_rules=2, **TREE).fit(X, y, sample_weight=weight)
    assert len(model.rules_) == 2
    expected = marginal_weights(model, X, weight)
    np.testing.assert_allclose(model.weights_, expected, atol=1e-9)
    np.testing.assert_allclose(model.gating(X), np.tile(expected, (len(X), 1)), atol=1e-9)
    np.testing.assert_allclose(model.gating(X[:3]), np.tile(expected, (3, 1)), atol=1e-9)


def test_marginal_density_is_one_density():
    X, y = levels_table()
    model = XMM(conditional=False, **TREE).fit(X, y)
    grid = np.linspace(y.min() - 30, y.max() + 30, 8001)
    density = np.exp(model.score_samples(X.iloc[np.zeros(8001, int)], grid))
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose(density, model.weights_ @ model.component_pdf(grid), rtol=1e-9)
    np.testing.assert_allclose(model.score_samples(X[::-1], y), model.score_samples(X, y), rtol=1e-12)
    assert np.ptp(model.predict(X)) < 1e-9 and model.predict(X)[0] == pytest.approx(y.mean(), abs=0.1)


def test_a_partition_gives_the_true_marginal():
    """Where rules part the table, the marginal mixture is the conditional one averaged over the rows."""
    X, y = levels_table()
    marginal, conditional = XMM(conditional=False, **TREE).fit(X, y), XMM(**TREE).fit(X, y)
    assert (conditional.rules_.covers(X).sum(axis=1) == 1).all()
    for value in (-1.0, 0.5, 4.0, 8.0):
        averaged = np.exp(conditional.score_samples(X, np.full(len(X), value))).mean()
        assert np.exp(marginal.score_samples(X[:1], [value]))[0] == pytest.approx(averaged, rel=1e-6)


def test_marginal_model_is_saved_as_such(tmp_path):
    X, y = levels_table()
    model = XMM(conditional=False, **TREE).fit(X, y)
    model.save(tmp_path / "m.json")
    np.testing.assert_array_equal(XMM.load(tmp_path / "m.json").score_samples(X, y), model.score_samples(X, y))


# ---------------------------------------------------------------- why and what if


def single_bounds(model):
    """The words of every bound in the rules, and the condition behind them."""
    found = {}
    for c in (c for rule in model.rules_ for c in rule.conditions):
        if c.levels is not None or not (np.isfinite(c.low) or np.isfinite(c.high)):
            parts = [c]
        else:
            parts = [Condition(c.feature, low=c.low, missing=c.missing)] * int(np.isfinite(c.low)) + \
                [Condition(c.feature, high=c.high, missing=c.missing)] * int(np.isfinite(c.high))
        for part in parts:
            for levels in (None, {k: v for k, v in model.rules_.levels.items()} if model.rules_.levels else None):
                found[Rule(part).to_text(levels=levels)] = part
    return found


def cross(row, condition, model, nudge=1e-9):
    """The row, moved to the other side of a condition in one column; by the smallest step for a number."""
    row, value = row.copy(), row[condition.feature].iloc[0]
    holds = condition.satisfied(row[condition.feature])[0]
    levels = model.rules_.levels.get(condition.feature) if model.rules_.levels else None
    if levels is not None:
        options = [level for level in levels] + [None]
    elif pd.isna(value):
        options = [condition.low, condition.high - nudge, condition.low - nudge, condition.high, 0.5]
    else:
        options = [condition.low if value < condition.low else condition.low - nudge,
                   condition.high - nudge if value >= condition.high else condition.high, np.nan]
    for option in options:
        if isinstance(option, float) and np.isinf(option):
            continue
        moved = row.assign(**{condition.feature: pd.Series([option], index=row.index, dtype=row[condition.feature].dtype
                                                           if option is not None else object)})
        if condition.satisfied(moved[condition.feature])[0] != holds:
            return moved
    raise AssertionError(f"cannot cross {condition.to_text()}")


def test_smallest_change_really_changes_which_rules_hold(mixed):
    """Numbers, levels, bools and gaps: cross the named bounds, and other rules hold."""
    model, X, _ = mixed
    frame, bounds = model.explain_local(X[:120]).to_frame().drop_duplicates("row"), single_bounds(model)
    kinds = set()
    for entry in frame.itertuples():
        row = X.iloc[[entry.row]]
        holds, moved = model.rules_.covers(row)[0], row
        for words in entry.nearest_bound.split(" and "):
            assert words in bounds, f"{words!r} is none of {sorted(bounds)}"
            moved = cross(moved, bounds[words], model)
            kinds.add(bounds[words].feature)
        assert not np.array_equal(model.rules_.covers(moved)[0], holds), (row, entry.nearest_bound)
    assert len(kinds) >= 3  # the test has seen numbers and levels


def test_no_smaller_change_of_a_number_changes_the_rules(mixed):
    model, X, _ = mixed
    frame = model.explain_local(X[:60]).to_frame().drop_duplicates("row")
    assert (frame["distance"] > 0).all()
    for entry in frame.itertuples():
        row = X.iloc[[entry.row]]
        holds = model.rules_.covers(row)[0]
        for feature in ("a", "m"):
            steps = np.linspace(-0.97, 0.97, 31) * min(entry.distance, 10) * X[feature].std()
            many = row.iloc[np.zeros(31, int)].assign(**{feature: row[feature].iloc[0] + steps})
            np.testing.assert_array_equal(model.rules_.covers(many), np.tile(holds, (31, 1)))


def test_change_is_given_in_units_only_where_there_is_a_number(mixed):
    """From a missing value to a number is no distance in units."""
    model, X, _ = mixed
    frame = model.explain_local(X[:300]).to_frame().drop_duplicates("row")
    gaps = frame[frame["nearest_bound"].str.startswith("m ") & ~frame["nearest_bound"].str.contains(" and ")
                 & X["m"].isna().to_numpy()[frame["row"]]]
    assert len(gaps) and (gaps["change"] == "").all(), gaps[["nearest_bound", "change"]].head()


def test_local_explanation_lists_the_rules_at_work(mixed):
    model, X, _ = mixed
    frame, gating = model.explain_local(X[:40]).to_frame(), model.gating(X[:40])
    for row, group in frame.groupby("row"):
        np.testing.assert_allclose(np.sort(group["weight"]), np.sort(gating[row][gating[row] > 0]))
        assert (group["weight"].sum() == pytest.approx(1)) and set(group["rule"]) <= texts(model) | {"otherwise"}


# ---------------------------------------------------------------- awkward tables


@pytest.mark.parametrize("levels", [[1, 2, 3], [1.5, 2.5, 3.5], [True, False], ["1", "2", "nan"], ["a, b", "missing", "{x}"]],
                         ids=str)
def test_levels_of_any_type_survive_saving(levels):
    rng = np.random.default_rng(0)
    code = rng.integers(0, len(levels), 600)
    X = pd.DataFrame({"c": pd.Categorical.from_codes(code, levels), "x": rng.random(600)})
    y = np.where(code == 0, 8.0, 0.0) + rng.normal(size=600)
    model = XMM(**TREE).fit(X, y)
    again = XMM.from_dict(json.loads(json.dumps(model.to_dict(), allow_nan=False)))
    assert features(model) == {"c"} and again.rules_ == model.rules_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(again.score_samples(X, y), model.score_samples(X, y))
    np.testing.assert_allclose(model.predict(X), np.where(code == 0, 8, 0), atol=0.5)


def test_a_column_without_values_is_welcome_at_prediction(mixed):
    model, X, y = mixed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for column in X:
            nothing = X[:9].assign(**{column: None if column in "cs" else np.nan})
            assert np.isfinite(model.score_samples(nothing, y[:9])).all() and np.isfinite(model.predict(nothing)).all()


def test_one_row_at_a_time(mixed):
    model, X, y = mixed
    whole = model.score_samples(X, y)
    for i in (0, 5, int(X["m"].isna().argmax())):
        np.testing.assert_allclose(model.score_samples(X.iloc[[i]], y[[i]]), whole[[i]], rtol=1e-12)
        assert len(model.explain_local(X.iloc[[i]]).to_frame()) >= 1


def test_same_seed_same_model_with_gaps_and_levels():
    X, y = mixed_table(500)
    one, two = (XMM(**GRADIENT).fit(X, y) for _ in range(2))
    assert one.rules_ == two.rules_
    np.testing.assert_array_equal(one.score_samples(X, y), two.score_samples(X, y))


def test_saved_settings_are_those_of_the_model():
    X, y = levels_table()
    settings = dict(forbidden=["x"], conditional=False, locked_rules=[Rule([Condition("c", levels={"A"})])], density="auto")
    again = XMM.from_dict(json.loads(json.dumps(XMM(**settings, **TREE).fit(X, y).to_dict())))
    params = again.get_params()
    assert list(params["forbidden"]) == ["x"] and params["conditional"] is False and params["density"] == "auto"
    assert params["locked_rules"] and list(params["locked_rules"]) == settings["locked_rules"]


def test_input_is_left_as_it_was():
    X, y = mixed_table(300)
    table, target, weight = X.copy(deep=True), y.copy(), np.ones(300)
    forbidden, rules = ["a"], list(LOCKED[:0])
    XMM(forbidden=forbidden, locked_rules=rules, **TREE).fit(X, y, sample_weight=weight).explain_local(X[:3])
    pd.testing.assert_frame_equal(X, table)
    np.testing.assert_array_equal(y, target)
    assert forbidden == ["a"] and rules == [] and (weight == 1).all()


def test_locked_rules_on_missing_values():
    X, y, _ = gaps_table(lambda X: X["x"] > 0.5)
    given = [Rule([Condition("m", low=0.3, missing=True)]), Rule([Condition("c", levels={"A"}, missing=True)])]
    model = XMM(locked_rules=given, **TREE).fit(X, y)
    covers = {rule.conditions: covered for rule, covered in zip(model.rules_, model.rules_.covers(X).T)}
    np.testing.assert_array_equal(covers[given[0].conditions], X["m"].isna() | (X["m"] >= 0.3))
    np.testing.assert_array_equal(covers[given[1].conditions], X["c"].isna() | (X["c"] == "A"))


def test_gating_follows_the_rules_on_every_kind_of_column(mixed):
    """Equal shares among the rules that hold, else 'otherwise'; gaps and levels included."""
    model, X, _ = mixed
    covers = model.rules_.covers(X)
    expected = np.column_stack([covers, ~covers.any(axis=1)]).astype(float)
    np.testing.assert_allclose(model.gating(X), expected / expected.sum(axis=1, keepdims=True), atol=1e-12)


def test_rules_as_json_cover_the_same_rows(mixed):
    model, X, _ = mixed
    again = RuleSet.from_json(model.rules_.to_json())
    np.testing.assert_array_equal(again.covers(X), model.rules_.covers(X))
    assert again.to_text() == model.rules_.to_text()


def test_neighbouring_cuts_of_locked_rules_do_not_hold_up_the_search():
    """Two locked rules share no cut, though their cuts are a row apart: nothing moves, and the search comes to an end."""
    X, y = levels_table()
    x = np.sort(X["x"])
    locked = [Rule([Condition("x", high=x[400])]), Rule([Condition("x", low=x[402])])]
    model = XMM(locked_rules=locked, **TREE).fit(X, y)
    assert all(any(found.conditions == rule.conditions for found in model.rules_) for rule in locked)


def test_more_locked_rules_than_rules_may_be_kept(run_python):
    """Either all locked rules are kept or the setting is refused; the search comes to an end."""
    script = """if True:
        import numpy as np
        from mixlit.rules import Condition, Rule
        from mixlit.xmm import XMM
        rng = np.random.default_rng(0)
        X = rng.random((400, 2))
        y = 8 * (X[:, 1] > 0.5) + rng.normal(size=400)
        locked = [Rule([Condition("x1", low=0.2, high=0.4)]), Rule([Condition("x1", high=0.77)])]
        try:
            model = XMM(locked_rules=locked, max_rules=1, init="tree", random_state=0).fit(X, y)
        except ValueError as error:
            assert "max_rules" in str(error), error
        else:
            assert set(locked) <= set(model.rules_), model.rules_
        """
    result = run_python("-c", script, timeout=40, OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stderr


def test_monotone_does_not_change_a_locked_rule():
    """The locked rule makes the mean fall where it must not: it is kept all the same, or the two are refused together."""
    X, y = levels_table()
    y = np.where(X["x"] >= 0.5, -5.0, 0.0) + 0.1 * y
    locked = Rule([Condition("x", low=0.5)])
    model = XMM(locked_rules=[locked], monotone={"x": 1}, **TREE)
    try:
        model.fit(X, y)
    except ValueError as error:
        assert "x >= 0.5" in str(error) and "monotone" in str(error)
    else:
        assert locked.conditions in [rule.conditions for rule in model.rules_]
