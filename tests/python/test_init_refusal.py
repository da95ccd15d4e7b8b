"""A rank that cannot come to init() says why to those that wait for it there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from test_api_launch import alone
from tilewire.launcher import _reserved_port

_PROGRAM = """
import json, sys, time
import tilewire as tw
from file_store import FileStore

rank, how, place, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
options = {"rank": rank, "world_size": 3, "secret": "a secret of this test"}
options |= {"store": FileStore(folder)} if place == "store" else {"rendezvous": place}
if rank == 1:
    time.sleep(1.5)  # until rank 0 is there, on slow machines too
    options |= eval(how)
begin = time.monotonic()
try:
    tw.init(**options)
except tw.Error as error:
    print(json.dumps([type(error).__name__, str(error), time.monotonic() - begin]))
"""


@pytest.mark.parametrize("is_store", [False, True])
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("{'nope': 3}", "nope"),  # an option that there is not
        ("{'layout': [1, 1.5]}", "layout[1] = 1.5"),  # refused in Python
        ("{'layout': '1,1'}", "layout = 1,1 (sum 2), world_size = 3"),  # by itself it would be right
    ],
)
def test_what_one_rank_refuses_is_told_to_the_others(how: str, reason: str, is_store: bool, tmp_path: Path) -> None:
    with _reserved_port() as port:
        place = "store" if is_store else f"127.0.0.1:{port}"
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(rank), how, place, str(tmp_path)],
                env=alone({}),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(3)
        ]
        said = [process.communicate(timeout=120) for process in ranks]
    for rank, (output, errors) in enumerate(said):
        assert output, errors
        error, text, seconds = json.loads(output)
        assert reason in text and seconds < 40, (rank, text)
        if rank == 1:
            assert error == "InvalidArgument"
        else:
            assert error == "Refused" and "rank 1 refused to join the job" in text, (rank, error, text)
