"""Measurements against peers. Not part of the package; run from the repository's root."""
