"""Leave out slow work of each training and each save that no test needs."""

import functools
import gc
import os

import jinja2


def compile_templates_once() -> None:
    """Compile the template of model cards once: that takes longer than all else of saving a tiny model."""
    jinja2.Environment.compile = functools.lru_cache(maxsize=8)(jinja2.Environment.compile)


def write_without_waiting() -> None:
    """Leave it to the system when files reach the disk. That matters if a machine stops, not a process."""
    os.fsync = lambda descriptor: None


def leave_imports_to_themselves() -> None:
    """Keep what is there by now out of collections of garbage, for one of which each training asks."""
    gc.collect()
    gc.freeze()
