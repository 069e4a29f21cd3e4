"""Labelled results on disk: NetCDF with provenance, written atomically.

Never pickle: a file is data, and reading one never executes its content.
"""
