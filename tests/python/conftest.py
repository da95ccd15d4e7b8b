"""Makes the package importable from the source tree when it is not installed; keeps numpy to one thread a rank."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

# Ranks are threads or processes here: numpy's own threads would only fight over the same few cores.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# A runner in the background may have started us with Ctrl-C ignored; the ranks that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says more of what else the machine does than of the code.
settings.register_profile("tilewire", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tilewire")

if importlib.util.find_spec("tilewire") is None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
