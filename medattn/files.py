"""Writing files so that a kill at any moment leaves the old one or the new one, never half of it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path`` to write to; once it is written it takes ``path``'s place in one step.

    The temporary name ends as ``path`` does, since writers choose formats by it. Parent folders are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = "".join(path.suffixes[-2:])
    temporary = path.with_name(f".{path.name.removesuffix(suffix)}-{secrets.token_hex(6)}{suffix}")
    temporary.touch(exist_ok=False)
    mode = temporary.stat().st_mode  # as the user's umask wants it; some writers make files of their own mode
    try:
        yield temporary
        temporary.chmod(mode)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` atomically, UTF-8."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
