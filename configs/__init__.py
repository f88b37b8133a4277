"""Experiments as data: one file per family, each with a docstring that can be run."""
