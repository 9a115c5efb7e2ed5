"""Lamina: streaming online learning with networks made of growing databases."""

__version__ = "0.1.0"
