"""The rank supervisor: main process of a rank's unit on a host.

Standard library of Python 3.10 only; modules import each other relatively,
because on hosts the package is called ``kimi_rank``.
"""
