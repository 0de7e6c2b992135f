"""The InClass benchmark: its cases, its marks on made-up runs, and one small measurement."""
import numpy as np
import pandas as pd
import pytest

from mixlit.inclass_bench import CASES, inclass_cases, inclass_marks, inclass_table, inclass_text, run_case


def made_up(error=0.001):
    lines = [{"case": case, "seed": seed, "n_rows": 10, "error": error, "cost": -0.692, "excess": 0.0, "accuracy": 0.97, "best_accuracy": 0.972, "seconds": 0.5, "peak_gib": 1.0}
             for case, seed in inclass_cases()]
    return pd.DataFrame(lines)


def test_cases():
    assert len(inclass_cases()) == 31 and len(inclass_cases(quick=True)) == 6 and set(CASES) < {case for case, _ in inclass_cases()}


def test_marks_and_text():
    good, bad = inclass_marks(made_up()), inclass_marks(made_up(0.1))
    assert len(good) == 16 and good.met.sum() == 15                       # one made-up optimum of Waterdata, not two
    assert bad.met.sum() < good.met.sum() and (good.met == (good.by >= 0)).all()
    text = inclass_text(made_up())
    assert "15 of 16 marks are met" in text and "checkerboard" in text and "marks" not in inclass_text(made_up(), full=False)
    assert inclass_table(made_up()).runs.tolist() == [5, 5, 10, 3, 3, 3, 1, 1]
    assert len(inclass_marks(made_up().query("case == 'checkerboard'"))) == 3


def test_missing_data_leave_a_case_out(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("MIXLIT_DATA", str(tmp_path))
    assert run_case("Waterdata", 0) == [] and "left out" in capsys.readouterr().out


def test_rows_on_disk_in_a_new_process():
    pytest.importorskip("torch")
    line = run_case("rows on disk", 0, quick=True)[0]
    assert line["n_rows"] == 20_000 and line["error"] < 0.3 and np.isfinite(line["cost"]) and not line["peak_gib"] > 4
