"""Experiments that are killed, resumed, spread and judged."""
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from mixlit.reproduce import (Claim, Experiment, RunLog, cell_key, choose_experiments, pending_cells, reproduce_experiments, run_experiment,
                              verdict_frame)

N_CELLS = 24

SCRIPT = """
import sys, time
from mixlit.reproduce import Experiment, RunLog, run_experiment

def run(cell, quick):
    time.sleep(0.02)
    with open(sys.argv[2], "a") as f:
        f.write(f"{cell['seed']}\\n")
    return {"square": cell["seed"] ** 2, "padding": "x" * 20_000}

squares = Experiment("squares", "", "", (), lambda quick, seeds: [{"table": "t", "method": "m", "fold": 0, "seed": s} for s in range(seeds)], run, dict)
run_experiment(squares, RunLog(sys.argv[1]), seeds=%d)
""" % N_CELLS


def square(cell, quick):
    return {"square": cell["seed"] ** 2}


def cells(quick, seeds):
    return [{"table": "t", "method": "m", "fold": 0, "seed": s} for s in range(seeds)]


def squares_measured(runs):
    return {"sum": runs.square.sum()}


SQUARES = Experiment("squares", "Squares", "a book", (Claim("sum", 30, "page 1"), Claim("gone", 1, "page 2", checkable=False, why="lost")), cells, square, squares_measured)


def test_killed_at_random_moments_it_loses_and_doubles_nothing(tmp_path):
    log, trace = tmp_path / "runs.jsonl", tmp_path / "trace"
    rng, kills = random.Random(7), 0
    for _ in range(60):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(log), str(trace)], stderr=subprocess.DEVNULL)
        have = len(RunLog(log).rows())
        while process.poll() is None and len(RunLog(log).rows()) <= have:        # it has started to write
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.15))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
        before = {row["seed"] for row in RunLog(log).rows()}
        assert len(before) > 0
        if len(before) == N_CELLS:
            break
    assert kills >= 2, "the run ended before it could be killed twice"
    rows = RunLog(log).rows()
    assert sorted(row["seed"] for row in rows) == list(range(N_CELLS))
    assert all(row["square"] == row["seed"] ** 2 and len(row["padding"]) == 20_000 for row in rows)
    whole = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    assert len(whole) == N_CELLS, "a finished cell is in the log twice"
    computed = trace.read_text().split()
    assert len(computed) <= N_CELLS + kills, "more was computed again than the cells in hand"


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_line_is_skipped_and_its_cell_runs_again(tmp_path, cut):
    log = RunLog(tmp_path / "runs.jsonl")
    run_experiment(SQUARES, log, seeds=3)
    whole = log.path.read_bytes()
    log.path.write_bytes(whole[:-cut])
    assert len(log.rows()) == (3 if cut == 1 else 2)                             # only the end of the line is gone: the row is whole
    runs = run_experiment(SQUARES, log, seeds=3)
    assert sorted(runs.seed) == [0, 1, 2] and runs.square.sum() == 5


def test_two_runs_at_once_are_refused(tmp_path):
    log = RunLog(tmp_path / "runs.jsonl")
    with log.alone(), pytest.raises(OSError, match="another run is writing there"):
        run_experiment(SQUARES, log, seeds=1)
    run_experiment(SQUARES, log, seeds=1)


def test_processes_and_one_process_say_the_same(tmp_path):
    one = run_experiment(SQUARES, RunLog(tmp_path / "one.jsonl"), seeds=6)
    two = run_experiment(SQUARES, RunLog(tmp_path / "two.jsonl"), seeds=6, jobs=2)
    assert dict(zip(one.seed, one.square)) == dict(zip(two.seed, two.square)) and len(two) == 6


# a cluster logs through warnings of its own when it closes; they are not ours
@pytest.mark.filterwarnings("default")
def test_the_same_on_a_dask_cluster_of_two_workers(tmp_path):
    distributed = pytest.importorskip("distributed")
    from joblib import parallel_config
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=str(tmp_path)) as cluster, \
            distributed.Client(cluster), parallel_config(backend="dask"):
        runs = run_experiment(SQUARES, RunLog(tmp_path / "runs.jsonl"), seeds=8)
    assert sorted(runs.seed) == list(range(8)) and (runs.square == runs.seed**2).all()


def test_more_seeds_later_add_to_what_is_there(tmp_path):
    log = RunLog(tmp_path / "runs.jsonl")
    run_experiment(SQUARES, log, seeds=2)
    assert [c["seed"] for c in pending_cells(SQUARES, log, False, 4)] == [2, 3]
    assert len(pending_cells(SQUARES, log, True, 2)) == 2                        # a quick run is another size
    assert cell_key(log.rows()[0]) == ("squares", "full", "t", "m", 0, 0)


def test_verdicts_by_hand(tmp_path):
    said = []
    frame = reproduce_experiments([SQUARES], tmp_path / "out", seeds=5, say=said.append)
    assert frame.verdict.tolist() == ["reproduced", "cannot be checked"] and frame.ours[0] == 30
    frame = reproduce_experiments([SQUARES], tmp_path / "less", seeds=4, say=said.append)
    assert frame.verdict[0] == "differs" and frame.difference[0] == 14 - 30
    assert any("lost" in text for text in said)
    assert verdict_frame(SQUARES, frame[:0]).verdict.tolist() == ["not run", "cannot be checked"]
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {"runs.jsonl", "verdicts.csv"}


@pytest.mark.parametrize("kind, ours, verdict", [
    ("near", 1.1, "reproduced"), ("near", 1.11, "differs"), ("near", 0.9, "reproduced"), ("at most", 1.1, "reproduced"),
    ("at most", 0.0, "reproduced"), ("at most", 1.2, "differs"), ("at least", 0.9, "reproduced"), ("at least", 0.8, "differs"), ("at least", 9.0, "reproduced")])
def test_tolerance_counts_on_the_right_side(kind, ours, verdict):
    assert Claim("x", 1.0, "here", 0.1, kind).verdict(ours) == verdict


@pytest.mark.parametrize("options, said", [({"kind": "about"}, "'near', 'at most' or 'at least'"), ({"checkable": False}, "say why")])
def test_claims_that_say_too_little(options, said):
    with pytest.raises(ValueError, match=said):
        Claim("x", 1.0, "here", **options)


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'squares'"):
        choose_experiments(["square"], {"squares": SQUARES})
    with pytest.raises(ValueError, match="seeds = 0"):
        run_experiment(SQUARES, RunLog("never-written.jsonl"), seeds=0)


def test_every_experiment_is_well_made():
    from mixlit.claims import EXPERIMENTS
    for name, e in EXPERIMENTS.items():
        quick, full = e.cells(True, 1), e.cells(False, 5)
        assert name == e.name and quick and e.title and e.source and e.claims, name
        for some in (quick, full):
            keys = [cell_key(c, name, False) for c in some]
            assert len(set(keys)) == len(keys), f"{name}: two cells have one key"
            assert all(set(c) >= {"table", "method", "fold", "seed"} for c in some), name
        assert len({c.what for c in e.claims}) == len(e.claims), f"{name}: two claims have one name"
