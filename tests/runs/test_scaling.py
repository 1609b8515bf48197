"""What a scaling study makes of the throughput of its jobs."""

from __future__ import annotations

import json

import pytest

from hpclaunch.runs import registry
from hpclaunch.runs.groups import Element, Group
from hpclaunch.runs.scaling import Scaling, Size, measure
from hpclaunch.schedulers.job import State

NODES = (2, 4, 8, 32)


def compared(rates: dict[int, float], weak: bool = False, **prices: float) -> Scaling:
    sizes = [Size(nodes=n, ranks=n, job="", samples_per_second=rate, epoch_price=prices.get(f"on_{n}"))
             for n, rate in rates.items()]  # fmt: skip
    study = Scaling(id="", place="site queue", weak=weak, date="2026-01-31", sizes=sizes)
    study.compare()
    return study


@pytest.mark.parametrize("serial", [0, 0.015, 0.4, 1])
@pytest.mark.parametrize("weak", [False, True])
def test_the_law_that_made_the_data_is_found(serial, weak):
    """Data that follow Amdahl's or Gustafson's law give its serial fraction, and the law gives the data."""
    gains = {n: n / 2 - serial * (n / 2 - 1) if weak else 1 / (serial + (1 - serial) * 2 / n) for n in NODES}
    study = compared({n: 300 * gain for n, gain in reversed(gains.items())}, weak)
    assert study.serial_fraction == pytest.approx(serial)
    assert [size.nodes for size in study.sizes] == [*NODES]
    for size in study.sizes:
        assert size.speed_up == pytest.approx(gains[size.nodes]) == pytest.approx(study.fitted(size.nodes / 2))
        assert size.efficiency == pytest.approx(2 * gains[size.nodes] / size.nodes)


def test_the_fit_has_the_least_squares():
    """No other serial fraction is nearer to data that follow no law; one below 0 is none."""
    study = compared({1: 100, 2: 170, 4: 330, 8: 500})

    def squares(serial: float) -> float:
        return sum((serial + (1 - serial) / n.nodes - 1 / n.speed_up) ** 2 for n in study.sizes)

    best = study.serial_fraction
    assert squares(best) < min(squares(best - 1e-3), squares(best + 1e-3))
    assert compared({1: 100, 2: 210}).serial_fraction == 0


def test_one_size_has_no_fit():
    """A single size is its own measure: speed-up 1, efficiency 1, no law."""
    study = compared({4: 100})
    assert (study.sizes[0].speed_up, study.sizes[0].efficiency, study.serial_fraction) == (1, 1, None)
    assert study.caption == "site queue, strong scaling, 2026-01-31"


def test_the_choice_is_within_80_percent():
    """The cheapest size is that of the lowest price of an epoch, the fastest that of most samples/s."""
    rates = {1: 100, 2: 190, 4: 330, 8: 500}
    assert compared(rates).choice == {"cheapest": 1, "fastest": 4}
    assert compared(rates, on_1=3, on_2=2.5, on_4=4, on_8=1).choice == {"cheapest": 2, "fastest": 4}


def measured(tmp_path, files: dict[str, str], state: str = "COMPLETED", metric: str = "") -> Scaling:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    known = {"id": "7", "site": "here", "scheduler": "local", "job_name": "n", "folder": str(tmp_path)}
    run = registry.Run(**known, submitted=0, partition="queue", nodes=2, tasks_per_node=4)
    about = {"weak": False, "metric": metric}
    group = Group(id="scale-1", kind="scale", site="here", submitted=0, elements=[], about=about)
    return measure.results(group, [run], {("here", "7"): State(state)})


@pytest.mark.parametrize(
    "metrics",
    [
        {"samples_per_second": 250, "loss": 3},
        {"train_samples_per_second": 250, "eval_samples_per_second": 900},
        {"train|device/samples_per_sec": 31, "train|samples_per_sec": 250, "train|batches_per_sec": 7},
        {"val/img/s": 1, "train/img/s": 250},
        {"throughput": 250, "test throughput": "none"},
    ],
)
def test_throughput_is_known_by_its_name(tmp_path, metrics):
    """Samples/s are found by the names that programs give them: in training, of all ranks."""
    (size,) = measured(tmp_path, {"metrics.json": json.dumps(metrics)}).sizes
    assert (size.samples_per_second, size.ranks, size.nodes) == (250, 8, 2)


def test_an_epoch_has_its_time_and_price(tmp_path):
    """The time of an epoch comes from the metrics, or from the samples in it; its price from that of the job."""
    plan = {"cost": {"amount": 30, "unit": "SU"}, "seconds": 1800, "max_attempts": 2}
    files = {"plan.json": json.dumps(plan), "packages.txt": "numpy==2\ntorch==2.9.0+cpu\n"}
    study = measured(tmp_path, files | {"metrics.json": '{"samples/s": 10, "samples_per_epoch": 1200}'})
    assert (study.sizes[0].epoch_seconds, study.sizes[0].epoch_price, study.unit) == (120, 1, "SU")
    assert study.versions == {"torch": "2.9.0+cpu"}
    study = measured(tmp_path, {"metrics.json": '{"samples/s": 10, "epoch_seconds": 60}'})
    assert (study.sizes[0].epoch_seconds, study.sizes[0].epoch_price) == (60, 0.5)


def test_spare_nodes_do_not_count(tmp_path):
    """The nodes of a size are those that were named, with which the job trained; a number of no sense is none."""
    (tmp_path / "metrics.json").write_text(json.dumps({"samples/s": 250}))
    known = {"id": "7", "site": "here", "scheduler": "local", "job_name": "n", "folder": str(tmp_path)}
    run = registry.Run(**known, submitted=0, nodes=3, tasks_per_node=4)
    elements = [Element(2, {"nodes": 2}, ["7"])]
    group = Group(
        id="s", kind="scale", site="here", submitted=0, elements=elements, about={"weak": False, "metric": ""}
    )
    (size,) = measure.results(group, [run], {("here", "7"): State("COMPLETED")}).sizes
    assert (size.nodes, size.ranks) == (2, 8)
    (tmp_path / "metrics.json").write_text(f'{{"samples/s": {"9" * 400}}}')
    assert measure.results(group, [run], {("here", "7"): State("COMPLETED")}).sizes == []


def test_an_expression_reads_the_log(tmp_path):
    """The median of the last half of what the expression's group finds in rank 0's log counts, metrics or not."""
    log = "".join(f"step {i}: {rate} img/s\n" for i, rate in enumerate(["9", "8", "1,000.5", "1e3", "1,001", "nan"]))
    files = {"rank-0.log": "hello\n", "rank-0.err": log, "rank-1.err": "5 img/s", "metrics.json": '{"samples/s": 1}'}
    (size,) = measured(tmp_path, files, metric=r": (\S+) img/s$").sizes
    assert size.samples_per_second == 1000.5


@pytest.mark.parametrize(
    ("metrics", "state", "metric", "reason"),
    [
        ({"samples/s": 9}, "FAILED", "", "2 nodes: FAILED"),
        ({"samples/s": 9}, "RUNNING", "", "2 nodes: RUNNING"),
        ({"loss": 9, "samples/s": "fast"}, "COMPLETED", "", "2 nodes: no samples/s in its metrics; use --metric"),
        ({"samples/s": 9}, "COMPLETED", "(x)", "2 nodes: rank 0's log has no number by '(x)'"),
    ],
)
def test_a_job_that_measured_nothing_is_left_out(tmp_path, metrics, state, metric, reason):
    """A job that failed, that still runs or that tells no throughput is named with the reason."""
    study = measured(tmp_path, {"metrics.json": json.dumps(metrics)}, state, metric)
    assert (study.left_out, study.sizes, study.serial_fraction) == ({"7": reason}, [], None)
