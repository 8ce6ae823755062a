"""Frozen values and their invariants. Knows no file format, no host and no tool."""
