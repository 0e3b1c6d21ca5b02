import pytest
import torch

from medattn import VoxelGrid
from medattn.studies import training
from medattn.studies.build import build_data, build_model, build_sampler, build_subject
from medattn.studies.training import batch_loss, learning_rate, train
from medattn.studies.worker import initial_weights_digest
from medattn.tasks.sampling import Example
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


def example_told_elsewhere():
    """A crop whose told grid, whole volume and origin are all different."""
    whole = VoxelGrid.from_spacing((20, 20, 20), 5.0)
    told = whole.crop((4, 4, 4), (12, 12, 12))
    origin = torch.tensor([30.0, -20.0, 10.0], dtype=torch.float64)
    return Example(torch.zeros(1, 8, 8, 8), torch.zeros(1, 8, 8, 8, dtype=torch.int64), told, whole, origin)


def test_training_tells_the_model_the_crop_the_whole_volume_and_the_origin():
    seen = []

    def model(images, grids, references, origins_mm):
        seen.extend(zip(images, grids, references, origins_mm, strict=True))
        return [torch.zeros(3, *image.shape[1:]) for image in images]

    example = example_told_elsewhere()
    batch_loss(model, [example], lambda scores, truth: scores.sum())
    (image, grid, reference, origin), *others = seen
    assert not others
    assert image is example.image and grid is example.told
    assert reference is example.reference and origin is example.origin_mm


def test_the_loss_takes_the_voxels_of_crops_of_any_size_as_one_set():
    whole, part = example_told_elsewhere(), example_told_elsewhere()
    part = Example(part.image[:, :4], part.labels[:, :4] + 1, part.told.crop((0, 0, 0), (4, 8, 8)), *[None] * 2)

    def model(images, *args, **kwargs):
        return [torch.full((3, *image.shape[1:]), float(n)) for n, image in enumerate(images)]

    def count(scores, truth):
        assert scores.shape == (1, 3, 512 + 256) and truth.shape == (1, 1, 512 + 256)
        assert truth[0, 0].tolist() == [0] * 512 + [1] * 256
        assert scores[0, 0].tolist() == [0.0] * 512 + [1.0] * 256
        return scores.sum()

    assert batch_loss(model, [whole, part], count) == 3 * 256


@pytest.mark.parametrize(
    ("override", "differs"),
    [("train.clip_norm=1e-3", True), ("train.clip_norm=1e6", False), ("train.betas=[0.5,0.5]", True)],
)
def test_settings_of_the_optimizer_have_an_effect(data, tmp_path, override, differs):
    plain = trained(data, tmp_path / "a.pt", tiny_run("train.clip_norm=1e5"))[1].loss
    changed = trained(data, tmp_path / "b.pt", tiny_run("train.clip_norm=1e5", override))[1].loss
    assert (plain != changed) == differs


def test_dropout_draws_depend_on_the_seed_and_the_step(data, tmp_path, monkeypatch):
    model, seeds = build_model(tiny_run().config, 16, 0), []
    monkeypatch.setattr(training.torch, "manual_seed", seeds.append)
    for seed in (0, 1):
        run = tiny_run(seed=seed)
        sampler = build_sampler(run.config["task"])
        train(model, sampler, data.training, run.config, seed, tmp_path / f"{seed}.pt", lambda step, loss: None)
    assert len(seeds) == len(set(seeds)) == 2 * run.config["train"]["steps"]


def test_model_settings_reach_the_model():
    config = tiny_run("model.dropout=0.3", "model.attention_dropout=0.4", "model.reference_spacing_mm=7").config
    encoder = build_model(config, 16, 0).encoder
    assert encoder.blocks[0].dropout == 0.3
    assert encoder.blocks[0].attention.dropout == 0.4
    assert encoder.spacing_token.reference_spacing_mm == 7.0
