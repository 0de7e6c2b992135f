"""What InClass nets promise, sentence by sentence, where other tests do not look: inputs, knowledge, streams, networks of a person, the last part of training, bad input."""
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm
from torch import nn

from mixlit import inclass_costs as costs
from mixlit.inclass import InClassNet, why_no_cells, read_data
from mixlit.inclass_examples import make_checkerboard, make_correlated, make_slopes, make_trivariate, make_two_gaussians
from mixlit.inclass_training import Batch, Cells, ModuleNetworks, Networks, Rows, count_rows, evaluate, make_plan, polish, revive_components, stack_variates, train

QUICK = dict(n_epochs=3, n_restarts=1, floor=None, random_state=0)
RESULTS = Path(__file__).resolve().parent.parent / "nbs" / "results"
generator = lambda s=0: torch.Generator().manual_seed(s)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def toy():
    return make_two_gaussians(6000, random_state=0)


@pytest.fixture(scope="module")
def board():
    return make_checkerboard(6000, random_state=0)


def three_kinds(n, seed=0):
    """Three well separated components in three variates."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    return rng.normal(np.array([[-3, 0, 3], [0, 3, -3], [3, -3, 0]])[kind], 1), kind


# ---------------------------------------------------------------- costs


@pytest.mark.parametrize("V, C", [(2, 2), (3, 4)])
def test_neg_ctc_is_the_printed_equation_25(V, C):
    b = torch.randn(V, 30, C, generator=generator(), dtype=torch.float64).softmax(-1)
    phi = b.mean(1)
    tilde = phi.prod(0) ** (1 / V)
    printed = -torch.log((b.prod(0) * tilde ** (1 - V)).sum(-1) / tilde.sum()).mean()
    assert np.isclose(costs.neg_ctc_cost(b.log()), printed, atol=1e-14)


def test_total_correlation_of_independent_classes_is_zero_and_classes_may_differ():
    a = torch.eye(2, dtype=torch.float64).repeat(3, 1).clamp(min=1e-300).log()
    b = torch.eye(3, dtype=torch.float64).repeat_interleave(2, 0).clamp(min=1e-300).log()
    assert abs(costs.neg_tc_cost([a, b])) < 1e-12
    assert np.isclose(costs.neg_tc_cost([a, a, b]), -np.log(2))


# ---------------------------------------------------------------- variates and networks


def test_images_a_convolution_of_a_person_shared_by_both_variates():
    rng = np.random.default_rng(0)
    kind = rng.random(1500) < 0.4
    image = lambda: (rng.normal(0, 0.5, (1500, 1, 6, 6)) + np.where(kind, 1, -1)[:, None, None, None] * np.eye(6)).astype(np.float32)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.SiLU(), nn.Flatten(), nn.Linear(64, 2))
    X = [torch.from_numpy(image()), image()]
    found = InClassNet(networks=net, share=[(0, 1)], n_epochs=10, floor=None, random_state=0).fit(X)
    assert max((found.predict(X) == kind).mean(), (found.predict(X) != kind).mean()) > 0.97
    assert np.abs(np.sort(found.weights_) - [0.4, 0.6]).max() < 0.05
    assert [s.shape for s in found.sample(3, 0)[0]] == [(3, 1, 6, 6)] * 2
    with pytest.raises(ValueError, match="shapes"):
        found.predict([X[0][:, :, :5], X[1][:, :, :5]])


def test_the_network_of_a_person_is_copied_and_training_starts_from_it(toy):
    net = nn.Linear(1, 2)
    before = net.weight.detach().clone()
    InClassNet(networks=[net, nn.Linear(1, 2)], **QUICK).fit(toy.X)
    assert torch.equal(net.weight, before)
    with pytest.raises(ValueError, match="3 networks for 2 variates"):
        InClassNet(networks=[net] * 3, **QUICK).fit(toy.X)


def test_a_dead_component_of_a_persons_network_comes_back(board):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(1, 32), nn.SiLU(), nn.Linear(32, 2))
    with torch.no_grad():
        module[-1].bias[1] = -80
    nets = ModuleNetworks([module, module], [0, 1])
    rows = Rows(list(stack_variates([board.X[:, [0]], board.X[:, [1]]])[0]))
    assert evaluate(nets, rows).weights.min() < 1e-20
    assert revive_components(nets, nets(rows.x).detach(), Batch(rows.x), generator=generator()) == {0}
    assert evaluate(nets, rows).weights.min() > 0.2
    with torch.no_grad():
        for restart in nets.restarts[0]:
            restart[-1].bias[1] = -80
    history = train(nets, rows, 200, 500, generator=generator())
    assert any(h["revived"] for h in history) and evaluate(nets, rows).weights.min() > 0.05


def test_restarts_and_uncertainty_of_a_persons_network(toy):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(1, 12), nn.SiLU(), nn.Linear(12, 2))
    net = InClassNet(networks=module, n_restarts=3, n_epochs=6, floor=None, random_state=0).fit(toy.X)
    assert len(net.restarts_) == 3 and net.restarts_.kept.sum() == 1 and net.restarts_.cost[net.restarts_.kept].item() == net.cost_
    assert net.cost_ <= net.restarts_.cost.min() + 2 / 6000
    for method in ("bootstrap", "ensemble", "both"):
        bands = net.uncertainty(toy.X, n_bootstrap=3, method=method, random_state=0)
        low, high = bands.alpha(1, [-1.0, 1.0])
        assert (low <= high).all() and np.isfinite(bands.to_frame().se).all() and (bands.to_frame().se > 0).all()


def test_inputs_are_standardised(toy):
    scaled = InClassNet(**QUICK).fit(toy.X * [1e6, 1e-6] + [1e7, 0])
    plain = InClassNet(**QUICK).fit(toy.X)
    assert np.allclose(scaled.weights_, plain.weights_, atol=0.01) and np.isclose(scaled.cost_, plain.cost_, atol=1e-3)


# ---------------------------------------------------------------- prior knowledge


def test_known_densities_of_one_component_only(toy):
    pdf = norm(-1, 1.5).pdf
    net = InClassNet(known_components=[[pdf, None], None], n_epochs=15, floor=None, random_state=0).fit(toy.X)
    x = np.linspace(-3, 3, 7)
    assert np.allclose(net.component_pdf(0, x)[:, 0], pdf(x), rtol=0.25) and np.abs(net.weights_ - [0.4, 0.6]).max() < 0.1


def test_known_weights_and_regularisers_of_either_sign(toy):
    fit = lambda **more: InClassNet(n_restarts=1, n_epochs=10, floor=None, random_state=0, **more).fit(toy.X)
    assert np.allclose(fit(known_weights=[0.2, 0.8], weight_penalty=20.0).weights_, [0.2, 0.8], atol=0.02)
    for kind in ("tikhonov", "neg_shannon"):
        even, uneven = (np.ptp(fit(regulariser=kind, regulariser_strength=s).weights_) for s in (5.0, -0.02))
        assert even < 0.05 and uneven > even


def test_noisy_labels_name_the_components_and_lead_out_of_a_bad_minimum():
    X, kind = three_kinds(3000)
    rng = np.random.default_rng(1)
    noisy = np.where(rng.random(3000) < 0.4, (kind + rng.integers(1, 3, 3000)) % 3, kind)
    net = InClassNet(3, label_noise=0.4, n_epochs=20, floor=None, random_state=0).fit(X, np.where(np.arange(3000) < 300, noisy, -1))
    assert (net.predict(X) == kind).mean() > 0.98 and (noisy == kind).mean() < 0.65
    assert np.abs(net.weights_ - np.bincount(kind) / 3000).max() < 0.02


def test_an_even_weight_penalty_leads_out_of_a_minimum_with_an_empty_component():
    X, _ = three_kinds(2000)
    rows = Rows(stack_variates([X[:, [v]] for v in range(3)])[0])
    def ended(**penalty):
        nets = Networks([1, 1, 1], 3, generator=generator())
        with torch.no_grad():
            nets.biases[-1][..., 2] = -14                        # nearly dead
        train(nets, rows, 300, 500, generator=generator(), revive=False, cost=lambda b, batch: costs.neg_ctc_cost(b, **penalty))
        return evaluate(nets, rows).weights.min()
    assert ended() < 0.1 < ended(regulariser="tikhonov", regulariser_strength=1.0)


# ---------------------------------------------------------------- verdict


@pytest.mark.parametrize("example, verdict", [(make_two_gaussians(20_000, 0).X, "converged"), (make_correlated(20_000, 0.5, random_state=0)[0], "stuck above the floor"),
                                              (make_slopes(20_000, slope=0.9, random_state=0).X, "not identifiable: w1 in [")])
def test_the_verdict_is_plain(example, verdict):
    assert InClassNet(random_state=0).fit(example).verdict_.startswith(verdict)


# ---------------------------------------------------------------- streams


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    example = make_two_gaussians(200_500, random_state=3)
    X = example.X.copy()
    X[::4, 0] = np.nan
    path = tmp_path_factory.mktemp("stream")
    np.save(path / "gaps.npy", X)
    np.save(path / "full.npy", example.X)
    return path, example, X


def test_a_file_with_missing_variates_and_labels(file):
    path, example, X = file
    labels = np.where(np.arange(len(X)) % 100 == 1, example.component, -1)
    rows = np.load(path / "gaps.npy", mmap_mode="r")
    disk = InClassNet(n_epochs=1, n_restarts=1, floor=None, random_state=0).fit(rows, labels)
    assert np.allclose(disk.data_.centre[0], np.nanmean(X[:, 0])) and np.allclose(disk.data_.scale[0], np.nanstd(X[:, 0]))
    assert (disk.predict(X[1:9000:2]) == example.component[1:9000:2]).mean() > 0.75      # labels name the components
    assert np.abs(disk.weights_ - [0.4, 0.6]).max() < 0.06
    part = X[:3000]
    assert np.allclose(disk.alpha(part)[::4, 0], disk.weights_)
    whole = disk.data_.inputs([X[:, [0]], X[:, [1]]], evidence=costs.label_evidence(labels, 2))
    assert np.isclose(evaluate(disk.networks_.keep([0]).float(), whole).cost[0], disk.cost_, atol=1e-5)


def test_a_loader_with_missing_variates(file):
    _, example, X = file
    data = torch.utils.data.TensorDataset(torch.from_numpy(X[:20_000]))
    net = InClassNet(n_epochs=5, floor=None, random_state=0).fit(torch.utils.data.DataLoader(data, batch_size=500, shuffle=True, generator=generator()))
    assert np.abs(np.sort(net.weights_) - [0.4, 0.6]).max() < 0.1 and np.allclose(net.data_.centre[0], np.nanmean(X[:20_000, 0]), atol=1e-6)


def test_streams_refuse_what_they_cannot_use(file, toy):
    path, example, X = file
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(toy.X)), batch_size=500)
    with pytest.raises(ValueError, match="for a loader labels and sample_weight"):
        InClassNet(**QUICK).fit(loader, toy.component)
    empty = toy.X.copy()
    empty[700] = np.nan
    with pytest.raises(ValueError, match="row 700 of the stream has no known variate"):
        InClassNet(**QUICK).fit(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(empty)), batch_size=500))
    empty[700] = np.inf
    with pytest.raises(ValueError, match="infinite values"):
        InClassNet(**QUICK).fit(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(empty)), batch_size=500))
    with pytest.raises(ValueError, match=r"y has shape \(10,\) and X has 200500 rows"):
        InClassNet(**QUICK).fit(np.load(path / "full.npy", mmap_mode="r"), np.zeros(10, int))


def test_the_stored_stream_of_ten_million_rows_stays_below_four_gigabytes():
    disk = pd.read_csv(RESULTS / "inclass.csv").query("case == 'rows on disk'")
    assert disk.n_rows.item() == 10_000_000 and disk.peak_gib.item() * 1.0737 <= 4 and disk.error.item() < 0.025


# ---------------------------------------------------------------- rows counted in cells


def test_cells_of_few_values_are_the_rows_with_weights_too():
    x = torch.randint(0, 5, (2, 700, 1), generator=generator(1)).float()
    weight = torch.rand(700, generator=generator(2))
    nets = Networks([1, 1], 3, n_restarts=2, generator=generator(3)).double()
    cells = count_rows(Rows(x, weight), x, 20)
    with torch.no_grad():
        assert torch.allclose(cells.cost(nets), costs.neg_ctc_cost(nets(x.double()), weight.double()), atol=1e-6)
    halves = Rows(x)
    halves.chunks = lambda: iter([Rows(x[:, :300], weight[:300]), Rows(x[:, 300:], weight[300:])])
    again = count_rows(halves, x, 20)
    assert torch.allclose(cells.share, again.share) and torch.equal(cells.numbers, again.numbers) and torch.allclose(cells.x, again.x)


def test_polish_never_ends_above_where_it_began_and_touches_no_other_restart():
    example = make_trivariate(20_000, random_state=0)
    rows = Rows(stack_variates([example.X[:, [v]] for v in range(3)])[0])
    nets, cells = Networks([1] * 3, 4, n_restarts=2, generator=generator()), count_rows(rows, rows.x, 15)
    with torch.no_grad():
        before, other = cells.cost(nets.double()), nets.keep([1])
    nets.float()
    reached = polish(nets, cells, 20)
    with torch.no_grad():
        after = cells.cost(nets.double())
    assert (after < before).all() and np.allclose(reached, after, atol=1e-6)
    alone = other.float()
    polish(alone, cells, 20)
    with torch.no_grad():
        assert torch.allclose(cells.cost(alone.double())[0], after[1], atol=1e-4)


def test_when_rows_are_counted(toy):
    reasons = {"one column": (InClassNet(variates=[[0], [1, 2]]), np.column_stack([toy.X, toy.X[::-1, 0]])), "regularisers": (InClassNet(regulariser="tikhonov"), toy.X),
               "modules of your own": (InClassNet(networks=nn.Linear(1, 2)), toy.X), "missing": (InClassNet(), np.where(np.arange(12_000).reshape(-1, 2) == 4, np.nan, toy.X)),
               "neg_ctc": (InClassNet(cost="neg_mi"), toy.X)}
    for words, (net, X) in reasons.items():
        assert words in why_no_cells(net, read_data(net, X))
        with pytest.raises(ValueError, match="polish = True, and rows cannot be counted"):
            net.set_params(polish=True).fit(X)
    assert why_no_cells(InClassNet(), read_data(InClassNet(), toy.X)) is None
    assert make_plan(1_000_000, cells=True).n_steps < make_plan(1_000_000).n_steps
    polished, plain = (InClassNet(polish=p, floor=None, random_state=0).fit(toy.X) for p in (True, False))
    assert polished.cost_ < plain.cost_ and polished.history_.cycle.max() > plain.history_.cycle.max()
    with pytest.raises(ValueError, match="polish = 'yes'"):
        InClassNet(polish="yes").fit(toy.X)


# ---------------------------------------------------------------- bad input: what is wrong, and what to try

WRONG = {
    "V = 1": (InClassNet(), lambda X: X[:, :1], "never identifies components. Give at least two variates"),
    "C = 1": (InClassNet(1), lambda X: X, "one component means independent variates.*Take 2 or more"),
    "overlap": (InClassNet(variates=[[0], [0, 1]]), lambda X: X, "belongs to two variates.*or use cost='neg_tc'"),
    "fewer rows than the batch": (InClassNet(batch_size=500), lambda X: X[:100], "batch_size = 500 and X has 100 rows; take a smaller batch"),
    "constant": (InClassNet(), lambda X: np.column_stack([X[:, 0], np.ones(len(X))]), "single value 1.0.*Leave it out"),
    "dependent": (InClassNet(), lambda X: np.column_stack([X[:, 0], np.exp(X[:, 0])]), "determine each other.*Put them into one variate"),
    "NaN": (InClassNet(), lambda X: np.where(np.arange(len(X))[:, None] == 7, np.nan, X), "row 7 has no known variate.*leave out such rows"),
    "class counts": (InClassNet([2, 3]), lambda X: X, r"n_components = \[2, 3\].*need cost='neg_tc'"),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_bad_input_says_what_to_try(toy, case):
    net, change, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        net.fit(change(toy.X))


@pytest.mark.parametrize("case", ["V = 1", "constant", "dependent", "NaN"])
def test_bad_lists_are_refused_like_bad_tables(toy, case):
    net, change, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        net.fit([column[:, None] for column in change(toy.X).T])


def test_bands_of_a_polished_fit_are_polished_too(toy):
    net = InClassNet(polish=True, n_restarts=1, hidden=(8,), floor=None, random_state=0).fit(toy.X[:2000])
    rows = net.data_.inputs([toy.X[:2000, [0]], toy.X[:2000, [1]]])
    for method in ("bootstrap", "ensemble"):
        bands = net.uncertainty(toy.X[:2000], n_bootstrap=3, method=method, random_state=0)
        reached = [costs.joint_terms(f(rows), phi) for f, phi, _ in bands.networks]
        value = [-torch.logsumexp(torch.from_numpy(terms), -1).mean().item() for terms in reached]
        assert np.ptp(bands.weights[:, 0]) > 0 and np.allclose(value, net.cost_, atol=0.015), value   # of 2,000 rows
