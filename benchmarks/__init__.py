"""Timing against the published forms of the layers; run as modules, they print Markdown tables."""
