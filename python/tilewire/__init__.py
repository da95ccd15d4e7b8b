"""Tilewire: fused compute-and-communication operations over several ranks.

Importing this package is cheap: it loads neither numpy nor anything of the command line. The demo's parts
(`tilewire.encoder`, `tilewire.checker`, `tilewire.timeline`) are imported on their own.
"""

from __future__ import annotations

__version__ = "0.1.0"
