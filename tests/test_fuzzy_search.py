"""Greedy and genetic search for fuzzy rules: brute-force oracles, determinism, limits, fronts; the benchmark's frames."""
import itertools
import json
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_wine

from mixlit.column_generation import (RulePool, candidate_rules, count_rules, exact_gains, extension_gains, find_rules_greedily, first_of_best, near_top,
                                      residuals, score_gains, swap_rules)
from mixlit.genetic import (FiringCache, Judge, RuleBreeder, as_generator, batched_weights, natural_classes, population_mixtures, search_genetically,
                            winning_rule_objective)
from mixlit.rule_weights import (RuleLoss, fit_rule_weights, mixture_scores, prune_by_mixture, softmax_probabilities, weighted_loss)
from mixlit.terms import firing_strengths, make_partition, term_literals

SMALL = dict(n_rules=6, n_antecedents=2, population_size=12, n_generations=6, random_state=5)


def literals_of(data, ordinal=False):
    literals = term_literals(make_partition(data.data), ordinal)
    return literals.memberships(data.data), literals.column, data.target


@pytest.fixture(scope="module")
def wine():
    return literals_of(load_wine(), ordinal=True)


@pytest.fixture(scope="module")
def cancer():
    return literals_of(load_breast_cancer())


def every_rule(column, most):
    """All rules of at most `most` conditions on distinct columns, short ones first."""
    return [rule for length in range(1, most + 1) for rule in itertools.combinations(range(len(column)), length) if len(set(column[list(rule)])) == length]


# ---- the statistic


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_exact_gain_is_half_the_newton_decrement(K, weighted):
    rng = np.random.default_rng(K)
    F, y, C = rng.random((80, 3)), rng.permutation(np.arange(80) % K), 1.7
    omega = rng.integers(1, 4, 80).astype(float) if weighted else None
    coef, intercept = fit_rule_weights(F, y, K, C, sample_weight=omega)
    f = rng.random((80, 4))
    for s, gain in enumerate(exact_gains(f, F, coef, intercept, y, C, omega)):
        loss = RuleLoss(np.column_stack([F, f[:, s]]), y, K, C, omega)
        _, slope = loss(np.vstack([coef, np.zeros(K), intercept]) @ loss.Q)
        g, H = slope.T.ravel(), loss.hessian()
        assert np.isclose(gain, 0.5 * g @ np.linalg.solve(H, g), rtol=1e-5)


@pytest.mark.parametrize("K", [2, 3, 4])
def test_simple_gain_is_exact_before_any_rule_if_classes_are_equally_frequent(K):
    rng = np.random.default_rng(0)
    y, f, none = np.arange(60 - 60 % K) % K, rng.random((60 - 60 % K, 5)), np.zeros((60 - 60 % K, 0))
    exact = exact_gains(f, none, np.zeros((0, K)), np.zeros(K), y, 0.5)
    assert np.allclose(score_gains(f, np.full((len(y), K), 1 / K), y, 0.5), exact)


def test_simple_gain_is_exact_before_any_rule_with_two_classes():
    rng = np.random.default_rng(0)
    y, f, none = (rng.random(70) < 0.2).astype(int), rng.random((70, 5)), np.zeros((70, 0))
    bias = fit_rule_weights(none, y, 2)
    p = softmax_probabilities(mixture_scores(none, *bias))
    assert np.allclose(score_gains(f, p, y), exact_gains(f, none, *bias, y))


@pytest.mark.parametrize("t_norm", ["product", "minimum"])
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_best_candidate_of_a_small_pool_is_that_of_brute_force(t_norm, K, weighted):
    rng = np.random.default_rng(K)
    M, column, y = rng.random((90, 7)), np.array([0, 0, 1, 1, 2, 3, 3]), rng.permutation(np.arange(90) % K)
    omega = rng.random(90) + 0.5 if weighted else None
    F = rng.random((90, 2))
    p = softmax_probabilities(mixture_scores(F, *fit_rule_weights(F, y, K, sample_weight=omega)))
    rules = every_rule(column, 3)
    assert len(rules) == count_rules(column, 3)
    brute = score_gains(firing_strengths(M, rules, t_norm), p, y, sample_weight=omega)
    found, gains = candidate_rules(M, column, *residuals(p, y, omega), 3, t_norm=t_norm, beam=1000)
    assert set(found) <= set(rules) and rules[int(brute.argmax())] == found[first_of_best(gains)]
    value = dict(zip(rules, brute))
    assert np.allclose(gains, [value[rule] for rule in found])


def test_a_greedy_step_takes_the_best_of_all_rules_by_the_exact_statistic(wine):
    M, column, y = wine[0][:, :25], wine[1][:25], wine[2]
    found = find_rules_greedily(M, column, y, 3, 3, rescored=10_000)
    rules = every_rule(column, 2)
    for step in range(3):
        F = firing_strengths(M, found.rules[:step])
        gains = exact_gains(firing_strengths(M, rules), F, *fit_rule_weights(F, y, 3), y)
        gains[[rules.index(rule) for rule in found.rules[:step]]] = -1
        assert np.isclose(gains.max(), found.path.promised[step + 1], rtol=1e-4)
        assert gains[rules.index(found.rules[step])] > gains.max() * (1 - 1e-5)


def test_two_classes_read_either_way_give_the_same_gains(cancer):
    M, column, y = cancer
    p = np.tile([0.4, 0.6], (len(y), 1))
    assert np.allclose(extension_gains(M[:, :5], M, *residuals(p, y)), extension_gains(M[:, :5], M, *residuals(p[:, ::-1], 1 - y)))


def test_near_top_brings_ties_and_leaves_out_zeros():
    assert near_top(np.array([0.0, 2, 1, 2, 1]), 3).tolist() == [1, 2, 3, 4]
    assert near_top(np.array([0.0, -1, 0]), 2).tolist() == [] and near_top(np.array([3.0]), 5).tolist() == [0]


# ---- the greedy search


def test_objective_falls_and_no_rule_comes_twice(wine):
    M, column, y = wine
    found = find_rules_greedily(M, column, y, 3, 15)
    assert len(found.rules) == len(set(found.rules)) == 15 and (np.diff(found.path.objective) < 0).all()
    assert all(len(set(column[list(rule)])) == len(rule) <= 2 for rule in found.rules)
    F = firing_strengths(M, found.rules)
    assert np.isclose(weighted_loss(F, y, found.coef, found.intercept), found.path.objective.iloc[-1], rtol=1e-8)


def test_a_row_of_weight_two_is_two_rows(wine):
    M, column, y = wine
    twice = np.arange(len(y)) % 3 == 0
    heavy = find_rules_greedily(M, column, y, 3, 6, sample_weight=1.0 + twice)
    copied = find_rules_greedily(np.vstack([M, M[twice]]), column, np.r_[y, y[twice]], 3, 6)
    assert heavy.rules == copied.rules and np.allclose(heavy.coef, copied.coef, atol=1e-5) and np.allclose(heavy.path.bic, copied.path.bic)


def test_stop_by_bic_returns_the_smallest(wine):
    M, column, y = wine
    whole, short = (find_rules_greedily(M, column, y, 3, 12, stop=stop) for stop in ("budget", "bic"))
    k = int(short.path.bic.argmin())
    assert len(short.rules) == k and short.rules == whole.rules[:k] and k < 12 and len(short.path) == k + 4


def test_locked_rules_stay_first(wine):
    M, column, y = wine
    locked = [(3,), (0, 10)]
    found = find_rules_greedily(M, column, y, 3, 5, locked=locked, swap_rounds=2)
    assert found.rules[:2] == locked and len(found.rules) == 5
    assert find_rules_greedily(M, column, y, 3, 2, locked=locked).rules == locked
    assert find_rules_greedily(M, column, y, 3, 5, locked=locked, stop="bic").rules[:2] == locked


def test_swaps_never_raise_the_objective(cancer):
    M, column, y = cancer
    found = find_rules_greedily(M, column, y, 2, 8)
    pool = RulePool(M, column, y, 2)
    swapped = swap_rules(pool, found.rules, rounds=2)
    F = pool.firing(swapped)
    assert len(set(swapped)) == 8 and pool.losses(F, *pool.fit(F))[1] <= found.path.objective.iloc[-1] + 1e-9


def test_non_negative_weights_and_minimum(wine):
    M, column, y = wine
    found = find_rules_greedily(M, column, y, 3, 4, non_negative=True, t_norm="minimum")
    assert found.coef.min() >= 0 and (found.coef.min(axis=1) == 0).all() and len(found.rules) == 4


def test_limits_of_the_greedy_search(wine):
    M, column, y = wine
    with pytest.warns(UserWarning, match="only 5 rules"):
        assert 1 <= len(find_rules_greedily(M[:, :5], column[:5], y, 3, 9).rules) <= 5
    with pytest.warns(UserWarning, match="only 0 rules"):
        empty = find_rules_greedily(M[:, :0], column[:0], y, 3, 4)
    assert empty.rules == [] and empty.coef.shape == (0, 3) and len(empty.path) == 1
    assert all(len(rule) == 1 for rule in find_rules_greedily(M, column, y, 3, 4, n_antecedents=1).rules)
    assert find_rules_greedily(M, column, y, 3, 0).rules == []
    assert len(find_rules_greedily(M, column, y, 3, 2, n_antecedents=9, beam=5).rules) == 2
    with pytest.raises(ValueError, match="stop must be 'budget' or 'bic', not 'aic'"):
        find_rules_greedily(M, column, y, 3, 2, stop="aic")


def test_a_constant_literal_is_never_taken(wine):
    M, column, y = wine
    flat = np.column_stack([np.full(len(y), 0.7), M[:, 5:10]])
    found = find_rules_greedily(flat, np.r_[99, column[5:10]], y, 3, 3, n_antecedents=1)
    assert (0,) not in found.rules


def test_parity_of_two_columns_is_found():
    U = np.random.default_rng(0).random((600, 8))
    y = (U[:, 2] > 0.5).astype(int) ^ (U[:, 6] > 0.5)
    literals = term_literals(make_partition(U, n_terms=2))
    found = find_rules_greedily(literals.memberships(U), literals.column, y, 2, 4)
    assert set(literals.column[list(found.rules[0])]) == {2, 6}


# ---- the objective


def slow_objective(M, rules, consequents, y, K, n_rules, n_antecedents, d, mode, weights, tolerance, unknown, omega):
    """The objective in plain Python, from its words."""
    n, total = len(y), sum(omega)
    fire = [[float(np.prod([M[i, l] for l in rule])) for rule in rules] for i in range(n)]
    support = [sum(omega[i] * fire[i][r] for i in range(n) if y[i] == c) / total for r, c in enumerate(consequents)]
    confidence = [support[r] * total / s if (s := sum(omega[i] * fire[i][r] for i in range(n))) > 0 else 0 for r in range(len(rules))]
    dominance = [s * c for s, c in zip(support, confidence)]
    strength = {"dominance": dominance, "unweighted": [1.0] * len(rules), "optimised": weights}[mode]

    def winner(i, among):
        best, score = None, 0.0
        for r in among:
            if fire[i][r] * strength[r] > score + 1e-15:
                best, score = r, fire[i][r] * strength[r]
        return best
    won = {winner(i, range(len(rules))) for i in range(n) if (w := winner(i, range(len(rules)))) is not None and consequents[w] == y[i]}
    kept = [r for r in range(len(rules)) if r in won and dominance[r] >= tolerance]
    counts = [sum(omega[i] for i in range(n) if y[i] == k) for k in range(K)]
    told = [-1 if not kept else (consequents[w] if (w := winner(i, kept)) is not None else -1 if unknown else counts.index(max(counts))) for i in range(n)]
    f1 = []
    for k in range(K):
        both = sum(omega[i] * (told[i] == k) for i in range(n)) + counts[k]
        f1.append(2 * sum(omega[i] for i in range(n) if told[i] == y[i] == k) / both if both else 0.0)
    missing = K - len({consequents[r] for r in kept})
    return np.mean(f1) - 0.05 * missing / K - 0.03 * sum(len(rules[r]) for r in kept) / (n_rules * min(n_antecedents, d)), kept


@pytest.mark.parametrize("mode", ["dominance", "unweighted", "optimised"])
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("tolerance", [0.0, 0.03])
def test_objective_is_that_of_brute_force(mode, unknown, tolerance):
    rng = np.random.default_rng(7)
    M = rng.random((40, 12)) * (rng.random((40, 12)) < 0.4)
    column, y, omega = np.repeat(np.arange(6), 2), rng.permutation(np.arange(40) % 3), rng.integers(1, 4, 40).astype(float)
    bases = RuleBreeder(M, column, y, 3, 2, 0, rng).population(15, 5, 2).tidy()
    worth = Judge(M, y, 3, 6, 5, 2, ds_mode=mode, allow_unknown=unknown, tolerance=tolerance, sample_weight=omega)(bases)
    checked = 0
    for p in range(15):
        rules = [tuple(rule[rule >= 0].tolist()) for rule in bases.literals[p]]
        if len(set(rules)) < 5:
            continue
        value, kept = slow_objective(M, rules, bases.consequents[p].tolist(), y, 3, 5, 2, 6, mode, bases.weights[p].tolist(), tolerance, unknown, omega)
        plain, mask = winning_rule_objective(firing_strengths(M, rules), y, 3, bases.consequents[p], bases.n_conditions[p], 5, 2, 6, mode, bases.weights[p],
                                             tolerance, unknown, omega)
        assert np.isclose(value, plain) and np.flatnonzero(mask).tolist() == kept
        assert np.isclose(value, worth.objective[p], atol=1e-9) and np.flatnonzero(worth.kept[p]).tolist() == kept
        checked += 1
    assert checked >= 8


def test_an_empty_rule_base_is_worth_minus_a_twentieth():
    assert np.isclose(winning_rule_objective(np.zeros((4, 0)), np.array([0, 0, 1, 1]), 2, [], [], 5, 2, 3)[0], -0.05)
    M, y = np.zeros((6, 2)), np.array([0, 0, 0, 1, 1, 1])
    found = search_genetically(M, np.array([0, 1]), y, 2, **SMALL)
    assert found.rules == [] and np.isclose(found.objective, -0.05)


def test_of_rules_with_the_same_conditions_the_strongest_stays(wine):
    M, column, y = wine
    breeder = RuleBreeder(M, column, y, 3, 2, 0, np.random.default_rng(0))
    bases = breeder.population(6, 4, 2)
    bases.literals[:, 1], bases.consequents[:, 0], bases.consequents[:, 1] = bases.literals[:, 0], 0, 1
    worth = Judge(M, y, 3, 13, 4, 2)(bases.tidy())
    assert not (worth.kept[:, 0] & worth.kept[:, 1]).any()


def test_batched_mixtures_are_those_of_one_at_a_time(wine):
    M, column, y = wine
    rng = np.random.default_rng(0)
    F = np.stack([firing_strengths(M, [tuple(rng.choice(len(column), 2, replace=False)) for _ in range(4)]).T for _ in range(5)])
    F[1, 2] = 0.0
    omega = rng.random(len(y)) + 0.5
    coef, loss, scores = batched_weights(F, y, 3, 0.7, omega, tolerance=1e-9)
    for p in range(5):
        one = fit_rule_weights(F[p].T, y, 3, 0.7, sample_weight=omega)
        assert np.allclose(coef[p], one[0], atol=1e-4) and np.allclose(scores[p].T - scores[p].T.mean(axis=1, keepdims=True), mixture_scores(F[p].T, *one), atol=1e-3)
        assert np.isclose(loss[p], weighted_loss(F[p].T, y, *one, 0.7, omega))
    kept, predicted, _ = population_mixtures(F.copy(), y, 3, np.ones((5, 4), dtype=bool), 0.7, 1.0, omega)
    for p in range(5):
        alone, weights, bias = prune_by_mixture(F[p].T, y, 3, 1.0, 0.7, sample_weight=omega)
        assert np.flatnonzero(kept[p]).tolist() == alone.tolist()
        assert (predicted[p] == mixture_scores(F[p].T[:, alone], weights, bias).argmax(axis=1)).mean() > 0.99


# ---- the genetic search


@pytest.mark.parametrize("more", [{}, {"mixture": True}, {"objective": "log_loss"}, {"pareto": True}, {"ds_mode": "optimised"}, {"ds_mode": "unweighted"},
                                  {"mixture": True, "mixture_pruning": "winning_rule"}, {"t_norm": "minimum"}, {"allow_unknown": True}], ids=str)
def test_every_way_of_searching(wine, more):
    M, column, y = wine
    state = np.random.get_state()[1].copy()
    found, again = (search_genetically(M, column, y, 3, **SMALL, **more) for _ in range(2))
    assert np.array_equal(state, np.random.get_state()[1])
    assert found.rules == again.rules and np.array_equal(found.consequents, again.consequents) and np.array_equal(found.weights, again.weights)
    assert len(found.rules) == len(set(found.rules)) <= 6 and all(len(set(column[list(rule)])) == len(rule) <= 2 for rule in found.rules)
    assert (np.diff(found.history.best) >= 0).all() and found.objective == found.history.best.iloc[-1]
    assert set(found.consequents) <= {0, 1, 2} and len(found.consequents) == len(found.rules)


def test_result_is_worth_what_it_says(wine):
    M, column, y = wine
    for mode in ("dominance", "optimised"):
        found = search_genetically(M, column, y, 3, **SMALL, ds_mode=mode)
        value, kept = winning_rule_objective(firing_strengths(M, found.rules), y, 3, found.consequents, [len(r) for r in found.rules], 6, 2, 13, mode, found.weights)
        assert np.isclose(value, found.objective, atol=1e-9) and kept.all()


def test_the_front_is_not_dominated(cancer):
    M, column, y = cancer
    for pareto in (False, True):
        found = search_genetically(M, column, y, 2, **SMALL, pareto=pareto)
        for a, b in itertools.permutations(found.front, 2):
            assert not (a.accuracy >= b.accuracy and a.n_conditions <= b.n_conditions)
        for s in found.front:
            assert sum(map(len, s.rules)) == s.n_conditions and len(s.rules) == len(s.consequents)
        best = sum(map(len, found.rules))
        assert any(s.n_conditions <= best and s.objective >= found.objective - 0.05 for s in found.front)


def test_generations_patience_and_tiny_searches(wine):
    M, column, y = wine
    none = search_genetically(M, column, y, 3, **SMALL | {"n_generations": 0})
    assert len(none.history) == 1
    patient = search_genetically(M, column, y, 3, **SMALL | {"n_generations": 60, "patience": 2})
    assert len(patient.history) < 61 and patient.history.best.iloc[-1] == patient.history.best.iloc[-3]
    one = search_genetically(M, column, y, 3, 1, 1, 1, 3, random_state=0)
    assert len(one.rules) <= 1


def test_start_is_never_made_worse(wine):
    M, column, y = wine
    rules = find_rules_greedily(M, column, y, 3, 6).rules
    classes = natural_classes(M, y, 3, rules)
    value, _ = winning_rule_objective(firing_strengths(M, rules), y, 3, classes, [len(r) for r in rules], 6, 2, 13)
    assert search_genetically(M, column, y, 3, **SMALL, start=rules).objective >= value - 1e-9
    given = search_genetically(M, column, y, 3, **SMALL | {"n_generations": 0, "n_draws": 1, "population_size": 1}, start=rules[:1], start_consequents=[2])
    assert given.consequents.tolist() in ([], [2])


def test_locked_rules_are_in_every_solution(wine):
    M, column, y = wine
    found = search_genetically(M, column, y, 3, **SMALL, locked=[(30, 2, 11)], locked_consequents=[1], pareto=True)
    assert found.rules[0] == (2, 11, 30) and found.consequents[0] == 1
    assert all(s.rules[0] == (2, 11, 30) and s.consequents[0] == 1 for s in found.front)
    many = search_genetically(M, column, y, 3, **SMALL | {"n_rules": 1}, locked=[(0,), (7,)], mixture=True)
    assert many.rules[:2] == [(0,), (7,)]


def test_a_rule_is_locked_once(wine):
    M, column, y = wine
    for search in (find_rules_greedily, search_genetically):
        with pytest.raises(ValueError, match=r"locked holds the rule \(0, 9\) twice, at places 0 and 2"):
            search(M, column, y, 3, n_rules=5, locked=[(0, 9), (4,), (9, 0)])


def test_limits_of_the_genetic_search(wine):
    M, column, y = wine
    empty = search_genetically(M[:, :0], column[:0], y, 3, **SMALL)
    assert empty.rules == [] and np.isclose(empty.objective, -0.05)
    narrow = search_genetically(M[:, :3], column[:3], y, 3, **SMALL | {"n_rules": 20, "n_antecedents": 4})
    assert len(narrow.rules) <= 3
    rare = np.where(np.arange(len(y)) == 0, 2, y % 2)
    assert search_genetically(M, column, rare, 3, **SMALL).rules
    for name in ("objective", "ds_mode", "mixture_pruning", "t_norm"):
        with pytest.raises(ValueError, match=f"{name} must be one of"):
            search_genetically(M, column, y, 3, **SMALL, **{name: "other"})


def test_generators_of_every_kind():
    a, b = as_generator(7), as_generator(np.random.default_rng(7))
    assert a.random() == b.random()
    assert as_generator(np.random.RandomState(7)).random() == as_generator(np.random.RandomState(7)).random() != as_generator(np.random.RandomState(8)).random()


def test_a_small_cache_changes_nothing(wine):
    M, column, y = wine
    large, small = FiringCache(M), FiringCache(M, most=20 * len(M))
    breeder = RuleBreeder(M, column, y, 3, 2, 0, np.random.default_rng(0))
    for _ in range(4):
        literals = breeder.population(3, 5, 2).tidy().literals
        a, b = large(literals), small(literals)
        assert np.array_equal(large.rows[a], small.rows[b])


def test_searches_do_not_depend_on_threads(run_python):
    code = """
import json, numpy as np
from threadpoolctl import threadpool_limits
from sklearn.datasets import load_breast_cancer
from mixlit.column_generation import find_rules_greedily
from mixlit.genetic import search_genetically
from mixlit.terms import make_partition, term_literals
data = load_breast_cancer()
literals = term_literals(make_partition(data.data), True)
M, column, y = literals.memberships(data.data), literals.column, data.target
out = []
for threads in (1, 2):
    with threadpool_limits(threads):
        out.append([find_rules_greedily(M, column, y, 2, 10).rules]
                   + [search_genetically(M, column, y, 2, 8, 2, 20, 8, random_state=1, **more).rules for more in ({}, {"mixture": True}, {"objective": "log_loss"})])
print(json.dumps(out))
"""
    done = run_python("-c", code, OMP_NUM_THREADS="2")
    assert done.returncode == 0, done.stderr
    one, two = json.loads(done.stdout.strip().splitlines()[-1])
    assert one == two


# ---- the benchmark


def test_bench_frames_and_marks():
    from mixlit.fuzzy_bench import fuzzy_marks, fuzzy_means, fuzzy_text, peer_frame, run_fuzzy
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert peer_frame().log_loss.notna().all()
    runs = run_fuzzy(quick=True, methods=["greedy, 6 rules", "decision tree"])
    assert len(runs) == 6 and {"table", "method", "fold", "log_loss", "accuracy", "macro_f1", "rules", "mean_antecedents", "seconds"} <= set(runs.columns)
    assert (runs.rules[runs.method == "greedy, 6 rules"] <= 6).all() and runs.mean_antecedents.dropna().between(1, 2).all()
    marks = fuzzy_marks(runs)
    assert list(marks.columns) == ["mark", "target", "reached", "met"] and len(marks) == 3
    assert fuzzy_means(runs).loc[("iris", "decision tree"), "accuracy"] > 0.8 and "marks are met" in fuzzy_text(runs)
