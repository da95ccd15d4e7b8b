"""Makes the package importable from the source tree when it is not installed; keeps numpy to one thread a rank."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

# Ranks are threads or processes here: numpy's own threads would only fight over the same few cores.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

if importlib.util.find_spec("tilewire") is None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
