"""Structured logs: one JSON object a line on standard error. Standard output belongs to the guest's console."""

from __future__ import annotations

import logging
import sys
import time

from pythonjsonlogger.json import JsonFormatter


class _Formatter(JsonFormatter):
    converter = staticmethod(time.gmtime)
    default_msec_format = "%s.%03dZ"
    default_time_format = "%Y-%m-%dT%H:%M:%S"


def set_up(level: int = logging.INFO) -> None:
    """Send everything there."""
    handler = logging.StreamHandler(sys.stderr)
    names = {"asctime": "time", "levelname": "level", "name": "logger"}
    handler.setFormatter(_Formatter("{asctime}{levelname}{name}{message}", style="{", rename_fields=names))
    logging.basicConfig(level=level, handlers=[handler], force=True)
