import copy

import pytest

from medattn.studies.checks import AT_LEAST_1, FRACTIONS, NOT_NEGATIVE, POSITIVE, check_settings
from medattn.studies.plan import study_settings
from tests.studies.tiny import composed

BAD = {
    **dict.fromkeys(AT_LEAST_1, (0, "must be at least 1, got 0")),
    **dict.fromkeys(POSITIVE, (0.0, r"must be positive, got 0\.0")),
    **dict.fromkeys(NOT_NEGATIVE, (-1, "must be 0 or more, got -1")),
    **dict.fromkeys(FRACTIONS, (1.5, r"must be between 0 and 1, got 1\.5")),
    "train.learning_rate": (float("nan"), "must be positive, got nan"),
    "task.window_hu": ([350.0, -250.0], "must be two numbers"),
    "train.betas": ([0.9, 1.0], "must be two numbers"),
    "evaluation.stride": (17, "must not exceed evaluation.window, 16, got 17"),
    "evaluation.acquisitions": ({}, "must name at least one acquisition"),
    "evaluation.acquisitions.flipped.kind": ("upside_down", "must be one of in_range, .*, got 'upside_down'"),
    "data.profile": ("triangle", "must be one of box, gaussian, none, got 'triangle'"),
    "study": ("../elsewhere", "a name becomes a folder"),
    "report.comparisons": ([["mm", "inches"]], "must be pairs of none, index"),
}


@pytest.fixture(scope="module")
def settings():
    return study_settings(composed())


def test_the_shipped_settings_pass(settings):
    check_settings(settings)


@pytest.mark.parametrize("field", BAD)
def test_a_bad_value_is_named_with_its_requirement(settings, field):
    value, message = BAD[field]
    changed = copy.deepcopy(settings)
    *parents, last = field.split(".")
    place = changed
    for key in parents:
        place = place[key]
    place[last] = value
    with pytest.raises(ValueError, match=f"^{field}.*{message}"):
        check_settings(changed)
