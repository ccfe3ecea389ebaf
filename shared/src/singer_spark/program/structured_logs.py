"""Logs as a program wants them that runs ours: `SINGER_SDK_LOG_CONFIG` names a logging config, as Meltano gives it."""

from __future__ import annotations

import logging
import logging.config
import os
from pathlib import Path

LOG_CONFIG = "SINGER_SDK_LOG_CONFIG"


def logs_as_told() -> bool:
    """Sets logging up as the variable says; False where it says nothing, or names no file."""
    path = os.environ.get(LOG_CONFIG)
    if not path:
        return False
    # As JSON is YAML, this reads Meltano's and what people write.
    import yaml

    try:
        config = yaml.safe_load(Path(path).read_text())
    except FileNotFoundError:
        logging.getLogger(__name__).warning("%s names no file: %s", LOG_CONFIG, path)
        return False
    logging.config.dictConfig(config)
    return True


def is_structured() -> bool:
    """Whether a program reads what is logged: then all that is said goes through the log."""
    return any(type(each.formatter).__name__ == "StructuredFormatter" for each in logging.getLogger().handlers)
