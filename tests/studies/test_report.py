"""The report is complete, self-contained and honest about what is missing."""

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from medattn.studies.report import format_results_table, write_report
from tests.studies.synthetic import ARMS, EVALUATIONS, fail_run, write_study

SMALL = {"arms": ("index", "mm"), "evaluations": ("iso_4.5", "wrong_header")}


class Page(HTMLParser):
    """Tags with their attributes, and the text between them."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "small"):
            self.text += " "

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] != "style":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def values(self, attribute: str) -> list[str]:
        return [a[attribute] or "" for _, a in self.tags if attribute in a]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    study = write_study(tmp_path_factory.mktemp("report") / "study")
    assert write_report(study) == study / "report.html"
    return study


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page(folder / "report.html")


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_executed(page: Page, folder: Path) -> None:
    assert page.values("src")
    assert all(re.match(r"data:image/(png|svg\+xml);base64,", source) for source in page.values("src"))
    assert all(link.startswith("#") for link in page.values("href"))
    assert not {"script", "link", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.tags}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    html = (folder / "report.html").read_text()
    assert "@import" not in html
    assert "url(" not in html


def test_every_figure_has_words_and_every_link_a_target(page: Page) -> None:
    assert all(len(image["alt"] or "") > 30 for image in page.all("img"))
    assert {link.removeprefix("#") for link in page.values("href")} <= set(page.values("id"))
    assert max(Counter(page.values("id")).values()) == 1
    assert page.all("html")[0]["lang"] == "en"
    assert "width=device-width" in page.all("meta")[1]["content"]


def test_sections_come_in_order_and_limits_before_results(page: Page) -> None:
    sections = [a["id"] for a in page.all("section")]
    assert sections[:4] == ["asked", "limits", "findings", "scores"]
    assert set(sections) >= {"spacing", "differences", "sides", "classes", "examples", "cost", "controls", "failures"}


def test_words_of_the_study_are_escaped(folder: Path, page: Page) -> None:
    assert "<title>Positional encodings on made-up numbers &lt;&amp; more&gt;</title>" in (
        folder / "report.html"
    ).read_text(encoding="utf-8")
    assert "# <made up>" in page.text


def test_the_plan_is_shown_whole(page: Page, folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    wanted = [plan["title"], plan["question"], plan["claim_limits"], *plan["notes"], *plan["warnings"]]
    wanted += [
        value for entry in plan["arms"] for value in (entry["title"], entry["description"], entry["config_hash"])
    ]
    wanted += [value for entry in plan["evaluations"] for value in (entry["title"], entry["description"])]
    wanted += [value for item in plan["controls"].items() for value in item]
    wanted += [entry["description"] for entry in plan["baselines"]] + ["0123456789abcdef", "torch 2.13.0"]
    assert [text for text in wanted if text not in page.text] == []


def test_two_seeds_are_called_too_few(page: Page) -> None:
    assert "cannot give a p-value below 2/2^2 = 0.5" in page.text
    assert "No interval is drawn: 2 seeds are too few" in page.text


def test_what_speaks_against_the_physical_frame_stands_first(page: Page) -> None:
    block = page.text[page.text.index("mm against index") : page.text.index("patient mm against index")]
    against, favour = block.index("Against mm"), block.index("For mm")
    assert against < block.index("4 x 4 x 12 mm told as 12 x 4 x 4") < favour
    assert against < block.index("4.5 mm, top third missing") < favour
    assert favour < block.index("1:3 along S (4 x 4 x 12 mm):")


def test_every_figure_is_also_a_file(folder: Path, page: Page) -> None:
    files = {path.name for path in (folder / "figures").iterdir()}
    assert files >= {"scores.svg", "spacing.svg", "differences.svg", "sides.svg", "classes.svg", "loss.svg"}
    assert files >= {f"example_{name}.png" for name in EVALUATIONS}
    assert len(files) == len(page.all("img"))


def test_absent_structures_are_told(page: Page) -> None:
    assert "spleen 4.5 mm, top third missing 20 0 20" in page.text


def test_a_complete_study_lacks_nothing(page: Page) -> None:
    assert "10 of 10 runs finished. Nothing is missing." in page.text
    assert "Incomplete." not in page.text


def test_equal_studies_give_equal_reports(tmp_path: Path) -> None:
    first, second = (write_report(write_study(tmp_path / name, **SMALL)).read_bytes() for name in ("a", "b"))
    assert first == second


# -- what is missing -----------------------------------------------------------------------------------


def test_a_failed_and_a_missing_run_are_counted_listed_and_left_out(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", **SMALL)
    fail_run(folder, "mm", 0, "FloatingPointError: the loss is nan at step 12")
    (folder / "arms" / "index" / "seed_1" / "run.json").unlink()
    page = Page(write_report(folder))
    assert "2 of 4 runs finished" in page.text
    assert "mm, seed 0: failed. FloatingPointError: the loss is nan at step 12" in page.text
    assert "Traceback: arms/mm/seed_0/failure.txt." in page.text
    assert "index, seed 1: missing; there is no run.json in arms/index/seed_1." in page.text
    assert "60 rows of results.csv belong to no finished run" in page.text  # index, seed 1: 2 x 2 x 15
    assert "No seed finished both mm and index" in page.text
    assert "Incomplete. 3 things are missing" in page.text


def test_missing_and_damaged_examples_are_told(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", **SMALL)
    (folder / "arms" / "mm" / "seed_0" / "examples.safetensors").unlink()
    (folder / "arms" / "index" / "seed_0" / "examples.safetensors").write_bytes(b"not a safetensors file")
    page = Page(write_report(folder))
    assert "mm, seed 0: no example slice of any evaluation." in page.text
    assert "index, seed 0: no example slice of any evaluation." in page.text
    assert "4.5 mm isotropic: no run kept an example." in page.text


def test_a_study_without_results_still_reports(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", **SMALL)
    for name in ("results.csv", "config.yaml"):
        (folder / name).unlink()
    for record in folder.glob("arms/*/*/run.json"):
        record.unlink()
    page = Page(write_report(folder))
    assert "0 of 4 runs finished" in page.text
    assert "image-free lookup, jittered frame: results.csv has no row of any evaluation." in page.text
    assert "config.yaml is missing" in page.text
    assert "0 of 4 runs finished. Not finished: index seed 0" in format_results_table(folder, 120)


def test_a_finished_run_without_some_of_its_rows_is_told(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", **SMALL)
    table = pd.read_csv(folder / "results.csv", keep_default_na=False)
    gone = (table["arm"] == "mm") & (table["seed"] == 1) & (table["evaluation"] == "iso_4.5")
    table[~gone].to_csv(folder / "results.csv", index=False)
    page = Page(write_report(folder))
    assert "mm, seed 1: finished, but results.csv has no row of 4.5 mm isotropic." in page.text


def test_without_comparisons_or_undisturbed_scans_the_report_says_so(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", arms=("mm",), evaluations=("flipped", "wrong_header"), controls={})
    page = Page(write_report(folder))
    assert "The plan names no comparison" in page.text
    assert "there is nothing to draw" in page.text
    assert "None was recorded." in page.text


def test_one_seed_is_enough_for_a_report(tmp_path: Path) -> None:
    page = Page(write_report(write_study(tmp_path / "study", seeds=(3,), **SMALL)))
    assert "With 1 seed, an exact sign-flip test cannot give a p-value below 2/2^1 = 1," in page.text
    assert "from one seed each" in page.text


def test_an_evaluation_name_cannot_lead_out_of_the_figures_folder(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", **SMALL)
    plan = json.loads((folder / "plan.json").read_text())
    plan["evaluations"][0]["name"] = name = "../../escaped"
    (folder / "plan.json").write_text(json.dumps(plan))
    with safe_open(folder / "arms/mm/seed_0/examples.safetensors", "numpy") as file:
        parts = {part: file.get_tensor(f"iso_4.5/{part}") for part in ("image", "truth", "prediction")}
    renamed = {f"{name}/{part}": values for part, values in parts.items()}
    save_file(renamed, folder / "arms/mm/seed_0/examples.safetensors", metadata={f"{name}/aspect": "1.0"})
    write_report(folder)
    assert (folder / "figures" / "example_.._.._escaped.png").is_file()
    assert not [path for path in (folder / "figures").iterdir() if path.is_dir()]


# -- errors --------------------------------------------------------------------------------------------


def test_a_folder_without_a_plan_is_no_study(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a study folder: it has no plan.json"):
        write_report(tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", **SMALL)
    (folder / "arms" / "mm" / "seed_0" / "run.json").write_text('{"arm": ')
    with pytest.raises(ValueError, match=r"mm/seed_0/run\.json is not valid JSON"):
        write_report(folder)


def test_a_plan_or_table_without_a_part_is_named(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", **SMALL)
    table = pd.read_csv(folder / "results.csv")
    table.drop(columns="merged_dice").to_csv(folder / "results.csv", index=False)
    with pytest.raises(ValueError, match=r"results\.csv must have the columns .*; it lacks merged_dice"):
        write_report(folder)
    (folder / "plan.json").write_text('{"arms": [], "seeds": [], "evaluations": []}')
    with pytest.raises(ValueError, match=r"plan\.json must have .*, it lacks classes"):
        write_report(folder)
    assert not (folder / "report.html").exists()


# -- the terminal --------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_terminal_table_fits_and_names_everything(folder: Path, width: int) -> None:
    lines = format_results_table(folder, width).splitlines()
    assert max(len(line) for line in lines) <= width
    first_words = [line.split()[0] for line in lines if line.strip()]
    assert [first_words.count(name) for name in (*ARMS, "lookup", "lookup_exact")] == [2] * 7
    assert all(any(name in line for line in lines) for name in EVALUATIONS)


def test_the_terminal_table_shows_means_over_seeds(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", **SMALL)
    table = pd.read_csv(folder / "results.csv", keep_default_na=False)
    table["merged_dice"] = 0.25
    table.loc[(table["arm"] == "mm") & (table["seed"] == 1), "merged_dice"] = 0.75
    table.to_csv(folder / "results.csv", index=False)
    rows = {line.split()[0]: line.split()[1:] for line in format_results_table(folder, 80).splitlines()[:10] if line}
    assert rows["mm"] == ["0.50", "0.50"]
    assert rows["index"] == ["0.25", "0.25"]
    assert rows["arm"] == ["iso_4.5", "wrong_header"]
