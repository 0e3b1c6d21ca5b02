"""The direction of imports, the weight of ``import medattn``, and the size of files, checked on the source itself."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "medattn"
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")

CHAIN = ("geometry", "coordinates", "encodings", "attention", "layers", "encoder", "models", "tasks", "studies")
BESIDE = {
    "files": set(),
    "volumes": {"geometry", "files"},
    "acquisition": {"geometry"},
    "phantoms": {"geometry"},
}
"""Layers outside the chain, with what each may import; only tasks, studies and the outermost may import them."""

OUTERMOST = {
    "integrations": {"geometry", "volumes"},
    "inspect": {"geometry", "coordinates", "encodings", "attention", "layers", "encoder", "models", "volumes"},
    "catalogue": {"geometry", "coordinates", "encodings", "attention", "studies"},
    "cli": {"geometry", "coordinates", "encodings", "volumes", "studies"},
    "__main__": {"cli"},
}
"""Layers that nothing else imports, with what each may import."""

HOMES_OF = {
    "nibabel": {"volumes"},
    "SimpleITK": {"volumes"},
    "pydicom": {"volumes"},
    "highdicom": {"volumes"},
    "monai": {"studies", "integrations"},
    "hydra": {"studies"},
    "omegaconf": {"studies"},
    "matplotlib": {"studies", "catalogue", "cli"},
    "pandas": {"studies"},
    "jinja2": {"studies"},
    "rich": {"studies", "cli"},
}
"""Which layers may import a library; all may import others."""


def allowed(layer: str) -> set[str]:
    """The layers that a module of ``layer`` may import, its own among them."""
    if layer in BESIDE or layer in OUTERMOST:
        return (BESIDE | OUTERMOST)[layer] | {layer}
    before = set(CHAIN[: CHAIN.index(layer) + 1])
    return before | set(BESIDE) if layer in ("tasks", "studies") else before


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of each import in the file, also inside functions; "from a import b" gives "a.b"."""
    package = (*path.relative_to(ROOT).parent.parts,)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*parents, *filter(None, [node.module])))
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_every_module_belongs_to_a_layer() -> None:
    assert MODULES
    unplaced = sorted({layer_of(p) for p in MODULES} - {*CHAIN, *BESIDE, *OUTERMOST})
    assert unplaced == [], f"give these a place in CHAIN, BESIDE or OUTERMOST of {Path(__file__).name}: {unplaced}"


def test_modules_import_only_from_layers_before_theirs() -> None:
    wrong = []
    for path in MODULES:
        for line, name in imports(path):
            if name.split(".")[0] != "medattn" or name == "medattn.__version__":
                continue
            target = name.split(".")[1] if "." in name else "medattn"
            if target not in allowed(layer_of(path)):
                wrong.append(f"{where(path, line)}: {layer_of(path)} may not import {name}")
    assert wrong == [], "\n".join(wrong)


def test_file_and_study_libraries_are_imported_in_their_layer_only() -> None:
    wrong = [
        f"{where(path, line)}: {name} belongs in {' or '.join(sorted(HOMES_OF[name.split('.')[0]]))}"
        for path in MODULES
        for line, name in imports(path)
        if layer_of(path) not in HOMES_OF.get(name.split(".")[0], {layer_of(path)})
    ]
    assert wrong == [], "\n".join(wrong)


def _loaded_after(code: str) -> set[str]:
    """Names in ``sys.modules`` after ``code``, in a fresh interpreter."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    script = f"{code}\nimport sys\nprint(*sys.modules, sep='\\n')"
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


HEAVY = {
    "monai",
    "nibabel",
    "SimpleITK",
    "pydicom",
    "highdicom",
    "hydra",
    "omegaconf",
    "matplotlib",
    "pandas",
    "jinja2",
    "rich",
}


@pytest.mark.parametrize(
    "touch",
    [
        "",
        "medattn.VoxelGrid; medattn.create_encoding; medattn.VolumeEncoder; medattn.load_volume",
        "[getattr(medattn, name) for name in medattn.__all__]",
    ],
    ids=["import", "main names", "all names"],
)
def test_using_medattn_loads_no_file_study_or_figure_library(touch: str) -> None:
    loaded = _loaded_after(f"import torch, medattn\n{touch}")
    assert "medattn" in loaded
    assert sorted(loaded & HEAVY) == []


def test_importing_medattn_after_torch_adds_nothing_but_itself() -> None:
    added = _loaded_after("import torch, medattn") - _loaded_after("import torch")
    assert added == {"medattn"}


# -- sizes ---------------------------------------------------------------------------------------------


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from ``def`` to the end, without the docstring, which states units, shapes and errors."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def _sources() -> list[Path]:
    return [PACKAGE / "__init__.py", *MODULES, *sorted((ROOT / "scripts").rglob("*.py"))]


def test_no_file_is_over_400_lines() -> None:
    sizes = {str(p.relative_to(ROOT)): len(p.read_text(encoding="utf-8").splitlines()) for p in _sources()}
    assert {name: size for name, size in sizes.items() if size > 400} == {}


def test_no_function_is_over_40_lines() -> None:
    sizes = {f"{where(p, f.lineno)} {f.name}": _code_lines(f) for p in _sources() for f in _functions(p)}
    assert {name: size for name, size in sizes.items() if size > 40} == {}


def test_no_constructor_takes_over_10_arguments() -> None:
    counts = {
        where(p, f.lineno): len(f.args.posonlyargs + f.args.args + f.args.kwonlyargs) - 1
        for p in _sources()
        for f in _functions(p)
        if f.name == "__init__"
    }
    assert {name: count for name, count in counts.items() if count > 10} == {}


# -- the checks themselves -----------------------------------------------------------------------------


def test_an_import_inside_a_function_and_a_relative_one_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    module = tmp_path / "medattn" / "geometry" / "deep.py"
    module.parent.mkdir(parents=True)
    module.write_text(
        "def f():\n    import nibabel.affines\n    from ..tasks import scores\nfrom medattn import encoder\n"
    )
    assert set(imports(module)) == {(2, "nibabel.affines"), (3, "medattn.tasks.scores"), (4, "medattn.encoder")}


def test_the_chain_points_one_way() -> None:
    assert allowed("geometry") == {"geometry"}
    assert "tasks" not in allowed("models")
    assert "volumes" not in allowed("encoder")
    assert "volumes" in allowed("studies")
    assert "integrations" not in allowed("studies") and "cli" not in allowed("integrations")
    assert allowed("phantoms") == {"geometry", "phantoms"}
