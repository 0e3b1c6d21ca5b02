import pytest
import torch

from medattn.studies.build import build_data, build_model, build_sampler, build_subject
from medattn.studies.training import learning_rate, train
from medattn.studies.worker import initial_weights_digest
from tests.studies.tiny import tiny_arms, tiny_run


@pytest.fixture(scope="module")
def data():
    config = tiny_run().config
    subject, _ = build_subject(config["data"])
    return build_data(subject, config)


class Killed(Exception):
    pass


def trained(data, path, run, stop_at=None, on_step=lambda step, loss: None):
    def step_and_stop(step, loss):
        on_step(step, loss)
        if step == stop_at:
            raise Killed

    model = build_model(run.config, len(data.class_names) + 1, run.seed)
    sampler = build_sampler(run.config["task"])
    progress = train(model, sampler, data.training, run.config, run.seed, path, step_and_stop)
    return model, progress


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("killed_at", [1, 3, 5])
def test_a_killed_run_continues_bit_for_bit(data, tmp_path, killed_at, dropout):
    run = tiny_run(f"model.dropout={dropout}", f"model.attention_dropout={dropout}")
    straight, whole = trained(data, tmp_path / "a.pt", run)
    with pytest.raises(Killed):
        trained(data, tmp_path / "b.pt", run, stop_at=killed_at)
    steps = []
    continued, rest = trained(data, tmp_path / "b.pt", run, on_step=lambda step, loss: steps.append(step))
    assert steps[0] == killed_at // 2 * 2 + 1  # from the last checkpoint, not from the start
    assert (whole.loss, whole.data_digest) == (rest.loss, rest.data_digest)
    for name, value in straight.state_dict().items():
        assert torch.equal(value, continued.state_dict()[name]), name


def test_arms_share_initial_weights_and_data_and_seeds_do_not(data, tmp_path):
    plain, token = (arm.config for arm in tiny_arms())
    assert initial_weights_digest(build_model(plain, 16, 0)) == initial_weights_digest(build_model(token, 16, 0))
    assert initial_weights_digest(build_model(plain, 16, 0)) != initial_weights_digest(build_model(plain, 16, 1))
    digests = {
        trained(data, tmp_path / f"{arm}{seed}.pt", tiny_run("train.steps=2", seed=seed))[1].data_digest
        for arm in ("x", "y")
        for seed in (0, 1)
    }
    assert len(digests) == 2


def test_training_lowers_the_loss(data, tmp_path):
    losses = []
    run = tiny_run("train.steps=40", "train.checkpoint_every=100")
    trained(data, tmp_path / "c.pt", run, on_step=lambda step, loss: losses.append(loss))
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_a_loss_that_is_not_finite_stops_the_run_and_says_what_to_do(data, tmp_path):
    run = tiny_run("train.learning_rate=1e30", "train.warmup_steps=0", "train.steps=20")
    with pytest.raises(FloatingPointError, match="lower train.learning_rate"):
        trained(data, tmp_path / "d.pt", run)


def test_learning_rate_warms_up_then_falls_to_its_last_fraction():
    settings = {"learning_rate": 2.0, "warmup_steps": 4, "steps": 14, "final_lr_fraction": 0.1}
    rates = [learning_rate(step, settings) for step in range(14)]
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0]
    assert rates[4] == pytest.approx(2.0)
    assert rates[13] == pytest.approx(0.2)
    assert all(a > b for a, b in zip(rates[4:], rates[5:], strict=False))
