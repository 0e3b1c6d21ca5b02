"""``python -m medattn``."""

import sys

from medattn.cli import main

if __name__ == "__main__":
    sys.exit(main())
