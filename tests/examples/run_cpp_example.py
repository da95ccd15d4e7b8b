"""Installs a build, builds examples/cpp against it, runs it on 2 nodes x 2 ranks and reads what each rank says."""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from tilewire.launcher import Launch, launch  # noqa: E402 (the package need not be installed)

LAYOUT = [2, 2]
# 24 rows of 96 fp32 columns go to one other node.
SAID = "rank {rank} of 4, nodes 2+2: 3840 elements, 0 wrong, 9216 bytes sent to other nodes"


def run(*command: str | Path) -> None:
    """Runs a step; its output is shown when it fails."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("build", "cmake", "generator", "compiler"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tilewire-example-") as folder:
        prefix, build = Path(folder, "prefix"), Path(folder, "build")
        run(given.cmake, "--install", given.build, "--prefix", prefix, "--component", "development")
        run(
            *(given.cmake, "-S", ROOT / "examples" / "cpp", "-B", build, "-G", given.generator),
            *(f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={given.compiler}"),
        )
        run(given.cmake, "--build", build)
        out = io.StringIO()
        limits = {"TILEWIRE_DEADLINE_S": "60", "TILEWIRE_CONNECT_DEADLINE_S": "60"}
        code = launch(Launch([str(build / "gather_and_multiply")], LAYOUT, limits, prefix=False), out, out)
    said = sorted(out.getvalue().splitlines())
    if code != 0 or said != [SAID.format(rank=rank) for rank in range(sum(LAYOUT))]:
        sys.exit(f"the example ended with {code} and said:\n{out.getvalue()}")


if __name__ == "__main__":
    main()
