"""Numbers worked out on paper from the theory of attention, to be met by the public functions."""

import json
from pathlib import Path
from typing import Any

THEORY: dict[str, Any] = json.loads(Path(__file__).with_name("theory.json").read_text(encoding="utf-8"))
