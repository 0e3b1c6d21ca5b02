import json
import os
import subprocess
import sys
import time
import warnings
from importlib import metadata
from pathlib import Path

import pandas as pd
import pytest
from safetensors.torch import load_file

from medattn.studies import runner, store, worker
from medattn.studies.controls import check_controls
from tests.studies.paths import ROOT
from tests.studies.tiny import quiet, tiny_arms, tiny_settings

KEY = ["arm", "seed", "evaluation", "case", "class"]


def run(folder: Path, *overrides: str) -> tuple[Path, list[str]]:
    return runner.run_study(tiny_settings(folder, *overrides), tiny_arms(*overrides), quiet())


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return run(tmp_path_factory.mktemp("study"))


def test_the_table_has_one_row_per_arm_seed_evaluation_case_and_class(study):
    folder, failures = study
    assert failures == []
    table = pd.read_csv(folder / "results.csv")
    arms = table[table.kind == "arm"]
    assert len(arms) == 2 * 1 * 2 * 1 * 15
    assert not table.duplicated(KEY).any()
    assert set(table[table.kind == "baseline"].arm) == {"lookup", "lookup_exact"}
    assert arms.dice.between(0, 1).all() and arms.merged_dice.between(0, 1).all()
    header = table[table.evaluation == "wrong_header"]
    assert header.spacing_k_mm.unique().tolist() == [24.0]  # the true spacing, not the told one


def test_each_run_leaves_config_hash_versions_weights_and_parameters(study):
    folder, _ = study
    plan = json.loads((folder / "plan.json").read_text())
    for arm in plan["arms"]:
        home = folder / arm["run_dirs"]["0"]
        record = json.loads((home / "run.json").read_text())
        assert record["status"] == "finished" and record["config_hash"] == arm["config_hash"]
        assert record["versions"]["torch"] == metadata.version("torch")
        weights = load_file(home / "weights.safetensors")
        assert sum(value.numel() for value in weights.values()) == record["parameters"]
        assert f"config_hash: {arm['config_hash']}" in (home / "config.yaml").read_text()
        assert not (home / store.CHECKPOINT).exists()
        slices = load_file(home / "examples.safetensors")
        assert slices["iso_4_5/image"].shape == slices["iso_4_5/truth"].shape == slices["iso_4_5/prediction"].shape


def test_controls_hold_and_parameters_of_the_token_are_told(study):
    controls = json.loads((study[0] / "plan.json").read_text())["controls"]
    assert [value.split()[0].rstrip(":") for value in controls.values()] == ["yes", "yes", "yes", "yes", "yes", "no"]
    assert "none" in controls["same number of parameters in all"]


def test_controls_see_what_differs():
    base = {"status": "finished", "arm": "a", "seed": 0, "parameters": 5, "parameters_position": 0, "steps": 3}
    first = {**base, "initial_weights": "x", "data_digest": "d", "git_commit": "c", "versions": {"torch": "2"}}
    other = {**first, "arm": "b", "initial_weights": "y", "steps": 4, "git_commit": "e"}
    found = check_controls([first, other])
    assert found["same initial weights of the shared parts, seed by seed"] == "no: seeds [0] differ"
    assert found["same training data in the same order, seed by seed"] == "yes (2 runs, 1 seeds)"
    assert found["same number of steps"] == "no"
    assert found["same code (git commit) and packages"] == "no: runs were made at c, e"
    newer = {**first, "versions": {"torch": "3"}}
    assert check_controls([first, newer])["same code (git commit) and packages"].startswith("no: package versions")


def test_a_second_call_keeps_finished_runs(study, monkeypatch):
    folder, _ = study
    before = (folder / "results.csv").read_bytes()
    monkeypatch.setattr(worker, "execute", lambda *a: pytest.fail("a finished run was repeated"))
    assert run(folder.parent) == (folder, [])
    assert (folder / "results.csv").read_bytes() == before


def test_a_changed_config_gets_folders_of_its_own(study):
    folder, _ = study
    before = {path: path.stat().st_mtime_ns for path in folder.glob("arms/*/seed_0/results.csv")}
    run(folder.parent, "train.steps=7")
    after = {path: path.stat().st_mtime_ns for path in folder.glob("arms/*/seed_0/results.csv")}
    assert len(after) == 2 * len(before)
    assert all(after[path] == stamp for path, stamp in before.items())
    run(folder.parent)


def test_a_failed_run_is_recorded_the_others_go_on_and_the_next_call_repeats_it(tmp_path, monkeypatch):
    execute = worker.execute

    def fail_first(folder, study, run, *rest):
        if run.arm == "none":
            raise MemoryError("out of memory")
        execute(folder, study, run, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(worker, "execute", fail_first)
        folder, failures = run(tmp_path)
    assert failures == ["none, seed 0: MemoryError: out of memory"]
    record = next(json.loads(path.read_text()) for path in folder.glob("arms/none-*/seed_0/run.json"))
    assert record["status"] == "failed"
    assert "MemoryError" in (folder / record["failure_file"]).read_text()
    assert set(pd.read_csv(folder / "results.csv").query("kind == 'arm'").arm) == {"token"}
    assert run(tmp_path)[1] == []
    assert set(pd.read_csv(folder / "results.csv").query("kind == 'arm'").arm) == {"none", "token"}


def test_two_workers_give_the_table_of_one(study, tmp_path):
    folder, failures = run(tmp_path, "workers=2")
    assert failures == []
    one, two = (pd.read_csv(f / "results.csv").sort_values(KEY, ignore_index=True) for f in (study[0], folder))
    pd.testing.assert_frame_equal(one, two)


def test_an_arm_that_cannot_be_built_is_an_error_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match="head_dim >= 6"):
        run(tmp_path, "encoding=rotary_axial", "model.num_heads=12")
    assert not (tmp_path / "tiny" / "arms").exists()


def test_warnings_of_this_project_are_kept_and_others_are_not():
    from medattn.volumes import VolumeWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            warnings.warn("the header lies", VolumeWarning, stacklevel=1)
        warnings.warn("elsewhere", UserWarning, stacklevel=1)
    assert worker.own_warnings(caught) == ["the header lies"]


def test_a_killed_study_leaves_no_worker_behind_and_the_next_call_finishes_it(tmp_path):
    """kill -9 on the parent in the middle: its workers end too, and the second call gives the undisturbed table."""
    script = (
        "import sys; from tests.studies.test_runner import run; from pathlib import Path\n"
        "if __name__ == '__main__': run(Path(sys.argv[1]), 'workers=2', 'train.steps=400')\n"
    )
    (tmp_path / "study.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, str(tmp_path / "study.py"), str(tmp_path)], env=environment)
    checkpoints = "tiny/arms/*/seed_0/checkpoint.pt"
    wait_until(lambda: len(list(tmp_path.glob(checkpoints))) == 2 or process.poll() is not None)
    children = children_of(process.pid)
    process.kill()
    process.wait()
    assert len(children) >= 2
    wait_until(lambda: not any(is_running(child) for child in children))
    folder, failures = run(tmp_path, "workers=2", "train.steps=400")
    assert failures == []
    straight, _ = run(tmp_path / "straight", "train.steps=400")
    one, two = (pd.read_csv(f / "results.csv").sort_values(KEY, ignore_index=True) for f in (folder, straight))
    pd.testing.assert_frame_equal(one, two)


def wait_until(condition, seconds=60):
    for _ in range(10 * seconds):
        if condition():
            return
        time.sleep(0.1)
    pytest.fail("waited in vain")


def children_of(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in listed.stdout.split()]


def is_running(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


def test_a_worker_that_dies_fails_its_own_run_only(tmp_path):
    """One arm kills its process each time it runs; the others finish though they shared its pool."""
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from medattn.studies import worker\n"
        "execute = worker.execute\n"
        "def deadly(folder, study, run, *rest):\n"
        "    os.kill(os.getpid(), signal.SIGKILL) if run.arm == 'none' else execute(folder, study, run, *rest)\n"
        "worker.execute = deadly\n"
        "from tests.studies.test_runner import run\n"
        "if __name__ == '__main__': print(run(Path(sys.argv[1]), 'workers=2', 'seeds=[0,1]')[1])\n"
    )
    (tmp_path / "study.py").write_text(script)
    command = [sys.executable, str(tmp_path / "study.py"), str(tmp_path)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("none, seed") == 2 and "token" not in done.stdout
    table = pd.read_csv(tmp_path / "tiny" / "results.csv", keep_default_na=False).query("kind == 'arm'")
    assert {(row.arm, int(row.seed)) for row in table.itertuples()} == {("token", 0), ("token", 1)}
    digests = [
        json.loads(path.read_text())["initial_weights"] for path in tmp_path.glob("tiny/arms/token-*/*/run.json")
    ]
    assert len(set(digests)) == 2  # each seed has weights of its own
