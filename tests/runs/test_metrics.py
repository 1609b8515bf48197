"""What a run's program measured."""

import json
import os

from hpclaunch.runs.metrics import read


def test_metrics_json_is_read(tmp_path):
    """The numbers and words of metrics.json count, and nothing else of it; a metrics.csv beside it does not."""
    (tmp_path / "metrics.json").write_text(json.dumps({"loss": 0.5, "gpu": "A100", "per class": [1, 2]}))
    (tmp_path / "metrics.csv").write_text("loss\n1\n")
    assert read(tmp_path) == {"loss": 0.5, "gpu": "A100"}


def test_the_newest_csv_of_lightning_is_read(tmp_path):
    """Without it, the last value of each column counts: Lightning writes training and validation apart."""
    texts = {"old": "loss\n9\n", "new": "epoch,loss,val loss\n0,2.5,\n0,,2\n1,1.5,\n1,,word\n"}
    for i, (version, text) in enumerate(texts.items()):
        path = tmp_path / "lightning_logs/train" / version / "metrics.csv"
        path.parent.mkdir(parents=True)
        path.write_text(text)
        os.utime(path, (i, i))
    assert read(tmp_path) == {"epoch": 1, "loss": 1.5, "val loss": "word"}


def test_a_csv_of_the_code_is_not_the_runs(tmp_path):
    """One that is older than the run came with the copy of its code."""
    (tmp_path / "run.json").touch()
    for name, at in (("code/metrics.csv", 1), ("metrics.csv", 1 << 32)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("loss\n0.5\n")
        os.utime(tmp_path / name, (at, at))
    assert read(tmp_path) == {"loss": 0.5}
    (tmp_path / "metrics.csv").unlink()
    assert read(tmp_path) == {}


def test_what_no_json_can_have_is_text(tmp_path):
    """NaN, Infinity and half of a character are words."""
    (tmp_path / "metrics.json").write_text('{"loss": NaN, "best": -Infinity, "done": true, "name": "a\\ud800"}')
    assert read(tmp_path) == {"loss": "NaN", "best": "-Infinity", "name": "a?"}


def test_no_metrics_are_no_error(tmp_path):
    """A run without metrics, or with a file that cannot be read, has none; nor has a folder that is gone."""
    assert read(tmp_path) == read(tmp_path / "gone") == {}
    for text in ("[1]", "{", '"word"', "[" * 100_000):
        (tmp_path / "metrics.json").write_text(text)
        assert read(tmp_path) == {}
