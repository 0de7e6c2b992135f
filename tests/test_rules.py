"""Conditions, rules and rule sets: what they cover, how they read, and their soft and fuzzy versions."""
import json
import math
import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_expit

from mixlit.rules import (
    Bell,
    Condition,
    LinguisticVariable,
    Rule,
    RuleSet,
    Trapezoid,
    Triangle,
    activation,
    format_number,
    log_activation,
    log_harmonic_and,
    log_soft_interval,
    minimum_and,
    plot_activation,
    plot_intervals,
    plot_memberships,
    product_and,
    readable_number,
    soft_interval,
)

INF = math.inf
quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)
finite = st.floats(-1e6, 1e6)
small_integers = st.integers(-4, 4).map(float)
bounds = st.one_of(st.just(-INF), st.just(INF), small_integers)


@pytest.fixture
def people():
    return pd.DataFrame({
        "smoker": ["yes", "no", "yes", None, "no"],
        "bmi": [30.1, 35.0, np.nan, 40.0, 22.5],
        "age": [18, 64, 65, 30, 17],
    })


# ---------------------------------------------------------------- conditions


def test_interval_is_half_open():
    age = Condition("age", low=18, high=65)
    assert age.satisfied([17.999, 18, 64.999, 65]).tolist() == [False, True, True, False]


def test_one_sided_intervals():
    assert Condition("x", low=0).satisfied([-1, 0, 1e300, INF]).tolist() == [False, True, True, True]
    assert Condition("x", high=0).satisfied([-INF, -1, 0, 1]).tolist() == [True, True, False, False]


def test_answer_is_a_boolean_array():
    answer = Condition("x", low=0).satisfied([1, -1])
    assert isinstance(answer, np.ndarray) and answer.dtype == bool and answer.shape == (2,)


def test_levels_are_a_set():
    region = Condition("region", levels={"NE", "SE"})
    assert region.satisfied(["NE", "NW", "SE", ""]).tolist() == [True, False, True, False]


@pytest.mark.parametrize("values", [
    pd.Series(["a", None, "b"], dtype=object),
    pd.Series(["a", None, "b"], dtype="string"),
    pd.Series(["a", None, "b"], dtype="category"),
    np.array(["a", None, "b"], dtype=object),
    np.array(["a", np.nan, "b"], dtype=object),
], ids=["object", "string", "category", "array with None", "array with nan"])
def test_missing_category(values):
    assert Condition("s", levels={"a"}).satisfied(values).tolist() == [True, False, False]
    assert Condition("s", levels={"a"}, missing=True).satisfied(values).tolist() == [True, True, False]


@pytest.mark.parametrize("values", [
    np.array([1.0, np.nan, -1.0]),
    pd.Series([1.0, None, -1.0]),
    pd.Series([1, None, -1], dtype="Int64"),
    pd.Series([1.5, None, -1], dtype="Float64"),
    [1.0, float("nan"), -1.0],
], ids=["array", "series", "nullable integer", "nullable float", "list"])
def test_missing_number(values):
    assert Condition("x", low=0).satisfied(values).tolist() == [True, False, False]
    assert Condition("x", low=0, missing=True).satisfied(values).tolist() == [True, True, False]


def test_boolean_column():
    values = pd.Series([True, False, True])
    assert Condition("b", levels={True}).satisfied(values).tolist() == [True, False, True]


def test_condition_is_a_frozen_value():
    a, b = Condition("x", low=1), Condition("x", low=1.0)
    assert a == b and hash(a) == hash(b)
    assert Condition("x", levels=["a", "b"]) == Condition("x", levels={"b", "a"})
    assert a != Condition("x", low=1, missing=True)
    with pytest.raises(AttributeError):
        a.low = 2


@pytest.mark.parametrize("low, high, empty", [(1, 1, True), (2, 1, True), (1, 2, False), (-INF, INF, False),
                                              (INF, INF, True)])
def test_empty_interval(low, high, empty):
    assert Condition("x", low=low, high=high).is_empty == empty


def test_empty_levels_and_missing():
    assert Condition("x", levels=()).is_empty
    assert not Condition("x", levels=(), missing=True).is_empty
    assert Condition("x", low=2, high=1, missing=True).satisfied([np.nan, 1.5]).tolist() == [True, False]


def test_trivial_condition_asks_nothing():
    everything = Condition("x", missing=True)
    assert everything.is_trivial
    assert everything.satisfied([1.0, np.nan, -INF]).all()
    assert Condition("x").satisfied([1.0, np.nan, -INF]).all()
    assert not Condition("x", low=0).is_trivial
    assert not Condition("x", levels={"a"}).is_trivial


@pytest.mark.parametrize("wrong", [dict(low=math.nan), dict(high=math.nan), dict(low=0, levels={"a"})])
def test_condition_refuses(wrong):
    with pytest.raises(ValueError, match="'age'"):
        Condition("age", **wrong)


def test_words_in_an_interval_column_are_an_error_that_names_both():
    with pytest.raises(ValueError, match=r"'bmi'.*'thin'"):
        Condition("bmi", low=1).satisfied(["thin", "fat"])


numeric_conditions = st.builds(lambda low, high, missing: Condition("x", low=low, high=high, missing=missing),
                               bounds, bounds, st.booleans())
level_conditions = st.builds(lambda levels, missing: Condition("x", levels=levels, missing=missing),
                             st.sets(st.sampled_from("abc")), st.booleans())
GRID = np.array([-INF, *np.arange(-5, 5.5, 0.5), INF, np.nan])
WORDS = np.array(["a", "b", "c", "d", None], dtype=object)


def sees(condition):
    """The probe values that a condition accepts."""
    return condition.satisfied(GRID if condition.levels is None else WORDS)


@quick
@given(st.one_of(st.tuples(numeric_conditions, numeric_conditions), st.tuples(level_conditions, level_conditions)))
def test_and_is_the_intersection(pair):
    a, b = pair
    np.testing.assert_array_equal(sees(a & b), sees(a) & sees(b))


@quick
@given(st.one_of(st.tuples(numeric_conditions, numeric_conditions), st.tuples(level_conditions, level_conditions)))
def test_contains_agrees_with_the_values(pair):
    a, b = pair
    probe_a, probe_b = sees(a), sees(b)
    if a.levels is None:  # an interval that ends at +inf leaves the value +inf itself open
        probe_a, probe_b = (np.delete(p, [0, len(GRID) - 2]) for p in (probe_a, probe_b))
    assert a.contains(b) == bool((probe_a | ~probe_b).all())


def test_and_of_two_columns_is_not_a_condition():
    with pytest.raises(ValueError, match="'x'.*'y'"):
        Condition("x", low=1) & Condition("y", low=1)


# ---------------------------------------------------------------- how they read


@pytest.mark.parametrize("condition, text", [
    (Condition("bmi", low=30.1), "bmi >= 30.1"),
    (Condition("bmi", high=30.1), "bmi < 30.1"),
    (Condition("age", low=18, high=65), "18 <= age < 65"),
    (Condition("smoker", levels={"yes"}), "smoker = yes"),
    (Condition("region", levels={"SE", "NE"}), "region in {NE, SE}"),
    (Condition("bmi", low=30.1, missing=True), "bmi >= 30.1 or missing"),
    (Condition("smoker", levels={"yes"}, missing=True), "smoker = yes or missing"),
    (Condition("count", low=-3.0), "count >= -3"),
])
def test_condition_reads_as_a_person_says_it(condition, text):
    assert condition.to_text() == text


def test_levels_read_by_their_complement_where_that_is_shorter():
    region = Condition("region", levels={"NE", "SE", "SW"})
    assert region.to_text(levels=("NE", "NW", "SE", "SW")) == "region != NW"
    assert Condition("region", levels={"NE", "SE"}).to_text(levels=("NE", "NW", "SE", "SW")) == "region in {NE, SE}"
    assert Condition("smoker", levels={"yes"}).to_text(levels=("no", "yes")) == "smoker = yes"


def test_unit_follows_the_number():
    assert Condition("age", low=18, high=65).to_text(unit="years") == "18 <= age < 65 years"
    assert Condition("bmi", low=30.1).to_text(unit="kg/m2") == "bmi >= 30.1 kg/m2"


def test_rule_reads_as_a_person_says_it():
    rule = Rule([Condition("smoker", levels={"yes"}), Condition("bmi", low=30.1)])
    assert rule.to_text() == "smoker = yes and bmi >= 30.1"
    assert Rule().to_text() == "always"


@pytest.mark.parametrize("value, text", [(18.0, "18"), (30.1, "30.1"), (0.5, "0.5"), (-2.0, "-2"), (0.0, "0"),
                                         (1.25e-7, "1.25e-7"), (123.456, "123.456")])
def test_numbers_have_no_idle_digits(value, text):
    assert format_number(value) == text


@quick
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_exact_and_short(value):
    text = format_number(value)
    assert float(text) == value
    assert len(text) <= len(repr(value))
    assert not text.endswith(".0")


@pytest.mark.parametrize("low, high, number", [(30.08, 30.13, 30.1), (29.9, 30.1, 30.0), (17.0, 18.0, 18.0),
                                               (17.2, 18.9, 18.0), (-0.5, 0.5, 0.0), (-18.0, -17.0, -17.0),
                                               (0.12345, 0.12355, 0.1235), (999.7, 1000.2, 1000.0)])
def test_a_readable_cut(low, high, number):
    assert readable_number(low, high) == number


@quick
@given(finite, finite)
def test_a_readable_cut_separates_the_two_values(a, b):
    low, high = sorted((a, b))
    if low == high:
        return
    cut = readable_number(low, high)
    assert low < cut <= high
    assert len(f"{cut!r}".strip("-")) <= max(len(f"{high!r}".strip("-")), 3)


def test_neighbouring_floats_have_a_cut():
    low = 0.1
    high = np.nextafter(low, 1)
    assert readable_number(low, high) == high


# ---------------------------------------------------------------- rules


def test_rule_is_a_conjunction(people):
    rule = Rule([Condition("smoker", levels={"yes"}), Condition("bmi", low=30.1)])
    assert rule.covers(people).tolist() == [True, False, False, False, False]
    assert Rule().covers(people).all()


def test_rule_merges_conditions_on_one_column():
    rule = Rule([Condition("x", low=1), Condition("y", low=0), Condition("x", high=2)])
    assert rule.to_text() == "1 <= x < 2 and y >= 0"
    assert len(rule.conditions) == 2


def test_rule_on_an_array_goes_by_position():
    rule = Rule([Condition("b", low=0)])
    X = np.array([[5.0, -1.0], [-5.0, 1.0]])
    assert rule.covers(X, feature_names=["a", "b"]).tolist() == [False, True]


def test_number_of_bounds():
    rule = Rule([Condition("x", low=1, high=2), Condition("y", low=0), Condition("s", levels={"a", "b"})])
    assert rule.n_bounds == 4
    assert Rule().n_bounds == 0


def test_rule_contains():
    wide, narrow = Rule([Condition("x", low=0)]), Rule([Condition("x", low=1), Condition("y", high=3)])
    assert wide.contains(narrow) and not narrow.contains(wide)
    assert Rule().contains(wide) and not wide.contains(Rule())
    assert wide.contains(wide)


def test_rule_set_covers_coverage_support_overlap(people):
    rules = RuleSet([Rule([Condition("smoker", levels={"yes"})]), Rule([Condition("bmi", low=30.1)]), Rule()],
                    feature_names=["smoker", "bmi", "age"])
    expected = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 1], [0, 1, 1], [0, 0, 1]], dtype=bool)
    covers = rules.covers(people)
    assert covers.dtype == bool
    np.testing.assert_array_equal(covers, expected)
    np.testing.assert_array_equal(rules.support(people), [2, 3, 5])
    np.testing.assert_allclose(rules.coverage(people), [0.4, 0.6, 1])
    np.testing.assert_allclose(rules.overlap(people), [[0.4, 0.2, 0.4], [0.2, 0.6, 0.6], [0.4, 0.6, 1]])
    np.testing.assert_allclose(rules.coverage(people, sample_weight=[3, 1, 0, 0, 0]), [0.75, 1, 1])


def test_columns_are_found_by_name(people):
    rules = RuleSet([Rule([Condition("bmi", low=30.1)])], feature_names=["smoker", "bmi", "age"])
    shuffled = people[["age", "bmi", "smoker"]]
    np.testing.assert_array_equal(rules.covers(shuffled), rules.covers(people))
    with pytest.raises(ValueError, match="'bmi'"):
        rules.covers(people.drop(columns="bmi"))


def test_array_of_another_width_is_an_error():
    rules = RuleSet([Rule([Condition("a", low=0)])], feature_names=["a", "b"])
    with pytest.raises(ValueError, match="2"):
        rules.covers(np.zeros((4, 3)))


def test_a_rule_on_an_unknown_column_is_an_error():
    with pytest.raises(ValueError, match="'c'"):
        RuleSet([Rule([Condition("c", low=0)])], feature_names=["a", "b"])


def test_rule_set_is_a_sequence():
    first, second = Rule([Condition("a", low=0)]), Rule([Condition("b", high=0)])
    rules = RuleSet([first, second], feature_names=["a", "b"])
    assert len(rules) == 2 and rules[0] == first and rules[-1] == second and list(rules) == [first, second]
    assert second in rules
    assert rules == RuleSet([first, second], feature_names=["a", "b"])
    assert rules != RuleSet([second, first], feature_names=["a", "b"])
    assert list(rules[1:]) == [second]
    assert list(rules + RuleSet([first], feature_names=["a", "b"])) == [first, second, first]
    with pytest.raises(IndexError):
        rules[2]


def test_no_rules_at_all(people):
    rules = RuleSet([], feature_names=list(people.columns))
    assert rules.covers(people).shape == (5, 0)
    assert rules.overlap(people).shape == (0, 0)
    assert len(rules.to_frame()) == 0
    assert RuleSet.from_json(rules.to_json()) == rules
    assert len(rules.simplify()) == 0


def test_from_bounds():
    low = np.array([[-INF, 0.2], [0.5, -INF]])
    high = np.array([[0.5, INF], [INF, INF]])
    rules = RuleSet.from_bounds(low, high, ["a", "b"], units={"a": "m"})
    assert [rule.to_text() for rule in rules] == ["a < 0.5 and b >= 0.2", "a >= 0.5"]
    assert rules.units == {"a": "m"}
    X = np.random.default_rng(0).random((200, 2))
    naive = np.array([[all(low[i, j] <= x[j] < high[i, j] for j in range(2)) for i in range(2)] for x in X])
    np.testing.assert_array_equal(rules.covers(X), naive)


# ---------------------------------------------------------------- simplify

rule_strategy = st.builds(
    lambda a, b, c: Rule([Condition("a", *a), Condition("b", *b), Condition("s", levels=c) if c else Condition("s")]),
    st.tuples(bounds, bounds), st.tuples(bounds, bounds), st.sets(st.sampled_from("uvw")))
TABLE = pd.DataFrame(list(product(np.arange(-4.5, 4.6), np.arange(-4.5, 4.6), "uvw")), columns=["a", "b", "s"])


@quick
@given(st.lists(rule_strategy, max_size=6))
def test_simplify_covers_the_same_rows_with_no_more_rules(rules):
    rules = RuleSet(rules, ["a", "b", "s"], levels={"s": ("u", "v", "w")})
    simple = rules.simplify(limits={"a": (-4.5, 4.5), "b": (-4.5, 4.5)})
    np.testing.assert_array_equal(simple.covers(TABLE).any(axis=1), rules.covers(TABLE).any(axis=1))
    assert len(simple) <= len(rules)
    assert sum(rule.n_bounds for rule in simple) <= sum(rule.n_bounds for rule in rules)
    assert simple.simplify(limits={"a": (-4.5, 4.5), "b": (-4.5, 4.5)}) == simple
    for i, j in product(range(len(simple)), repeat=2):
        assert i == j or not simple[i].contains(simple[j])


def test_simplify_takes_away_bounds_at_and_beyond_the_edge():
    rules = RuleSet([Rule([Condition("age", low=18, high=40)]), Rule([Condition("age", low=40, high=70)])], ["age"],
                    limits={"age": (18, 64)})
    assert [rule.to_text() for rule in rules.simplify()] == ["age < 40", "age >= 40"]


def test_simplify_keeps_what_cuts():
    rules = RuleSet([Rule([Condition("age", low=19, high=40)])], ["age"], limits={"age": (18, 64)})
    assert rules.simplify() == rules


def test_simplify_knows_a_full_set_of_levels():
    rules = RuleSet([Rule([Condition("s", levels={"yes", "no"}), Condition("x", low=0)])], ["s", "x"],
                    levels={"s": ("no", "yes")})
    X = pd.DataFrame({"s": ["yes", "no"], "x": [1.0, -1.0]})
    assert [rule.to_text() for rule in rules.simplify(X=X)] == ["x >= 0"]


def test_simplify_keeps_missing_rows_out():
    """A bound at the data's edge still says something where values are missing."""
    X = pd.DataFrame({"x": [0.0, 1.0, np.nan], "s": ["yes", "no", None]})
    rules = RuleSet([Rule([Condition("x", low=0)]), Rule([Condition("s", levels={"yes", "no"})])], ["x", "s"])
    np.testing.assert_array_equal(rules.simplify(X=X, drop=()).covers(X), rules.covers(X))
    assert not rules.covers(X)[2].any()


def test_simplify_can_keep_every_rule():
    rules = RuleSet([Rule([Condition("x", low=0)]), Rule([Condition("x", low=0)]), Rule()], ["x"])
    assert len(rules.simplify(drop=())) == 3
    simple, kept = rules.simplify(return_index=True)
    assert list(simple) == [Rule()] and kept.tolist() == [2]


def test_simplify_drops_empty_duplicate_and_contained_rules():
    wide, narrow = Rule([Condition("x", low=0)]), Rule([Condition("x", low=1)])
    rules = RuleSet([narrow, wide, Rule([Condition("x", low=0)]), Rule([Condition("x", low=2, high=1)])], ["x"])
    assert list(rules.simplify()) == [wide]


# ---------------------------------------------------------------- tables, markup, JSON


@pytest.fixture
def awkward():
    """Names, levels and units that mean something to HTML and to TeX."""
    return RuleSet(
        [Rule([Condition("a_b<c>", low=0.1 + 0.2), Condition("50%&$#", levels={"<script>", "x_y"})], name="R&D_1"),
         Rule([Condition("a_b<c>", high=-1e-300, missing=True)]),
         Rule([Condition("flag", levels={True}), Condition("code", levels={1, 2})])],
        feature_names=["a_b<c>", "50%&$#", "flag", "code"],
        units={"a_b<c>": "%"},
        levels={"50%&$#": ("<script>", "x_y", "z", "{q}", "w"), "flag": (False, True), "code": (1, 2, 3, 4, 5)},
        limits={"a_b<c>": (-INF, 7.5)})


def test_frame_has_a_row_per_rule(people):
    rules = RuleSet([Rule([Condition("smoker", levels={"yes"})]), Rule([Condition("bmi", low=30.1)])],
                    feature_names=["smoker", "bmi", "age"])
    frame = rules.to_frame(people, weight=[0.25, 0.75])
    assert isinstance(frame, pd.DataFrame) and len(frame) == 2
    assert frame["rule"].tolist() == ["smoker = yes", "bmi >= 30.1"]
    assert frame["support"].tolist() == [2, 3]
    assert frame["coverage"].tolist() == pytest.approx([0.4, 0.6])
    assert frame["weight"].tolist() == [0.25, 0.75]
    assert "support" not in rules.to_frame().columns


def test_text_has_every_rule_with_its_unit():
    rules = RuleSet([Rule([Condition("age", low=18)]), Rule()], ["age"], units={"age": "years"})
    lines = rules.to_text().splitlines()
    assert len(lines) == 2
    assert "age >= 18 years" in lines[0] and "always" in lines[1]


def test_latex_escapes(awkward):
    latex = awkward.to_latex()
    for raw, safe in [("a_b", r"a\_b"), ("50%&$#", r"50\%\&\$\#"), ("R&D_1", r"R\&D\_1"), ("x_y", r"x\_y")]:
        assert raw not in latex
        assert safe in latex
    body = latex.split(r"\midrule")[1].split(r"\bottomrule")[0]
    assert body.count(r"\\") == 3  # one row of the table for each rule
    assert latex.count("{") == latex.count("}")


def test_latex_writes_relations_as_mathematics():
    rules = RuleSet([Rule([Condition("bmi", low=30.1)])], ["bmi"])
    assert ">=" not in rules.to_latex() and r"\ge" in rules.to_latex()


def test_html_escapes(awkward):
    from html.parser import HTMLParser

    class Reader(HTMLParser):
        def __init__(self):
            super().__init__()
            self.tags, self.text = set(), ""

        def handle_starttag(self, tag, attrs):
            self.tags.add(tag)

        def handle_data(self, data):
            self.text += data

    reader = Reader()
    reader.feed(awkward._repr_html_())
    assert "script" not in reader.tags and "c" not in reader.tags
    for raw in ("<script>", "a_b<c>", "50%&$#", "R&D_1"):
        assert raw in reader.text


def test_rules_have_rich_output():
    rules = RuleSet([Rule([Condition("bmi", low=30.1)])], ["bmi"])
    assert "30.1" in rules._repr_html_() and "bmi" in rules._repr_html_()


def refuse(token):
    raise AssertionError(f"{token} is not JSON")


def test_json_is_lossless_and_strict(awkward):
    text = awkward.to_json()
    json.loads(text, parse_constant=refuse)
    again = RuleSet.from_json(text)
    assert again == awkward
    assert again.to_json() == text
    for one, other in zip(again, awkward, strict=True):
        assert one.name == other.name
        assert one.conditions == other.conditions
    assert again.units == awkward.units and again.limits == awkward.limits
    assert {k: tuple(v) for k, v in again.levels.items()} == {k: tuple(v) for k, v in awkward.levels.items()}
    assert {type(level) for level in again[2].conditions[0].levels} == {bool}
    assert RuleSet.from_dict(awkward.to_dict()) == awkward


def test_json_of_numpy_values():
    levels = frozenset(np.array([1, 2]))
    rules = RuleSet([Rule([Condition("c", levels=levels), Condition("x", low=np.float64(0.1), high=np.float32(0.5))])],
                    feature_names=np.array(["c", "x"]), levels={"c": np.array([1, 2, 3, 4, 5])},
                    limits={"x": (np.float64(0), np.float64(1))})
    again = RuleSet.from_json(rules.to_json())
    assert again == rules
    X = pd.DataFrame({"c": [1, 3, 2], "x": [0.1, 0.2, 0.5]})
    np.testing.assert_array_equal(again.covers(X), [[True], [False], [False]])


@quick
@given(st.lists(st.builds(lambda low, high, missing, levels: Rule([
    Condition("x", low=low, high=high, missing=missing), Condition("s", levels=levels, missing=missing)]),
    st.floats(allow_nan=False), st.floats(allow_nan=False), st.booleans(), st.sets(st.text(max_size=3))), max_size=4))
def test_json_round_trip_of_any_rule(rules):
    rules = RuleSet(rules, ["x", "s"])
    again = RuleSet.from_json(rules.to_json())
    assert again == rules
    assert [rule.to_text() for rule in again] == [rule.to_text() for rule in rules]


def test_json_of_something_else_is_an_error():
    with pytest.raises(ValueError):
        RuleSet.from_json('{"format": "something else"}')


# ---------------------------------------------------------------- soft conditions


def test_soft_interval_by_hand():
    x = np.linspace(-1, 2, 31)
    np.testing.assert_allclose(soft_interval(x, 0.0, 1.0, 0.1), expit(x / 0.1) * expit((1 - x) / 0.1), rtol=1e-12)
    np.testing.assert_allclose(log_soft_interval(x, 0.0, 1.0, 1e-4),
                               log_expit(x / 1e-4) + log_expit((1 - x) / 1e-4), rtol=1e-12, atol=1e-300)


def test_soft_interval_with_an_open_side():
    x = np.array([-3.0, 0.5, 3.0])
    np.testing.assert_allclose(soft_interval(x, -INF, 1.0, 0.1), expit((1 - x) / 0.1), rtol=1e-12)
    np.testing.assert_allclose(soft_interval(x, 0.0, INF, 0.1), expit(x / 0.1), rtol=1e-12)
    np.testing.assert_array_equal(log_soft_interval(x, -INF, INF, 0.1), 0)


def test_soft_becomes_crisp_as_the_temperature_falls():
    x = np.array([-0.5, -0.01, 0.01, 0.5, 0.99, 1.01, 4.0])
    crisp = ((x >= 0) & (x < 1)).astype(float)
    distance = [np.abs(soft_interval(x, 0.0, 1.0, t) - crisp).max() for t in (1.0, 0.1, 0.01, 1e-3, 1e-4)]
    assert all(a > b for a, b in zip(distance, distance[1:]))
    assert distance[-1] < 1e-40
    assert soft_interval(np.array([0.0]), 0.0, 1.0, 1e-4)[0] == pytest.approx(0.5)


def test_activation_becomes_the_rule_as_the_temperature_falls():
    rng = np.random.default_rng(0)
    X = rng.random((500, 3))
    low, high = rng.uniform(-0.2, 0.5, (7, 3)), rng.uniform(0.5, 1.2, (7, 3))
    rules = RuleSet.from_bounds(low, high, ["a", "b", "c"])
    np.testing.assert_allclose(activation(X, low, high, np.ones((7, 3)), 1e-6), rules.covers(X), atol=1e-12)


def test_harmonic_and_by_hand():
    pi = np.array([0.5, 0.25])
    assert np.exp(log_harmonic_and(np.log(pi), np.array([1.0, 1.0]))) == pytest.approx(2 / (2 + 4))
    assert np.exp(log_harmonic_and(np.log(pi), np.array([3.0, 1.0]))) == pytest.approx(4 / (6 + 4))


def test_zero_importance_removes_a_feature():
    log_pi = np.log(np.array([[0.5, 1e-8, 0.25], [0.9, 1.0, 0.1]]))
    with_zero = log_harmonic_and(log_pi, np.array([1.0, 0.0, 2.0]))
    without = log_harmonic_and(log_pi[:, [0, 2]], np.array([1.0, 2.0]))
    np.testing.assert_allclose(with_zero, without, rtol=1e-12)
    impossible = np.array([[-INF, np.log(0.5)], [-1e9, np.log(0.5)]])
    np.testing.assert_allclose(np.exp(log_harmonic_and(impossible, np.array([0.0, 1.0]))), 0.5)


def test_no_feature_means_always():
    np.testing.assert_array_equal(log_harmonic_and(np.log(np.full((3, 2), 0.1)), np.zeros(2)), np.zeros(3))


def test_scale_of_the_importance_does_not_matter():
    log_pi = np.log(np.array([0.5, 0.2, 0.9]))
    a = np.array([1.0, 0.3, 2.0])
    for scale in (1e-200, 1e-6, 1e6, 1e200):
        assert log_harmonic_and(log_pi, scale * a) == pytest.approx(log_harmonic_and(log_pi, a), rel=1e-9)


@quick
@given(st.lists(st.tuples(st.floats(1e-9, 1), st.floats(1e-3, 1e3)), min_size=1, max_size=6))
def test_activation_is_between_the_smallest_and_the_mean_condition(pairs):
    pi, a = np.array(pairs).T
    e = np.exp(log_harmonic_and(np.log(pi), a))
    assert pi.min() * (1 - 1e-9) <= e <= np.average(pi, weights=a) * (1 + 1e-9)
    assert e <= pi.min() * a.sum() / a[pi.argmin()] * (1 + 1e-9)  # one failed condition is enough


def test_axis_of_the_harmonic_and():
    log_pi = np.log(np.random.default_rng(0).random((4, 3)))
    a = np.array([1.0, 2.0, 0.5])
    np.testing.assert_allclose(log_harmonic_and(log_pi.T, a[:, None], axis=0), log_harmonic_and(log_pi, a))


def test_batched_activation_equals_a_loop():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 3))
    low, high = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    low[0, 1], high[1, 2] = -INF, INF
    a = rng.random((5, 3))
    a[2, 0] = 0
    expected = np.empty((40, 5))
    for n, k in product(range(40), range(5)):
        total = sum(a[k, j] / (expit((X[n, j] - low[k, j]) / 0.3) * expit((high[k, j] - X[n, j]) / 0.3))
                    for j in range(3))
        expected[n, k] = a[k].sum() / total
    np.testing.assert_allclose(activation(X, low, high, a, 0.3), expected, rtol=1e-9)
    np.testing.assert_allclose(log_activation(X, low, high, a, 0.3), np.log(expected), rtol=1e-9)


def test_no_overflow_when_cold():
    X = np.array([[0.5, 1e6], [-1e6, 0.5], [0.5, 0.5]])
    low, high, a = np.zeros((1, 2)), np.ones((1, 2)), np.ones((1, 2))
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        log_e = log_activation(X, low, high, a, 1e-4)
        e = activation(X, low, high, a, 1e-4)
    assert np.isfinite(log_e).all()
    np.testing.assert_allclose(log_e[:2, 0], [-(1e6 - 1) / 1e-4, -1e6 / 1e-4], rtol=1e-9)
    np.testing.assert_allclose(e[:, 0], [0, 0, 1])


def test_inverted_interval_is_dead():
    x = np.linspace(-1, 2, 301)
    e = soft_interval(x, 0.7, 0.3, 0.02)
    assert e.max() == pytest.approx(expit(-10) ** 2, rel=1e-6)  # highest half way, where both sides fail alike
    assert soft_interval(x, 0.7, 0.3, 0.2).max() > soft_interval(x, 0.7, 0.3, 0.02).max()


# ------------------------------------------------ the same functions on torch tensors


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_numpy_and_torch_agree(torch):
    rng = np.random.default_rng(2)
    arrays = rng.normal(size=(20, 3)), rng.normal(size=(4, 3)), rng.normal(size=(4, 3)), rng.random((4, 3))
    for temperature in (1.0, 0.1, 1e-4):
        answer = log_activation(*map(torch.from_numpy, arrays), temperature)
        assert isinstance(answer, torch.Tensor)
        np.testing.assert_allclose(answer.numpy(), log_activation(*arrays, temperature), rtol=1e-9)


def test_gradient_is_right(torch):
    rng = np.random.default_rng(3)
    X, low, high, a = (torch.tensor(v, requires_grad=True) for v in (
        rng.normal(size=(5, 2)), rng.normal(size=(3, 2)), rng.normal(size=(3, 2)), rng.uniform(0.2, 1, (3, 2))))
    assert torch.autograd.gradcheck(lambda *args: log_activation(*args, 0.4), (X, low, high, a))
    assert torch.autograd.gradcheck(lambda *args: activation(*args, 0.4), (X, low, high, a))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", [log_activation, activation])
def test_gradient_is_finite_when_cold(torch, dtype, function):
    dtype = getattr(torch, dtype)
    X = torch.tensor([[0.5, 0.5], [3.0, 0.5], [-5.0, 9.0], [0.0, 1.0], [100.0, -100.0]], dtype=dtype,
                     requires_grad=True)
    low = torch.tensor([[0.0, 0.0], [0.9, 0.2], [-INF, 0.0], [0.0, 0.0], [0.0, 0.0]], dtype=dtype,
                       requires_grad=True)
    high = torch.tensor([[1.0, 1.0], [0.1, 0.8], [1.0, INF], [1.0, 1.0], [1.0, 1.0]], dtype=dtype,
                        requires_grad=True)
    a = torch.tensor([[1.0, 1.0], [1.0, 1e-3], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]], dtype=dtype, requires_grad=True)
    value = function(X, low, high, a, 1e-4)
    assert torch.isfinite(value).all()
    value.sum().backward()
    for name, tensor in dict(X=X, low=low, high=high, importance=a).items():
        assert torch.isfinite(tensor.grad).all(), name


def test_gradient_vanishes_on_an_inverted_interval(torch):
    X = torch.linspace(0, 1, 50, dtype=torch.float64)[:, None]
    for low, high, alive in [(0.2, 0.6, True), (0.9, 0.1, False)]:
        low = torch.tensor([[low]], dtype=torch.float64, requires_grad=True)
        high = torch.tensor([[high]], dtype=torch.float64, requires_grad=True)
        activation(X, low, high, torch.ones((1, 1), dtype=torch.float64), 0.02).mean().backward()
        steepness = max(low.grad.abs().item(), high.grad.abs().item())
        assert (steepness > 0.1) if alive else (steepness < 1e-10)


# ---------------------------------------------------------------- fuzzy memberships


def test_trapezoid_by_hand():
    x = [-1, 0, 0.5, 1, 1.5, 2, 3, 4, 5]
    np.testing.assert_allclose(Trapezoid(0, 1, 2, 4)(x), [0, 0, 0.5, 1, 1, 1, 0.5, 0, 0])


def test_triangle_by_hand():
    np.testing.assert_allclose(Triangle(0, 1, 3)([-1, 0, 0.25, 1, 2, 3, 4]), [0, 0, 0.25, 1, 0.5, 0, 0])


def test_bell_by_hand():
    np.testing.assert_allclose(Bell(1, 2)([1, 3, -3]), [1, math.exp(-0.5), math.exp(-2)])


def test_upright_sides_are_crisp():
    np.testing.assert_allclose(Trapezoid(0, 0, 1, 1)([-0.1, 0.5, 1.1]), [0, 1, 0])


@pytest.mark.parametrize("make", [lambda: Trapezoid(0, 2, 1, 3), lambda: Triangle(2, 1, 0),
                                  lambda: Bell(0, 0), lambda: Bell(0, -1),
                                  lambda: Trapezoid(0, math.nan, 1, 2)])
def test_impossible_shapes_are_refused(make):
    with pytest.raises(ValueError):
        make()


@quick
@given(st.lists(small_integers, min_size=4, max_size=4), st.lists(finite, min_size=1, max_size=20))
def test_memberships_are_between_zero_and_one(corners, x):
    a, b, c, d = np.sort(corners) + [0, 0, 0, 1]
    for shape in (Trapezoid(a, b, c, d), Triangle(a, b, d), Bell(a, 1 + abs(b))):
        mu = shape(np.array(x))
        assert ((mu >= 0) & (mu <= 1)).all()


def test_t_norms():
    mu = np.array([[0.5, 0.4], [1.0, 0.3], [0.0, 0.9]])
    np.testing.assert_allclose(product_and(mu), [0.2, 0.3, 0])
    np.testing.assert_allclose(minimum_and(mu), [0.4, 0.3, 0])
    np.testing.assert_allclose(product_and(mu, axis=0), [0, 0.108])
    np.testing.assert_allclose(minimum_and(mu, axis=0), [0, 0.3])


def test_linguistic_variable():
    young, old = Trapezoid(-INF, -INF, 20, 40), Trapezoid(20, 40, INF, INF)
    age = LinguisticVariable("age", {"young": young, "old": old}, unit="years")
    mu = age.memberships([10, 25, 30, 70])
    np.testing.assert_allclose(mu, [[1, 0], [0.75, 0.25], [0.5, 0.5], [0, 1]])


def test_quantile_terms():
    x = np.random.default_rng(0).random(1001)
    variable = LinguisticVariable.from_quantiles("x", x, n_terms=3, labels=["low", "middle", "high"])
    assert list(variable.terms) == ["low", "middle", "high"]
    mu = variable.memberships(x)
    assert mu.shape == (1001, 3)
    assert (mu.max(axis=1) > 0).all()
    order = np.argsort(x)
    assert mu[order[0]].argmax() == 0 and mu[order[500]].argmax() == 1 and mu[order[-1]].argmax() == 2


@pytest.mark.parametrize("x", [
    [0.0] * 90 + list(range(1, 11)),
    [0.0] * 50 + [1.0] * 50,
    list(range(10)) + [10.0] * 90,
    [1.0] * 5 + [2.0] * 90 + [3.0] * 5,
], ids=["mass at the lower end", "two values", "mass at the upper end", "mass in the middle"])
def test_quantile_terms_survive_ties(x):
    x = np.array(x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        variable = LinguisticVariable.from_quantiles("x", x, n_terms=3)
    terms = len(variable.terms)
    assert terms == 3 or "'x'" in str(caught[0].message), "fewer terms than asked for, and no word of it"
    assert terms >= 2
    mu = variable.memberships(x)
    assert np.isfinite(mu).all()
    assert (mu.max(axis=1) > 0).all(), "a row belongs to no term"
    assert (mu.max(axis=0) > 0.5).all(), "a term fits no row"
    grid = np.linspace(x.min(), x.max(), 501)
    curves = variable.memberships(grid)
    for i, j in product(range(terms), repeat=2):
        assert i == j or not np.allclose(curves[:, i], curves[:, j])


def test_a_constant_column_has_one_term_that_fits_it():
    with pytest.warns(UserWarning, match="'x'"):
        variable = LinguisticVariable.from_quantiles("x", np.ones(10))
    np.testing.assert_array_equal(variable.memberships([1.0]), [[1.0]])


# ---------------------------------------------------------------- pictures


def test_plots_return_axes_and_draw_where_told(plt):
    from matplotlib.axes import Axes
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.random((30, 2)), columns=["a", "b"])
    rule_set = RuleSet.from_bounds(np.array([[-INF, 0.2], [0.5, -INF]]), np.array([[0.5, INF], [INF, 0.9]]), ["a", "b"])
    variable = LinguisticVariable.from_quantiles("a", X["a"].to_numpy(), n_terms=3)
    draw = [
        lambda **kw: plot_intervals(rule_set, X, **kw),
        lambda **kw: plot_activation(rule_set.covers(X).astype(float), **kw),
        lambda **kw: plot_memberships(variable, X["a"], **kw),
        lambda **kw: variable.plot(X["a"], **kw),
    ]
    for plot in draw:
        before = len(plt.get_fignums())
        assert isinstance(plot(), Axes)
        assert len(plt.get_fignums()) == before + 1
        _, mine = plt.subplots()
        assert plot(ax=mine) is mine
        assert mine.has_data() or mine.images
        assert mine.get_xlabel()


def test_heatmap_has_a_cell_per_row_and_rule(plt):
    e = np.random.default_rng(0).random((12, 3))
    ax = plot_activation(e, order=False, names=["one", "two", "three"])
    held = [np.asarray(image.get_array()) for image in ax.images] + \
           [np.asarray(c.get_array()) for c in ax.collections if c.get_array() is not None]
    assert any(np.size(values) == e.size and np.allclose(np.sort(np.ravel(values)), np.sort(e.ravel()))
               for values in held)
    labels = {label.get_text() for label in (*ax.get_xticklabels(), *ax.get_yticklabels())}
    assert {"one", "two", "three"} <= labels
