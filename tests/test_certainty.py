"""How sure the rules are: matching, bounds, gains, adjusted p values, and every kind of target."""
import warnings

import numpy as np
import pandas as pd
import pytest
from mixlit.certainty import (adjust, bootstrap_rules, cross_fitted_gains, density_tests, held_out_gains, holm, jaccard, match_rules, removal_changes,
                              resampled_counts, rule_certainty, shuffled_search)
from mixlit.xmm import XMM


def steps(n: int, seed: int = 0):
    """y jumps at x = 40 and with the level b; 'other' says nothing."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"x": rng.uniform(0, 100, n).round(1), "g": rng.choice(["a", "b", "c"], n), "other": rng.normal(size=n)})
    return X, pd.Series(rng.normal(np.where(X.x < 40, 0.0, np.where(X.g == "b", 14.0, 6.0)), 1.0), name="y")


@pytest.fixture(scope="module")
def fitted():
    X, y = steps(600)
    return XMM(init="tree", random_state=0).fit(X, y), X, y


def test_jaccard_is_one_for_itself_and_symmetric():
    rng = np.random.RandomState(0)
    A, B = rng.uniform(size=(50, 4)) < 0.4, rng.uniform(size=(50, 3)) < 0.4
    assert np.allclose(np.diag(jaccard(A, A)), 1) and np.allclose(jaccard(A, B), jaccard(B, A).T)
    assert jaccard(np.zeros((5, 1)), np.zeros((5, 1)))[0, 0] == 0


def test_matching_is_one_to_one_and_the_best():
    overlap = np.array([[0.9, 0.8], [0.85, 0.1]])                   # greedy would take .9 + .1
    match, value = match_rules(overlap)
    assert match.tolist() == [1, 0] and value.sum() == pytest.approx(1.65)


def test_holm_is_monotone_and_never_below_p():
    p = np.array([0.04, 0.001, 0.5, 0.02, np.nan])
    out = holm(p)
    assert np.allclose(out[:4], [0.08, 0.004, 0.5, 0.06]) and np.isnan(out[4])
    assert len(holm([])) == 0 and (adjust(p, "bh")[:4] <= out[:4]).all()
    with pytest.raises(ValueError, match="unknown adjustment 'bonferroni'"):
        adjust(p, "bonferroni")


def test_removal_is_the_difference_of_two_mixtures():
    rng = np.random.RandomState(1)
    covers, local, population = rng.uniform(size=(40, 3)) < 0.5, rng.normal(size=(40, 4)), np.full(40, 5.0)    # population always better than otherwise
    found = removal_changes(covers, local, population)
    for i, r in np.argwhere(covers):
        rest = [j for j in np.flatnonzero(covers[i]) if j != r]
        now = np.log(np.mean(np.exp(local[i, np.flatnonzero(covers[i])])))
        assert found[i, r] == pytest.approx(now - (np.log(np.mean(np.exp(local[i, rest]))) if rest else 5.0))
    assert (found[~covers] == 0).all()


@pytest.mark.parametrize("resample", ["bootstrap", "half"])
def test_true_rules_return_with_their_bounds(fitted, resample):
    xmm, X, y = fitted
    boot = bootstrap_rules(xmm, X, y, n_boot=8, resample=resample, random_state=0)
    assert (boot.rule_frame().returns >= 0.6).all()
    numbers = boot.bound_frame(0.9).query("side != 'levels'")
    assert len(numbers) and ((numbers.low - 1 <= 40) & (numbers.high + 1 >= 40)).all()
    assert (resampled_counts(100, 3, resample, np.random.RandomState(0)).sum(axis=1) == (100 if resample == "bootstrap" else 50)).all()


def test_the_same_seed_gives_the_same_bootstrap(fitted):
    xmm, X, y = fitted
    a, b = (bootstrap_rules(xmm, X, y, n_boot=3, random_state=5) for _ in range(2))
    assert (a.overlap == b.overlap).all() and a.refits == b.refits


def test_gains_agree_with_the_fit_and_hold_on_new_rows(fitted):
    xmm, X, y = fitted
    assert np.allclose(held_out_gains(xmm, X, y).gain, xmm.gains_ / xmm.support_, atol=0.02)
    new, cross = held_out_gains(xmm, *steps(600, 1)), cross_fitted_gains(xmm, X, y, random_state=0)
    assert (new.gain > 5 * new.se).all() and (np.abs(new.gain - cross.gain) < 5 * np.hypot(new.se, cross.se)).all()


@pytest.mark.parametrize("test", ["auto", "cvm", "permutation"])
def test_real_rules_pass_the_test(fitted, test):
    xmm, _, _ = fitted
    assert (holm(density_tests(xmm, *steps(500, 2), test, random_state=0).p) < 0.01).all()


def test_shuffled_search_tells_truth_from_noise(fitted):
    xmm, X, y = fitted
    assert np.allclose(shuffled_search(xmm, X, y, n_shuffles=4, random_state=0).p, 0.2)


def test_every_kind_of_target_and_column():
    X, y = steps(400)
    gaps = X.assign(x=X.x.where(np.arange(400) % 6 > 0), g=X.g.where(np.arange(400) % 9 > 0))
    kinds = pd.Series(np.where(y > 10, "high", np.where(y > 3, "middle", "low")), name="kind")
    cases = {"gmm": (gaps, y), "categorical": (X, kinds), "mixed": (X, y.where(X.x >= 40, 0.0)), "nsf": (X, y)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for density, (table, target) in cases.items():
            xmm = XMM(init="tree", density=density, random_state=0).fit(table, target)
            sure = rule_certainty(xmm, table, target, n_boot=2, n_folds=2, random_state=0)
            frame = sure.to_frame()
            assert len(frame) == len(xmm.rules_) > 1 and np.isfinite(frame[["gain_cross_fitted", "se", "p_adjusted"]]).all(axis=None), density
            assert "Note" in sure.to_text() and "<table" in sure._repr_html_()


def test_several_targets_have_no_test_and_say_so():
    X, y = steps(400)
    Y = np.column_stack([y, -y + np.random.RandomState(0).normal(size=400)])
    xmm = XMM(init="tree", random_state=0).fit(X, Y)
    sure = rule_certainty(xmm, X, Y, n_boot=2, n_folds=2, random_state=0)
    assert "several targets" in sure.notes[0] and sure.frame.p_adjusted.isna().all() and (sure.frame.gain_cross_fitted > 0).all()
    with pytest.raises(ValueError, match="one target"):
        density_tests(xmm, X, Y)


def test_a_model_without_rules_is_no_error(plt):
    rng = np.random.RandomState(0)
    A, z = rng.uniform(size=(200, 3)), rng.normal(size=200)
    xmm = XMM(init="tree", random_state=0).fit(A, z)
    sure = rule_certainty(xmm, A, z, n_boot=2, random_state=0)
    assert len(xmm.rules_) == 0 and len(sure.to_frame()) == 0 and sure.to_text() == ""
    sure.plot()


def test_weights_and_the_method_of_the_model(fitted, plt):
    xmm, X, y = fitted
    w = np.random.RandomState(0).randint(0, 3, len(X)).astype(float)
    weighted = XMM(init="tree", random_state=0).fit(X, y, w)
    sure = weighted.certainty(X, y, *steps(200, 3), n_boot=2, sample_weight=w, random_state=0)
    assert sure.held_out and np.isfinite(sure.frame.gain_held_out).all()
    assert len(sure.plot().get_yticks()) == len(sure.bounds)


def test_bad_input_is_named(fitted):
    xmm, X, y = fitted
    with pytest.raises(ValueError, match="n_boot = 0"):
        bootstrap_rules(xmm, X, y, n_boot=0)
    with pytest.raises(ValueError, match="unknown resample 'jackknife'"):
        bootstrap_rules(xmm, X, y, n_boot=1, resample="jackknife")
    with pytest.raises(ValueError, match="unknown start 'best'"):
        bootstrap_rules(xmm, X, y, n_boot=1, start="best")
    with pytest.raises(ValueError, match="both X_test and y_test"):
        rule_certainty(xmm, X, y, X_test=X)
    with pytest.raises(ValueError, match="conditional=False"):
        held_out_gains(XMM(init="tree", conditional=False, random_state=0).fit(X, y), X, y)
