"""The command `mixlit`: what it prints, what it writes, and how it refuses."""
import io
import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from scipy import stats


def run_main(args):
    """Exit code, standard output and standard error of `mixlit ARGS`, run in this process."""
    from mixlit.experiments import main
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["mixlit", *map(str, args)])
        try:
            code = main()
        except SystemExit as stop:
            code = stop.code
    return code or 0, out.getvalue(), err.getvalue()


@pytest.fixture
def command(monkeypatch, tmp_path):
    """A function that runs `mixlit ARGS` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *args: run_main(args)


def make_table(n=250, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"age": rng.integers(18, 65, n), "smoker": rng.choice(["yes", "no"], n),
                          "bmi": rng.normal(30, 6, n).round(1)})
    table["charges"] = np.where(table["smoker"] == "yes", 30.0, 8.0) + rng.normal(0, 1, n)
    return table


@pytest.fixture(scope="module")
def table():
    return make_table()


@pytest.fixture(scope="module")
def csv(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "people.csv"
    table.to_csv(path, index=False)
    return path


def written(folder, ending):
    (path,) = folder.rglob(f"*{ending}")
    return path


@pytest.fixture(scope="module")
def done(csv, tmp_path_factory):
    """One run on the reader's own table: where it wrote, and what it printed."""
    folder = tmp_path_factory.mktemp("run") / "report"
    code, out, err = run_main(["fit", csv, "--target", "charges", "--seed", "3", "--out", folder])
    assert code == 0, err
    return folder, out


def numbers(text):
    return [float(found) for found in re.findall(r"-?\d+\.\d+", text)]


def test_no_arguments_fit_a_table_that_is_shipped(command, tmp_path):
    code, out, err = command("fit")
    assert code == 0, err
    assert ">=" in out or "<" in out
    assert "species = setosa" in out and "near 1.46" in out
    assert written(tmp_path, ".html").stat().st_size > 1000


def test_own_csv(done):
    folder, out = done
    assert "smoker = yes" in out and "smoker = no" in out
    assert "gaussian" in out.lower() and "mixture" in out.lower()
    assert written(folder, ".html").name in out and written(folder, ".json").name in out


def test_own_parquet_says_the_same(command, table, done, tmp_path):
    pytest.importorskip("pyarrow")
    table.to_parquet(tmp_path / "people.parquet")
    code, out, err = command("fit", "people.parquet", "--target", "charges", "--seed", "3", "--out", "report")
    assert code == 0, err
    ours, theirs = (json.loads(written(folder, ".json").read_text(encoding="utf-8"))
                    for folder in (tmp_path / "report", done[0]))
    assert ours == theirs


def test_a_known_table_by_name(command):
    code, out, err = command("fit", "iris")
    assert code == 0, err
    assert "iris" in out and "petal" in out


def test_held_out_scores_by_hand(csv, table, done):
    """The scores are mean log densities of a fifth of the rows, which neither the rules nor the baselines saw."""
    from mixlit.experiments import fit
    from mixlit.xmm import XMM
    result = fit(csv, target="charges", seed=3, quiet=True, out=False)
    held = result.X_test.index
    assert len(held) == 50
    np.testing.assert_allclose(result.y_test, table.loc[held, "charges"])
    scores = result.scores["mean_log_density"]
    saved = XMM.load(written(done[0], ".json"))
    X, y = table.drop(columns="charges"), table["charges"]
    assert scores["rules"] == pytest.approx(saved.score(X.loc[held], y[held]))
    seen = y.drop(held)
    (gaussian,) = [value for name, value in scores.items() if "gaussian" in name.lower()]
    assert gaussian == pytest.approx(stats.norm.logpdf(y[held], seen.mean(), seen.std(ddof=0)).mean())
    (mixture,) = [value for name, value in scores.items() if "mixture" in name.lower()]
    assert scores["rules"] > mixture + 0.3 and mixture > gaussian + 0.3
    for value in scores:
        assert any(abs(value - printed) < 0.006 for printed in numbers(done[1]))


def test_same_seed_same_output(command, csv, done, tmp_path):
    folder, before = done
    code, out, err = command("fit", csv, "--target", "charges", "--seed", "3", "--out", tmp_path / "again")
    assert code == 0, err
    places = {str(folder): "FOLDER", str(tmp_path / "again"): "FOLDER"}
    for place, name in places.items():
        before, out = before.replace(place, name), out.replace(place, name)
    assert out == before
    for ending in (".json", ".html"):
        ours, theirs = (written(place, ending).read_text(encoding="utf-8") for place in (tmp_path / "again", folder))
        for place, name in places.items():
            ours, theirs = ours.replace(place, name), theirs.replace(place, name)
        assert ours == theirs


def test_another_seed_holds_out_other_rows_and_quiet_says_little(command, csv, done, tmp_path):
    code, out, err = command("fit", csv, "--target", "charges", "--seed", "4", "--quiet", "--out", tmp_path / "x")
    assert code == 0 and err == ""
    assert 0 < len(out.splitlines()) <= 2 and "smoker" not in out
    assert written(tmp_path / "x", ".json").read_text() != written(done[0], ".json").read_text()


@pytest.mark.parametrize("args", [["--help"], ["fit", "--help"], ["bench", "--help"]], ids=" ".join)
def test_help(args, command):
    code, out, err = command(*args)
    assert code == 0 and err == ""
    assert re.search(r"^ *(\$ )?mixlit (fit|bench) \S", out, re.M), "no example"


def test_help_names_every_option(command):
    out = command("fit", "--help")[1]
    for option in ("--target", "--seed", "--quiet", "--out"):
        assert option in out


# ---------------------------------------------------------------- what it writes


class Loads(HTMLParser):
    """Addresses that a page makes a browser load."""

    def __init__(self):
        super().__init__()
        self.found, self.tags = [], set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "srcset", "data", "poster") or (tag == "link" and name == "href"):
                self.found.append(value)


def test_report_is_one_self_contained_page(done):
    page = written(done[0], ".html").read_text(encoding="utf-8")
    loads = Loads()
    loads.feed(page)
    assert all(address.startswith("data:") for address in loads.found)
    assert not re.search(r"url\(\s*['\"]?(?!data:|#)", page) and "@import" not in page
    assert "smoker = yes" in re.sub(r"<[^>]+>", "", page)
    assert "svg" in loads.tags or "img" in loads.tags
    headings = " ".join(re.findall(r"<h2[^>]*>(.*?)</h2>", page)).lower()
    for word in ("rules", "density per rule", "where each rule applies", "held-out score", "calibration"):
        assert word in headings


def test_report_escapes_the_names_in_the_table(command, tmp_path):
    table = make_table(120).rename(columns={"smoker": "<script>alert(1)</script>", "charges": "a&b<i>"})
    table.to_csv(tmp_path / "odd.csv", index=False)
    code, _, err = command("fit", tmp_path / "odd.csv", "--target", "a&b<i>", "--out", tmp_path / "report")
    assert code == 0, err
    page = written(tmp_path / "report", ".html").read_text(encoding="utf-8")
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;" in page


def test_saved_model_works(table, done):
    from mixlit.xmm import XMM
    model = XMM.load(written(done[0], ".json"))
    X, y = table.drop(columns="charges"), table["charges"]
    assert np.isfinite(model.score_samples(X, y)).all()
    assert np.abs(model.predict(X) - y).mean() < 2


# ---------------------------------------------------------------- how it refuses


def refused(result, *words):
    """Exit code 2, one line on stderr with all the words, and no traceback."""
    code, out, err = result
    assert code == 2, (code, out, err)
    assert len(err.strip().splitlines()) == 1, err
    assert "Traceback" not in err
    for word in words:
        assert str(word) in err, f"{word!r} is not in: {err}"


def test_missing_file(command):
    refused(command("fit", "nowhere.csv", "--target", "y"), "nowhere.csv")


def test_unknown_table_name(command):
    refused(command("fit", "no_such_table"), "no_such_table")


def test_unknown_target(command, csv):
    refused(command("fit", csv, "--target", "price"), "price")


def test_no_target(command, csv):
    refused(command("fit", csv), "target")


def test_target_in_words(command, csv):
    refused(command("fit", csv, "--target", "smoker"), "smoker")


@pytest.mark.parametrize("content", ["", "a,b,charges\n"], ids=["no bytes", "a header alone"])
def test_empty_table(content, command, tmp_path):
    (tmp_path / "empty.csv").write_text(content)
    refused(command("fit", tmp_path / "empty.csv", "--target", "charges"))


def test_one_row(command, table, tmp_path):
    table.iloc[:1].to_csv(tmp_path / "one.csv", index=False)
    refused(command("fit", tmp_path / "one.csv", "--target", "charges"), "1")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_value_in_the_target(value, command, table, tmp_path):
    bad = table.copy()
    bad.loc[5, "charges"] = value
    bad.to_csv(tmp_path / "bad.csv", index=False)
    refused(command("fit", tmp_path / "bad.csv", "--target", "charges"), "charges")


def test_a_file_that_is_no_table(command, tmp_path):
    (tmp_path / "noise.parquet").write_bytes(bytes(range(256)))
    refused(command("fit", tmp_path / "noise.parquet", "--target", "charges"), "noise.parquet")


def test_a_folder_instead_of_a_table(command, tmp_path):
    refused(command("fit", tmp_path, "--target", "charges"))


@pytest.mark.parametrize("option", [("--holdout", "0"), ("--holdout", "1.5"), ("--seed", "-1"), ("--max-rules", "0"),
                                    ("--drop", "weight"), ("--categorical", "weight")], ids=" ".join)
def test_impossible_options(option, command, csv):
    refused(command("fit", csv, "--target", "charges", *option), option[1])


@pytest.mark.parametrize("column, value", [("bmi", np.nan), ("smoker", None)])
def test_missing_feature(column, value, command, table, tmp_path):
    """Cells may be empty: the rules are found all the same, and an empty column is refused by name."""
    gaps = table.copy()
    gaps.loc[::9, column] = value
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    code, out, err = command("fit", tmp_path / "gaps.csv", "--target", "charges")
    assert code == 0 and "smoker = yes" in out, err
    table.assign(**{column: None}).to_csv(tmp_path / "empty.csv", index=False)
    refused(command("fit", tmp_path / "empty.csv", "--target", "charges"), column)


def test_an_identifier(command, table, tmp_path):
    table.assign(id=[f"person {i}" for i in range(len(table))]).to_csv(tmp_path / "people.csv", index=False)
    refused(command("fit", tmp_path / "people.csv", "--target", "charges"), "'id'", len(table))


@pytest.mark.parametrize("args", [["fit", "--seed", "many"], ["fit", "--colour"], ["cluster"]], ids=" ".join)
def test_wrong_arguments(args, command):
    code, _, err = command(*args)
    assert code == 2
    assert args[-1] in err


def test_a_refusal_writes_nothing(command, csv, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    command("fit", csv, "--target", "price", "--out", tmp_path / "report")
    assert sorted(tmp_path.rglob("*")) == before


def test_in_a_process_of_its_own(run_python, tmp_path):
    result = run_python("-c", "import sys; from mixlit.experiments import main; sys.exit(main())", "fit", "nowhere.csv",
                        cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert result.returncode == 2
    assert "nowhere.csv" in result.stderr and len(result.stderr.strip().splitlines()) == 1


# ---------------------------------------------------------------- the functions behind it


def test_load_table_of_every_kind(table, csv, monkeypatch):
    from mixlit.experiments import load_table
    loaded = load_table(str(csv), target="charges")
    assert loaded.target == "charges"
    assert list(loaded.X.columns) == ["age", "smoker", "bmi"]
    np.testing.assert_allclose(loaded.y, table["charges"])
    bundled = load_table("diabetes")
    assert bundled.X.shape == (442, 10) and len(bundled.y) == 442
    monkeypatch.setenv("MIXLIT_DATA", str(csv.parent))
    own = load_table("people", target="charges")
    np.testing.assert_allclose(own.y, table["charges"])


def test_load_table_says_what_is_wrong(csv):
    from mixlit.experiments import load_table
    with pytest.raises(ValueError, match="price"):
        load_table(str(csv), target="price")


def test_probabilities_are_not_compared_with_a_density(command, table, tmp_path):
    # a count, and an amount that is exactly 0 in half of the rows
    counted = table.assign(charges=(table.charges // 8).astype(int))
    counted.to_csv(tmp_path / "counted.csv", index=False)
    code, out, err = command("fit", "counted.csv", "--target", "charges", "--density", "auto")
    assert code == 0, err
    assert "of the probability of the observed charges" in out and "single Gaussian" not in out
    half = table.assign(charges=np.where(np.arange(len(table)) % 2, table.charges, 0.0))
    half.to_csv(tmp_path / "half.csv", index=False)
    code, out, err = command("fit", "half.csv", "--target", "charges", "--density", "mixed")
    assert code == 0, err
    assert "exactly 0" in out and "single Gaussian" not in out and "of a probability where single values have one" in out


def test_reproduce_lists_runs_and_resumes(command, tmp_path):
    code, out, _ = command("reproduce", "--list")
    assert code == 0 and "xmm-gold" in out and not list(tmp_path.iterdir())
    code, out, err = command("reproduce", "xmm-gold", "--quick", "--out", "mine")
    assert code == 0, err
    assert "cannot be checked" in out and "claims reproduced" in out
    assert {p.name for p in (tmp_path / "mine").iterdir()} >= {"runs.jsonl", "verdicts.csv", "xmm-gold.svg"}
    before = (tmp_path / "mine" / "runs.jsonl").read_bytes()
    code, again, err = command("reproduce", "xmm-gold", "--quick", "--out", "mine")
    assert code == 0 and again == out and (tmp_path / "mine" / "runs.jsonl").read_bytes() == before
    code, out, err = command("reproduce", "xmm-golt", "--quick")
    assert code == 2 and "did you mean 'xmm-gold'" in err and err.count("\n") == 1
