"""Atomic replacement of local files: others read the old one or the new one, never a part."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file.

    Raises:
        OSError: it can't be written; the old one stays.
    """
    # With the mode of any new file of the user, and not private as temporary files are.
    mask = os.umask(0)
    os.umask(mask)
    with NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            Path(file.name).chmod(0o666 & ~mask)
            Path(file.name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(file.name).unlink()
            raise
