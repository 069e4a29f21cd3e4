"""Labelled results on disk: NetCDF with provenance, written so that no half of a file is ever seen.

Never pickle: a file is data, and reading one runs nothing that it says.
"""

from optlearn._io.files import (
    cache_folder,
    load_dataset,
    read_file,
    read_json,
    remove_half_written,
    save_dataset,
    write_file,
)
from optlearn._io.provenance import provenance

__all__ = [
    "cache_folder",
    "load_dataset",
    "provenance",
    "read_file",
    "read_json",
    "remove_half_written",
    "save_dataset",
    "write_file",
]
