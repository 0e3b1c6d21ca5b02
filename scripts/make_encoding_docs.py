"""Write docs/encodings.md and its figure from what the encodings declare: python scripts/make_encoding_docs.py"""

import argparse
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-figure", action="store_true", help="write the page alone")
    arguments = parser.parse_args()
    from medattn.catalogue.entry import all_entries
    from medattn.catalogue.markdown import FIGURE, encodings_page

    (DOCS / "encodings.md").write_text(encodings_page(all_entries()), encoding="utf-8")
    if not arguments.no_figure:
        from medattn.catalogue.gallery import draw_gallery

        (DOCS / FIGURE).parent.mkdir(exist_ok=True)
        (DOCS / FIGURE).write_bytes(draw_gallery())


if __name__ == "__main__":
    main()
