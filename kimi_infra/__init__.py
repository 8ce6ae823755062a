"""Take bare GPU hosts to a serving Kimi-K3.1-Pro: plan, converge, verify.

What is named in ``__all__`` is the public surface; everything else may change between versions.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
