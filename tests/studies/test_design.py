from medattn.studies.design import describe_design
from medattn.studies.plan import study_settings
from tests.studies.tiny import composed


def test_the_design_is_told_from_the_config_and_follows_it():
    text = " ".join(describe_design(study_settings(composed())))
    for part in (
        "(torso_phantom) was acquired on 3 training grids: isotropic 11 to 14 mm with 12 to 12.5 held out, 67% of them",
        "trained 6 steps of 2 crops of 16 voxels a side",
        "noise of up to 20 HU was added and contrast changed by up to 5%",
        "moved by up to 40 mm along each axis and the told spacing changed by up to 10%",
        "Each evaluation has 1 cases",
        "calibrated: on a grid of 4.5 mm they compute the same function from the same parameters",
        "(wavelengths 16 to 500 mm)",
    ):
        assert part in text
    changed = " ".join(describe_design(study_settings(composed("task.jitter_shift_mm=7", "encoding=none"))))
    assert "moved by up to 7 mm" in changed and "calibrated" not in changed
