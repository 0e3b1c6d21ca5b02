"""The torso's parts, in the order in which they are painted: place, size, tilt and HU.

A drawn torso, not a measured one: proportions of an adult, rounded to the millimetre. Parts given for the patient's
right (R positive) and ``paired`` have a mirror image on the left.
"""

from __future__ import annotations

from dataclasses import dataclass

from medattn.phantoms.ellipsoid import Point

FAT, MUSCLE, BONE, MARROW, FLUID, GAS, VESSEL = -100.0, 55.0, 500.0, 250.0, 10.0, -850.0, 150.0
LUNG, LIVER, SPLEEN, KIDNEY, BOWEL, DISC = -800.0, 60.0, 50.0, 140.0, 35.0, 80.0


@dataclass(frozen=True)
class Part:
    """One ellipsoid of the torso, or a mirrored pair of them.

    Attributes:
        organ: parts of one organ move and grow together; the label's name (without the side) if ``labelled``.
        tilt_deg: rotation about R, then A, then S.
    """

    organ: str
    hu: float
    center_mm: Point
    radii_mm: Point
    tilt_deg: Point = (0.0, 0.0, 0.0)
    paired: bool = False
    labelled: bool = False


def _organ(name: str, hu: float, center_mm: Point, radii_mm: Point, tilt_deg: Point = (0, 0, 0)) -> Part:
    return Part(name, hu, center_mm, radii_mm, tilt_deg, labelled=True)


def _twin(name: str, hu: float, center_mm: Point, radii_mm: Point, tilt_deg: Point = (0, 0, 0)) -> Part:
    return Part(name, hu, center_mm, radii_mm, tilt_deg, paired=True, labelled=True)


def _pair(name: str, hu: float, center_mm: Point, radii_mm: Point, tilt_deg: Point = (0, 0, 0)) -> Part:
    return Part(name, hu, center_mm, radii_mm, tilt_deg, paired=True)


_TRUNK = (
    Part("trunk", FAT, (0, 0, 0), (157, 112, 480)),
    _pair("trunk", FAT, (68, -55, -165), (88, 78, 100)),
    Part("trunk", MUSCLE, (0, 2, 0), (145, 98, 470)),
    # Tilted discs of bone: what the cavity leaves of them are the ribs.
    *(Part("trunk", BONE, (0, 2, z), (145, 97, 10), (-18, 0, 0)) for z in (55, 83, 111, 139, 167, 195)),
    Part("trunk", FAT, (0, 7, 0), (134, 85, 460)),
)

_BACK = (
    _twin("autochthon", MUSCLE, (31, -83, 20), (27, 20, 320)),
    _pair("quadratus", MUSCLE, (74, -60, -35), (22, 11, 55), (0, 0, 25)),
)

_CHEST = (
    Part("mediastinum", FAT, (0, 2, 165), (30, 62, 100)),
    _twin("lung", LUNG, (71, 0, 165), (55, 68, 118)),
    Part("heart", 130.0, (-8, 30, 152), (54, 42, 46), (0, 20, 0)),
    _pair("diaphragm", MUSCLE, (66, 6, 20), (68, 76, 76)),
    _pair("diaphragm", FAT, (66, 6, 15), (68.5, 76.5, 77)),
)

_UPPER_ABDOMEN = (
    _organ("liver", LIVER, (68, 4, 28), (58, 68, 58)),
    _organ("liver", LIVER, (90, 0, -14), (30, 44, 46)),
    _organ("liver", LIVER, (8, 36, 44), (58, 30, 30), (0, 18, 0)),
    Part("stomach", BOWEL, (-56, 28, 40), (42, 36, 40), (0, 25, 0)),
    Part("stomach", GAS, (-58, 44, 48), (26, 15, 20)),
    _organ("spleen", SPLEEN, (-97, -26, 40), (26, 40, 48), (0, -10, 15)),
    Part("gallbladder", FLUID, (62, 56, -14), (13, 15, 22)),
    Part("pancreas", 85.0, (-14, 12, 14), (54, 11, 12), (0, 12, 0)),
)

_PELVIS = (
    _twin("gluteus", MUSCLE, (72, -86, -138), (54, 22, 66), (0, 0, 30)),
    _twin("gluteus", MUSCLE, (112, -42, -100), (17, 46, 50), (0, 12, -32)),
    Part("sacrum", MARROW, (0, -62, -118), (46, 19, 50), (-18, 0, 0)),
    _twin("hip", BONE, (84, -32, -98), (9, 52, 52), (0, 14, -32)),
    _twin("hip", BONE, (94, -6, -152), (28, 28, 26)),
    Part("bladder", FLUID, (0, 22, -150), (38, 32, 28)),
)

_VERTEBRAE = tuple(float(z) for z in range(-76, 170, 30))

_SPINE = (
    Part("spine", DISC, (0, -46, 60), (22, 16, 300)),
    *(Part("spine", BONE, (0, -68, z), (38, 6, 6)) for z in _VERTEBRAE),
    *(Part("spine", BONE, (0, -86, z - 8), (4, 15, 9)) for z in _VERTEBRAE),
    Part("spine", FLUID, (0, -69, 60), (9, 7, 320)),
    *(Part("spine", MARROW, (0, -45, z), (24, 17, 14)) for z in _VERTEBRAE),
)

_RETROPERITONEUM = (
    _pair("kidney", FAT, (70, -40, -10), (33, 29, 58), (12, -8, 0)),
    _twin("kidney", KIDNEY, (70, -42, -10), (27, 24, 54), (12, -8, 20)),
    _pair("kidney", FAT, (53, -38, -10), (13, 8, 20), (12, -8, 20)),
    _twin("iliopsoas", MUSCLE, (33, -40, -20), (14, 17, 80), (4, -4, 0)),
    _twin("iliopsoas", MUSCLE, (58, -8, -120), (20, 20, 68), (22, -20, 0)),
    Part("cava", 110.0, (20, -16, 70), (12, 11, 190)),
    _organ("aorta", VESSEL, (-11, -17, 130), (12, 12, 210)),
    _pair("iliac vessels", VESSEL, (22, -4, -105), (7, 7, 48), (10, -22, 0)),
)

_BOWEL = (
    # Loops of small bowel: (centre, radii, tilt).
    *(
        Part("small bowel", BOWEL, center, radii, tilt)
        for center, radii, tilt in (
            ((44, 40, -58), (36, 20, 16), (0, 25, 20)),
            ((-44, 38, -52), (36, 21, 16), (0, -25, -15)),
            ((-6, 48, -86), (40, 20, 15), (10, 15, 0)),
            ((-58, 28, -92), (28, 20, 17), (0, 35, 25)),
            ((58, 34, -98), (28, 20, 16), (0, -30, 0)),
            ((0, 18, -56), (28, 15, 15), (0, 0, 30)),
            ((30, 62, -98), (30, 13, 14), (0, -15, -20)),
            ((-36, 62, -70), (30, 13, 14), (0, 20, 20)),
            ((46, 10, -44), (24, 15, 14), (0, 40, 0)),
            ((-54, 8, -44), (22, 15, 14), (0, -40, 0)),
            ((6, 26, -118), (34, 16, 13), (0, -10, 10)),
        )
    ),
    Part("colon", BOWEL, (102, 14, -80), (22, 25, 40)),
    Part("colon", GAS, (102, 24, -76), (14, 11, 26)),
    Part("colon", BOWEL, (-106, 4, -55), (19, 22, 60)),
    Part("colon", GAS, (-106, 12, -40), (10, 9, 30)),
    Part("colon", BOWEL, (0, 64, -22), (80, 18, 18), (0, 6, 0)),
    Part("colon", GAS, (-22, 71, -22), (42, 8, 10), (0, 6, 0)),
    Part("colon", BOWEL, (-8, -22, -140), (20, 18, 30), (-20, 0, 0)),
)

PARTS: tuple[Part, ...] = (
    *_TRUNK,
    *_BACK,
    *_CHEST,
    *_UPPER_ABDOMEN,
    *_PELVIS,
    *_SPINE,
    *_RETROPERITONEUM,
    *_BOWEL,
)
"""Every part, first painted first."""
