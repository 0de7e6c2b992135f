"""Studies of XMM: noise with a known truth, paths, and comparisons of starts."""
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from mixlit.generators import make_boxes, make_overlap, make_parity
from mixlit.studies import (add_noise, compare_starts, match_rules, overlap_of, overlap_path, plot_overlap_path, plot_robustness,
                            plot_rules_path, plot_starts, robustness, rules_path, run_starts, starts_study)
from mixlit.xmm import XMM

QUICK = {"n_steps": 20, "n_rules": 8}


def test_overlap_is_between_zero_and_one_less_the_share():
    rng = np.random.RandomState(0)
    W = rng.dirichlet(np.ones(5), 100)
    assert 0 < overlap_of(W) < 1 - 1 / 5
    assert overlap_of(np.eye(5)) == 0


@pytest.mark.parametrize("make", [make_boxes, make_parity, make_overlap])
def test_the_truth_with_noise_is_exact(make):
    toy = make(n_samples=2_000, random_state=1)
    noisy = add_noise(toy, 4, 0.5, random_state=2)
    assert noisy.X.shape[1] == toy.X.shape[1] + 4 == len(noisy.feature_names)
    np.testing.assert_array_equal(noisy.region, toy.region)
    grid = np.linspace(-25, 25, 8_001)
    row = np.tile(noisy.X[0], (len(grid), 1))
    density = np.exp(noisy.log_density(row, grid))
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-6)
    clean = np.exp(toy.log_density(row[:, : toy.X.shape[1]], grid))             # oracle: the convolution, by quadrature
    kernel = stats.norm(0, 0.5 * toy.y.std()).pdf(grid)
    np.testing.assert_allclose(np.convolve(clean, kernel, "same") * (grid[1] - grid[0]), density, atol=1e-6)


def test_without_noise_nothing_changes():
    toy = make_boxes(5, 500, random_state=0)
    same = add_noise(toy, random_state=0)
    np.testing.assert_array_equal(same.X, toy.X)
    np.testing.assert_array_equal(same.y, toy.y)
    np.testing.assert_allclose(same.log_density(same.X, same.y), toy.log_density(toy.X, toy.y))
    with pytest.raises(ValueError, match="negative"):
        add_noise(toy, -1)


def test_paths_have_a_row_a_fit_and_repeat():
    toy = make_overlap(600, random_state=0)
    models = {"default": XMM(**QUICK), "paper": XMM.paper(**QUICK)}
    frames = [overlap_path(toy.X, toy.y, (0, 1), models, truth=toy.log_density, random_state=3) for _ in range(2)]
    pd.testing.assert_frame_equal(*frames)
    assert frames[0].shape[0] == 4 and list(frames[0].columns[:2]) == ["overlap_penalty", "procedure"]
    assert not hasattr(models["default"], "rules_")                               # clones were fitted
    assert plot_overlap_path(frames[0]).get_ylabel() == "hard overlap"
    grown = rules_path(toy.X, toy.y, (2, 6), {"tree": XMM(init="tree")}, random_state=0)
    assert grown.soft_rules.isna().all() and grown.above_truth.isna().all() and (grown.rules <= grown.n_rules).all()
    assert len(plot_rules_path(grown, true_rules=4).lines) == 2
    with pytest.raises(ValueError, match="overlap penalty"):
        overlap_path(toy.X, toy.y, (-1,))
    with pytest.raises(ValueError, match="at least 1 rule"):
        rules_path(toy.X, toy.y, (0,))


def test_noise_features_do_not_touch_the_tree():
    frame = robustness(lambda **kw: make_boxes(4, **kw), (0, 20), (1,), {"tree": XMM(init="tree")}, n_samples=2_000, random_state=0)
    assert len(frame) == 3
    features = frame[frame.disturbance == "noise features"]
    assert (features.nmi > 0.9).all() and (features.noise_share < 0.2).all() and (features.gained > 0.85).all()
    assert frame.to_gain.iloc[-1] < frame.to_gain.iloc[0] / 2
    assert plot_robustness(frame, "target noise").get_xlabel().startswith("target noise")
    with pytest.raises(ValueError, match="disturbance"):
        plot_robustness(frame, "noise")


def test_true_rules_match_themselves_and_no_rules_match_none():
    toy = make_boxes(6, 1_000, random_state=0)
    assert (match_rules(toy, toy.rules).jaccard == 1).all()
    none = match_rules(toy, type(toy.rules)([], toy.feature_names))
    assert (none.jaccard == 0).all() and (none.found == -1).all()


def test_starts_are_compared_on_the_same_rows():
    frame = starts_study({"parity": make_parity(800, random_state=0)}, ("tree", "kmeans++"), (0,), n_steps=60)
    tree, gradient = frame.iloc[0], frame.iloc[1]
    assert tree["behind kmeans++"] == pytest.approx(tree.nll - gradient.nll) == -gradient["behind tree"]
    assert tree["error tree"] == 0 and tree["error kmeans++"] == gradient["error tree"]
    assert compare_starts(frame).loc["parity", "lead"] == pytest.approx(gradient.nll - tree.nll)
    assert len(plot_starts(frame).get_yticklabels()) == 1
    with pytest.raises(ValueError, match="no start"):
        compare_starts(frame, "tree", "given")


def test_the_stored_run_is_stamped(tmp_path):
    frame = run_starts(tmp_path / "runs.csv", seeds=1, names=["iris"], inits=("tree",), most_rows=300)
    stored = pd.read_csv(tmp_path / "runs.csv")
    assert len(stored) == len(frame) == 6 and {"version", "machine", "date", "seed"} <= set(stored)
