"""Files of this machine that others read while they are written anew: the old one or the new one, never a part."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile


def write_whole(path: Path, content: bytes) -> None:
    """Replaces a file.

    Raises:
        OSError: it can't be written; the old one stays.
    """
    # As any new file of the user, not for him alone as scratch files are.
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
