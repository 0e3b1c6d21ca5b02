"""Compare positional encodings under controlled resampling: python scripts/compare.py experiment=demo"""

import sys

import hydra
from omegaconf import DictConfig

from medattn.studies.config import register_schema

register_schema()


@hydra.main(version_base="1.3", config_path="../configs", config_name="compare")
def main(config: DictConfig) -> None:
    from medattn.studies import compare  # after parsing, so that --help comes at once

    code = compare.main(config)
    if code:
        sys.exit(code)


if __name__ == "__main__":
    main()
