"""Claims on Gaussian mixtures: counted by hand, spoilt on purpose, and judged where a peer is missing."""
import builtins

import numpy as np
import pandas as pd
import pytest

from mixlit import gmm_claims, gmm_paper
from mixlit.gmm_claims import GROUPS, gmm_banknotes, gmm_iris, gmm_lime, lime_figures, plot_signs, point_signs, printed_numbers, refit
from mixlit.reproduce import CellsFailed, RunLog, reproduce_experiments, run_experiment, verdict_frame


@pytest.mark.parametrize("name", list(GROUPS))
def test_claims_count_every_printed_number_once(name):
    numbers = printed_numbers(name)
    assert not numbers.duplicated(["group", "what"]).any()
    assert numbers.groupby("group").size().to_dict() == {g: n for g, (n, _) in GROUPS[name].items()}
    assert set(numbers.verdict) <= {"exact", "to rounding", "differs"}


def test_a_wrong_digit_is_noticed(monkeypatch, tmp_path):
    before = gmm_banknotes.run({"table": "swiss_banknotes", "method": "table 7", "seed": 0}, True)
    assert before == {"exact": before["exact"], "to_rounding": 6 - before["exact"], "differ": 0}
    name, pair, printed = gmm_paper.OVERLAPS[7]
    monkeypatch.setitem(gmm_paper.OVERLAPS, 7, (name, pair, printed | {"4": "0.47"}))
    assert gmm_banknotes.run({"table": "swiss_banknotes", "method": "table 7", "seed": 0}, True)["differ"] == 1


def test_refit_is_the_shipped_model_and_another_start_is_not():
    same, other = refit("iris", 0), refit("iris", 4)
    assert same["means_apart"] < 1e-6 and same["log_likelihood"] == pytest.approx(same["shipped_log_likelihood"], abs=1e-9)
    assert other["log_likelihood"] > other["shipped_log_likelihood"] + 1e-3
    assert round(same["rand_held_out"], 3) == 0.907 and round(same["rand_fitted"], 3) == 0.926


def test_rows_that_are_not_here_are_said_so(monkeypatch):
    monkeypatch.delenv("MIXLIT_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="seeds.csv"):
        refit("seeds", 0)


def test_signs_by_hand():
    rows = [("iris-1 C1", "LIME", 0, "-+++"), ("iris-1 C1", "LIME", 1, "--++"), ("iris-1 C1", "LIME", 2, "+-++"), ("iris-1 C1", "mixlit", 0, "-+-+"), ("iris-1 C1", "mixlit", 1, "-+-+"),
            ("iris-2 C1", "LIME", 0, "+-++"), ("iris-2 C1", "LIME", 1, "++++")]
    runs = pd.DataFrame(rows, columns=["table", "method", "seed", "signs"]).assign(comprehensiveness=np.nan, sufficiency=np.nan)
    found = lime_figures(runs)
    assert found["different explanations of a point, ours"] == 1 and found["different explanations of iris-1 C1, LIME"] == 3
    assert found["evidence of iris-1 C1 as in the paper, LIME"] == pytest.approx(2 / 3)           # F1 is against in two of three
    assert found["evidence of iris-2 C1 as in the paper, LIME"] == 0.5                            # F2 has to be against too
    assert not any("worth" in what for what in found)
    plot_signs(runs)


def test_worth_by_hand():
    rows = [("iris", "mixlit", 0.5, 0.1), ("seeds", "mixlit", 0.3, 0.0), ("iris", "LIME", 0.2, 0.1), ("seeds", "LIME", 0.3, -0.1)]
    runs = pd.DataFrame(rows, columns=["table", "method", "comprehensiveness", "sufficiency"]).assign(signs=None, seed=0)
    assert lime_figures(runs)["worth of the features chosen, LIME less ours"] == pytest.approx(-0.2)


def test_our_signs_are_those_of_leaving_out():
    # table 13: without F3 the cluster's probability rises to 99.5%, so F3 speaks against it
    assert point_signs("iris-2 C1", "mixlit", 0)[2] == "-" and len(point_signs("swiss-1 C1", "mixlit", 0)) == 6


def test_without_lime_and_shap_the_rest_is_judged(monkeypatch, tmp_path):
    real = builtins.__import__

    def no_peers(name, *args, **kwargs):
        if name.split(".")[0] in ("lime", "shap"):
            raise ImportError(f"No module named {name!r}")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_peers)
    monkeypatch.delenv("MIXLIT_DATA", raising=False)
    with pytest.raises(CellsFailed) as error:
        run_experiment(gmm_lime, RunLog(tmp_path / "runs.jsonl"), quick=True)
    assert error.value.absent
    said = []
    verdicts = reproduce_experiments([gmm_lime], tmp_path / "all", quick=True, say=said.append).set_index("claim").verdict
    assert verdicts["different explanations of a point, ours"] == "reproduced" and verdicts["different explanations of iris-1 C1, LIME"] == "not run"
    assert any("left out" in text and "lime" in text for text in said)


def test_iris_runs_whole_from_the_package_alone(monkeypatch, tmp_path):
    monkeypatch.delenv("MIXLIT_DATA", raising=False)
    verdicts = verdict_frame(gmm_iris, run_experiment(gmm_iris, RunLog(tmp_path / "runs.jsonl"), quick=True)).set_index("claim").verdict
    assert verdicts["table 5: numbers that hold"] == "reproduced" and verdicts["table 6: numbers that hold"] == "differs"
    assert "not run" not in set(verdicts)
    assert gmm_claims.GMM_EXPERIMENTS[0] is gmm_iris
