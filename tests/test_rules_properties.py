"""Properties of mixlit.rules that hold for any rules and any data."""
import json
import math
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mixlit.rules import (Condition, LinguisticVariable, Rule, RuleSet, Trapezoid, format_number, log_activation,
                          log_harmonic_and, log_soft_interval, readable_number)

settings.register_profile("mixlit", deadline=None, max_examples=60)
settings.load_profile("mixlit")

NUMERIC, CATEGORICAL = ["age", "bmi", 3], ["smoker", "region"]
LEVELS = ["yes", "no", "<b> & 50%", 1, 2.5, True]
bound = st.one_of(st.sampled_from([-math.inf, math.inf]), st.integers(-5, 5).map(float), st.floats(-1e6, 1e6))
interval = st.builds(Condition, st.sampled_from(NUMERIC), bound, bound, missing=st.booleans())
level_set = st.builds(Condition, st.sampled_from(CATEGORICAL), levels=st.frozensets(st.sampled_from(LEVELS)), missing=st.booleans())
rule = st.builds(Rule, st.lists(st.one_of(interval, level_set), max_size=5), st.none() | st.text(max_size=5))
rule_sets = st.builds(
    RuleSet, st.lists(rule, max_size=6), st.just(NUMERIC + CATEGORICAL),
    units=st.dictionaries(st.sampled_from(NUMERIC), st.text(max_size=4)),
    levels=st.dictionaries(st.sampled_from(CATEGORICAL), st.lists(st.sampled_from(["yes", "no", "NE", 7]), unique=True)),
    limits=st.dictionaries(st.sampled_from(NUMERIC), st.tuples(bound, bound)))
value = st.none() | st.integers(-6, 6).map(float)
row = st.tuples(value, value, value, st.none() | st.sampled_from(LEVELS), st.none() | st.sampled_from(LEVELS))
tables = st.lists(row, min_size=1, max_size=25).map(
    lambda rows: pd.DataFrame(rows, columns=NUMERIC + CATEGORICAL).astype({c: float for c in NUMERIC} | {c: object for c in CATEGORICAL}))


@given(rule_sets)
def test_json_gives_back_the_same_rules(rules):
    text = rules.to_json()
    json.loads(text, parse_constant=pytest.fail)                   # no NaN or Infinity: any JSON reader can read it
    assert RuleSet.from_json(text) == rules
    assert RuleSet.from_json(text).to_json() == text


@given(rule_sets, tables)
def test_simplify_changes_no_row_of_its_data(rules, X):
    short, kept = rules.simplify(X=X, return_index=True)
    before, after = rules.covers(X), short.covers(X)
    assert np.array_equal(after, before[:, kept])
    assert np.array_equal(after.any(1), before.any(1))
    assert all(r.n_bounds <= rules[int(i)].n_bounds for r, i in zip(short, kept))
    same_length = rules.simplify(X=X, drop=())
    assert np.array_equal(same_length.covers(X), before)
    assert short.simplify(X=X) == short


@given(rule_sets, tables)
def test_covers_is_the_naive_loop(rules, X):
    naive = np.array([[all(c.satisfied(X[c.feature].iloc[[i]])[0] for c in r.conditions) for r in rules]
                      for i in range(len(X))], dtype=bool).reshape(len(X), len(rules))
    assert np.array_equal(rules.covers(X), naive)
    assert np.array_equal(rules.covers(X.to_numpy(dtype=object)), naive)
    assert np.allclose(rules.overlap(X), naive.T.astype(float) @ naive / len(X))


@given(interval, interval, st.lists(value, min_size=1, max_size=30))
def test_and_or_contains_agree_with_the_values(a, b, values):
    b = Condition(a.feature, b.low, b.high, missing=b.missing)
    x = np.array(values, dtype=float)
    assert np.array_equal((a & b).satisfied(x), a.satisfied(x) & b.satisfied(x))
    if a.contains(b):
        assert (a.satisfied(x) | ~b.satisfied(x)).all()
    try:
        either = a | b
    except ValueError:
        return
    assert np.array_equal(either.satisfied(x), a.satisfied(x) | b.satisfied(x))


@given(rule, rule, tables)
def test_a_contained_rule_covers_no_other_row(a, b, X):
    if a.contains(b):
        assert (a.covers(X) | ~b.covers(X)).all()


@given(st.floats(allow_nan=False))
def test_a_number_reads_back(v):
    assert float(format_number(v)) == v


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_a_readable_number_separates_its_neighbours(a, b):
    assume(a != b)
    low, high = min(a, b), max(a, b)
    v = readable_number(low, high)
    assert low < v <= high
    digits = lambda number: len(Decimal(repr(number)).normalize().as_tuple().digits)
    assert digits(v) <= digits(high)                                # never longer than the data value it stands for


arrays = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def soft_rules(rng, n=40, k=5, d=3):
    X, low = rng.uniform(size=(n, d)), rng.uniform(-0.2, 0.9, (k, d))
    high, a = low + rng.uniform(-0.1, 0.8, (k, d)), rng.uniform(size=(k, d))
    for v, put in ((low, -np.inf), (high, np.inf), (a, 0.0)):
        v[rng.uniform(size=(k, d)) < 0.25] = put
    return X, low, high, a


@given(arrays, st.floats(-4.5, 1))
def test_one_matrix_product_is_the_harmonic_mean(rng, log10_t):
    X, low, high, a = soft_rules(rng)
    t = 10**log10_t
    naive = log_harmonic_and(log_soft_interval(X[:, None], low, high, t), a)
    assert np.allclose(log_activation(X, low, high, a, t), naive, rtol=1e-9, atol=1e-11)


@given(arrays)
def test_cold_soft_rules_are_the_crisp_ones(rng):
    X, low, high, a = soft_rules(rng)
    crisp = RuleSet.from_bounds(low, high, ["a", "b", "c"], importance=a)
    away = np.minimum(np.abs(X[:, None] - low), np.abs(X[:, None] - high)).min(-1) > 1e-3
    soft = np.exp(log_activation(X, low, high, a, 1e-5))
    assert np.allclose(soft[away], crisp.covers(X)[away], atol=1e-9)


@given(arrays, st.sampled_from([1.0, 0.1, 1e-2, 1e-4]), st.sampled_from(["float32", "float64"]))
def test_numpy_equals_torch_and_gradients_are_finite(rng, t, kind):
    torch = pytest.importorskip("torch")
    X, low, high, a = (v.astype(kind) for v in soft_rules(rng))
    tensors = [torch.tensor(v, requires_grad=i > 0) for i, v in enumerate((X, low, high, a))]
    out = log_activation(*tensors, t)
    assert out.dtype == tensors[0].dtype
    assert np.allclose(out.detach().numpy(), log_activation(X, low, high, a, t), rtol=1e-4, atol=1e-5)
    out.sum().backward()
    assert all(torch.isfinite(v.grad).all() for v in tensors[1:])
    assert (tensors[3].grad[tensors[3] == 0] == 0).all()


@given(arrays)
def test_the_soft_and_lies_between_the_smallest_and_the_mean_condition(rng):
    pi, a = rng.uniform(1e-12, 1, (50, 4)), rng.uniform(0.01, 1, 4)
    e = np.exp(log_harmonic_and(np.log(pi), a))
    assert (e >= pi.min(1) * (1 - 1e-12)).all() and (e <= (pi @ a) / a.sum() * (1 + 1e-12)).all()


@given(st.lists(st.integers(0, 6) | st.floats(-10, 10), min_size=1, max_size=60), st.integers(1, 6))
def test_quantile_terms_never_collapse(x, n_terms):
    x = np.array(x, dtype=float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        variable = LinguisticVariable.from_quantiles("x", x, n_terms)
    assert len(variable.terms) == min(n_terms, len(np.unique(x)))
    mu = variable.memberships(x)
    assert np.allclose(mu.sum(1), 1)                                # a partition
    assert np.allclose(mu.max(0), 1)                                # each term holds some row fully
    assert all(isinstance(term, Trapezoid) and term.a < term.d for term in variable.terms.values())
