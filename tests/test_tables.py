"""The comparison on real tables: its peers, its conversions, and the command."""
import os

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from test_cli import run_main

from mixlit.densities import GaussianFamily, automatic_min_scale
from mixlit.tables import (COMPARED, Fold, MDN, column_of, fit_leaf_tree, fit_mdn, jittered, make_folds, mark, marks_frame, one_hot, paper_way,
                           run_tables, score_fold, spike_log_density, table_means, tables_text)
from mixlit.targets import CategoricalFamily


@pytest.fixture(scope="module")
def two_groups():
    """Features (600, 3) and a target whose density changes where the first is 0.5."""
    rng = np.random.RandomState(0)
    A = rng.uniform(size=(600, 3))
    return A, np.where(A[:, 0] < 0.5, rng.normal(0, 1, 600), rng.normal(50, 3, 600))


def gaussian(y):
    return GaussianFamily(automatic_min_scale(y), n_components=1, prior_rows=2.0)


def test_a_probability_as_a_spike():
    assert spike_log_density(np.log(0.25)) == pytest.approx(np.log(0.25) + stats.norm(0, 1e-3).logpdf(0))
    assert spike_log_density(0.0, sd=1.0) == pytest.approx(-0.9189, abs=1e-4)


def test_jitter_keeps_the_integers_and_depends_on_the_name():
    y = np.repeat(np.arange(5.0), 50)
    assert (np.floor(jittered(y, "a")) == y).all()
    assert np.array_equal(jittered(y, "a"), jittered(y, "a")) and not np.array_equal(jittered(y, "a"), jittered(y, "b"))
    assert stats.kstest(jittered(y, "a") - y, "uniform").pvalue > 1e-3


def test_one_hot_uses_the_training_levels_and_means():
    train = pd.DataFrame({"a": [1.0, np.nan, 3.0], "c": pd.Categorical(["u", "v", "u"])})
    test = pd.DataFrame({"a": [np.nan], "c": pd.Categorical(["w"])})
    A, B = one_hot(train, test)
    assert A.tolist() == [[1, 1, 0], [2, 0, 1], [3, 1, 0]] and B.tolist() == [[2, 0, 0]]


def test_mdn_integrates_to_one_beats_the_marginal_and_repeats(two_groups):
    A, y = two_groups
    state = np.random.get_state()[1].copy()
    mdn = fit_mdn(A[:450], y[:450], 0.5, most_epochs=60)
    assert isinstance(mdn, MDN) and np.array_equal(np.random.get_state()[1], state)
    grid = np.linspace(-300, 350, 40_001)
    mass = [np.exp(mdn.log_density(np.tile(a, (len(grid), 1)), grid)).sum() * (grid[1] - grid[0]) for a in A[450:453]]
    assert mass == pytest.approx([1, 1, 1], abs=1e-3)
    family = gaussian(y[:450])
    plain = family.population(family.group(y[:450])).log_pdf(y[450:])[0]
    v = mdn.log_density(A[450:], y[450:])
    assert v.mean() > plain.mean() + 0.2
    assert np.array_equal(v, fit_mdn(A[:450], y[:450], 0.5, most_epochs=60).log_density(A[450:], y[450:]))


def test_mdn_density_is_per_unit_of_the_target(two_groups):
    A, y = two_groups
    v = fit_mdn(A, y, 0.5, most_epochs=20).log_density(A, y)
    w = fit_mdn(A, 100 * y, 50.0, most_epochs=20).log_density(A, 100 * y)
    assert v.mean() - w.mean() == pytest.approx(np.log(100), abs=0.02)


def test_leaf_tree_finds_the_cut_and_nothing_else(two_groups):
    A, y = two_groups
    tree = fit_leaf_tree(A, y, gaussian(y))
    assert tree.conditions() == [1, 1] and tree.tree.tree_.feature[0] == 0
    assert len(fit_leaf_tree(A, np.random.RandomState(1).normal(size=600), gaussian(y)).leaves) == 1


def test_bic_of_a_leaf_tree_by_hand(two_groups):
    A, y = two_groups
    tree = fit_leaf_tree(A, y, gaussian(y))
    assert tree.bic == pytest.approx(-2 * tree.log_density(A, y).sum() + (2 * 2 + 1) * np.log(600))


def test_leaf_tree_of_classes_sums_to_one_and_knows_unseen_classes(two_groups):
    A, y = two_groups
    classes = np.digitize(y, [-1, 1, 45, 55]).astype(float)
    family = CategoricalFamily.from_values(classes)
    tree = fit_leaf_tree(A, classes, family)
    values = np.array(family.values)
    P = np.exp([tree.log_density(A[:1], np.array([v])) for v in values])
    assert P.sum() == pytest.approx(1) and (P > 0).all()


def test_every_method_on_a_small_table_of_classes():
    rng = np.random.RandomState(0)
    X = pd.DataFrame({"x": rng.uniform(size=150), "z": rng.choice(["a", "b"], 150)})
    y = np.where(X.x < 0.5, rng.binomial(2, 0.2, 150), rng.binomial(4, 0.8, 150)).astype(float)
    folds = make_folds(X, y, "toy", 1)
    assert [f.scale for f in folds] == ["probability", "jitter"] and all(isinstance(f, Fold) for f in folds)
    rows = pd.DataFrame([row for f in folds for m in ("marginal", "tree", "mdn")[: len(COMPARED[f.scale]) - 1 if f.scale == "jitter" else 2] for row in score_fold(f, m)])
    assert np.isfinite(rows.nll).all() and (rows[rows.scale == "probability"].nll > 0).all()
    experts = pd.DataFrame(score_fold(folds[1], "experts")).set_index("scale")
    assert experts.nll["probability"] <= experts.nll["jitter"] + 0.1              # equation (3), up to chance
    means = table_means(pd.concat([rows, experts.reset_index()]))
    assert paper_way(means).marginal["toy"] == pytest.approx(column_of(means, ("probability",)).marginal["toy"] - 5.98877, abs=1e-4)


def test_marks_say_by_how_much():
    assert mark("m", 1.0, 1.5) == {"mark": "m", "value": 1.0, "goal": 1.5, "met": True, "by": 0.5}
    assert mark("m", 1.0, 1.5, at_least=True)["by"] == -0.5


def test_stored_runs_hold_every_table_and_fold(root):
    path = root / "nbs" / "results" / "xmm_tables.csv"
    runs = pd.read_csv(path)
    assert {"version", "machine", "date", "worst", "worst_gap"} <= set(runs.columns)
    assert runs.table.nunique() == 18 and (runs.groupby(["table", "scale", "method"]).size() == 5).all()
    means = table_means(runs)
    marks = marks_frame(means)
    assert np.allclose(marks.by.abs(), (marks.value - marks.goal).abs()) and "marks are met" in tables_text(means)


def test_run_tables_goes_by_name_and_fold():
    from mixlit.experiments import load_table
    runs = run_tables([load_table("linnerud")], n_folds=2, show=lambda jobs: [job for job in jobs if job[1] in ("marginal", "tree")])
    assert list(zip(runs.method, runs.fold)) == [("marginal", 0), ("tree", 0), ("marginal", 1), ("tree", 1)]


@pytest.mark.skipif("MIXLIT_DATA" not in os.environ, reason="needs the public tables in the folder MIXLIT_DATA")
def test_tables_in_the_folder_are_the_registered_ones():
    from pathlib import Path
    from mixlit.loading import known_tables, load_table
    known = known_tables()
    found = {p.stem for p in Path(os.environ["MIXLIT_DATA"]).glob("*.csv")}
    assert found <= set(known), "a table of the folder is not registered"
    for name in found:
        table = load_table(name)
        assert table.source and table.licence and not any("not the table that is known" in note for note in table.notes)
        whole_steps = table.y.nunique() <= 60 and table.y.nunique() < len(table) / 2
        assert table.kind == known[name]["kind"] and (table.kind == "continuous" or whole_steps), name


@pytest.mark.skipif("MIXLIT_DATA" not in os.environ, reason="needs the public tables in the folder MIXLIT_DATA")
def test_command_runs_and_saves(tmp_path):
    code, out, err = run_main(["bench", "tables", "--quick", "--quiet", "--save", tmp_path])
    assert code == 0 and not err
    runs = pd.read_csv(tmp_path / "xmm_tables.csv")
    assert set(runs.table) == {"slump", "wine_red"} and "marks are met" in out and "wine_red: ordinal" in out and "slump: rules less tree" in out


def test_command_without_any_table_says_where_they_should_be(monkeypatch, tmp_path):
    from mixlit import experiments
    monkeypatch.setenv("MIXLIT_DATA", str(tmp_path))
    monkeypatch.setattr(experiments, "load_table", lambda name: (_ for _ in ()).throw(FileNotFoundError(f"no {name}")))
    code, out, err = run_main(["bench", "tables", "--quick", "--quiet"])
    assert code == 2 and "MIXLIT_DATA" in err and "Table slump is left out: no slump" in out
