"""Labelled results on disk: NetCDF with provenance, written so that no half of a file is ever seen.

Never pickle: a file is data, and reading one runs nothing that it says.
"""

from optlearn._io.files import DataFileError, atomic, load_dataset, save_dataset
from optlearn._io.provenance import _versions as _versions
from optlearn._io.provenance import provenance

__all__ = ["DataFileError", "atomic", "load_dataset", "provenance", "save_dataset"]
