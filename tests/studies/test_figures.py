"""What the figures draw: every seed, true proportions, and styles that can be told apart."""

import colorsys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from medattn.studies.figure_examples import class_colors, example_figure
from medattn.studies.figure_style import arm_styles
from medattn.studies.figures import anisotropy, difference_figure, score_figure, spacing_figure, wrap
from medattn.studies.study_files import Slice, Study, read_slice, read_study
from medattn.studies.summary import merged_dice
from tests.studies.synthetic import make_plan, write_study


@pytest.fixture(scope="module", params=[2, 3])
def study(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("figures") / "study"
    return read_study(write_study(folder, seeds=range(request.param)))


def drawn_points(axes: Axes, markers: str) -> list[float]:
    """x of everything drawn with one of ``markers`` inside the axes."""
    low, high = axes.get_xlim()
    xs = [float(x) for line in axes.lines if line.get_marker() in tuple(markers) for x in line.get_xdata()]
    return [x for x in xs if low <= x <= high]


def test_every_seed_of_every_arm_and_evaluation_is_a_point(study: Study) -> None:
    (axes,) = score_figure(study, merged_dice(study.results), "merged Dice").axes
    drawn = drawn_points(axes, "os^DvPX")
    assert len(drawn) == 5 * 7 * len(study.seeds)
    wanted = [value for (arm, _), scores in merged_dice(study.results).by_seed.items() for value in scores.values()
              if not arm.startswith("lookup")]  # fmt: skip
    assert sorted(drawn) == pytest.approx(sorted(wanted))


def test_every_paired_difference_is_a_point_and_intervals_need_three_seeds(study: Study) -> None:
    figure = difference_figure(study, merged_dice(study.results))
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert len(panels) == 4
    for axes in panels:
        assert len(drawn_points(axes, "os^DvPX")) == 7 * len(study.seeds)
        intervals = [line for line in axes.lines if line.get_marker() == "None" and len(set(line.get_xdata())) == 2]
        assert len(intervals) == (7 if len(study.seeds) >= 3 else 0)


def test_spacing_is_drawn_over_undisturbed_scans_only(study: Study) -> None:
    figure = spacing_figure(study, merged_dice(study.results))
    assert figure is not None
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["isotropic", "axis k stretched", "axis i stretched"]
    ticks = [[label.get_text() for label in axes.get_xticklabels()] for axes in figure.axes]
    assert ticks == [["4.5", "8"], ["1", "3"], ["1", "3"]]


@pytest.mark.parametrize(
    ("spacing", "expected"),
    [((1, 1, 1), (1.0, "i and j and k")), ((4, 4, 12), (3.0, "k")), ((2, 2, 1), (2.0, "i and j"))],
)
def test_anisotropy(spacing: tuple[float, float, float], expected: tuple[float, str]) -> None:
    assert anisotropy({"spacing_mm": spacing}) == expected


def test_examples_keep_true_proportions_and_say_what_is_missing(study: Study) -> None:
    example = read_slice(study.folder, study.runs[0], "slices_z")
    assert example is not None
    figure = example_figure(study.plan["classes"], {"index": example, "mm": None})
    assert figure is not None
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["image", "truth", "index", "mm"]
    assert [axes.get_aspect() for axes in figure.axes[:3]] == [3.0] * 3
    assert [text.get_text() for text in figure.axes[3].texts] == ["no example\n(see Failures)"]


def test_the_overlay_has_the_labels_colours_and_numbers() -> None:
    classes = [{"label": 1, "name": "liver", "pair": None}, {"label": 2, "name": "spleen", "pair": None}]
    truth = np.zeros((6, 6), np.uint8)
    truth[:3] = 2
    figure = example_figure(classes, {"mm": Slice(np.zeros((6, 6), np.float32), truth, truth * 0, 1.0)})
    assert figure is not None
    overlay = np.asarray(figure.axes[1].images[1].get_array())
    assert tuple(overlay[0, 0, :3]) == pytest.approx(class_colors(classes)[2])
    assert overlay[5, 5, 3] == 0
    assert [text.get_text() for text in figure.axes[1].texts] == ["2"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["2 spleen"]


def test_no_slice_gives_no_figure() -> None:
    assert example_figure([], {"mm": None}) is None


def test_sides_share_a_hue_and_differ_in_lightness() -> None:
    classes = make_plan([0])["classes"]
    colors = class_colors(classes)
    assert len(set(colors.values())) == 15
    for left, right in ((4, 5), (6, 7), (8, 9), (10, 11), (12, 13), (14, 15)):
        (hue_left, light_left, _), (hue_right, light_right, _) = (
            colorsys.rgb_to_hls(*colors[n]) for n in (left, right)
        )
        assert hue_left == pytest.approx(hue_right, abs=0.01)
        assert light_left - light_right > 0.25


def test_thirty_arms_have_thirty_looks() -> None:
    assert len(set(arm_styles([str(n) for n in range(30)]).values())) == 30


def test_lines_break_outside_parentheses() -> None:
    assert wrap("1:3 along S (4 x 4 x 12 mm)", 22) == "1:3 along S\n(4 x 4 x 12 mm)"
    assert wrap("short", 22) == "short"


def test_a_slice_without_its_aspect_is_none(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", arms=("mm",))
    run = read_study(folder).runs[0]
    assert read_slice(folder, run, "iso_8") is not None
    assert read_slice(folder, run, "unknown") is None
