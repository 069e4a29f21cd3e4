"""Labelled results on disk: NetCDF with provenance, written so that no half of a file is ever seen.

Never pickle: a file is data, and reading one runs nothing that it says.
"""
