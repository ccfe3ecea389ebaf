"""The contiguous text of an Arrow array."""

from __future__ import annotations

import pyarrow as pa


def joined_text(lines: pa.Array) -> memoryview:
    """All texts of an array, concatenated as in its buffer."""
    if not len(lines):
        return memoryview(b"")
    _, offsets, data = lines.buffers()
    ends = memoryview(offsets).cast("q" if pa.types.is_large_string(lines.type) else "i")
    first, last = ends[lines.offset], ends[lines.offset + len(lines)]
    return memoryview(data)[first:last] if last > first else memoryview(b"")
