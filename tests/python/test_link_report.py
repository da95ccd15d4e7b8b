"""`tilewire doctor --net`: what it says of a network that is well, slow or wrong; the way over a played one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tilewire import _core, link_report
from tilewire.cli import app
from tilewire.errors import Error


def link(**changes: Any) -> dict[str, Any]:
    return {
        "from": 0,
        "to": 1,
        "from_nics": ["mlx5_0:1"],
        "to_nics": ["mlx5_2:1"],
        "latency_us": 3.0,
        "latency_p99_us": 9.0,
        "gbps_64KiB": 300.0,
        "gbps_1MiB": 380.0,
        "line_gbps": 400.0,
        "messages": 1_000_192,
        "wrong_messages": 0,
    } | changes


def report(*links: dict[str, Any]) -> dict[str, Any]:
    return {
        "transport": "rc",
        "memory": "host",
        "ranks": [{"host": "a (process 1)"}, {"host": "b (process 2)"}],
        "links": list(links),
    }


def test_a_network_that_is_well_is_said_to_be_with_how_much_was_checked() -> None:
    assert link_report.verdict_of(report(link())) == (True, "1000192 messages were checked, all whole.")


def test_a_slow_nic_is_named_and_is_no_failure() -> None:
    is_well, text = link_report.verdict_of(report(link(), link(gbps_1MiB=200.0, messages=0)))
    assert is_well and "rank 0 to 1, mlx5_0:1 to mlx5_2:1: 50 % of the line rate" in text


def test_where_the_line_rate_is_unknown_nothing_is_slow() -> None:
    (found,) = link_report.links_of(report(link(line_gbps=0.0, gbps_1MiB=0.1)))
    assert found.of_line is None and not found.problem


def test_messages_that_are_not_whole_are_worse_than_anything() -> None:
    is_well, text = link_report.verdict_of(report(link(gbps_1MiB=1.0), link(wrong_messages=3)))
    assert not is_well
    assert "3 of 1000192 messages were not whole" in text and "would be wrong" in text and "line rate" not in text


def test_doctor_prints_the_links_and_all_of_the_report_where_its_file_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def fake(*arguments: Any) -> tuple[int, str, str]:
        asked.append(arguments)
        return 0, json.dumps(report(link(wrong_messages=1))), unwritten

    monkeypatch.setattr(_core, "link_test", fake)
    command = ["doctor", "--net", "--rank", "0", "--world-size", "2", "--report", "net.json"]
    unwritten = ""
    result = CliRunner().invoke(app, command)
    assert asked == [({"rank": "0", "world_size": "2"}, 1.0, 1_000_000, "net.json")]
    assert result.exit_code == 1 and "mlx5_0:1" in result.output and "not whole" in result.output
    unwritten = "net.json: No space left on device"
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2 and '"wrong_messages": 1' in result.output and unwritten in result.output


def test_other_ranks_keep_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "link_test", lambda *_: (1, json.dumps(report(link())), ""))
    result = CliRunner().invoke(app, ["doctor", "--net"])
    assert result.exit_code == 0 and not result.output


def test_a_test_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> tuple[int, str]:
        raise Error("the ranks have no place to meet")

    monkeypatch.setattr(_core, "link_test", fail)
    result = CliRunner().invoke(app, ["doctor", "--net"])
    assert result.exit_code == 2 and "the ranks have no place to meet" in result.output


def test_two_processes_measure_the_emulated_network(tmp_path: Path) -> None:
    file = tmp_path / "net.json"
    program = "import sys; from tilewire.cli import app; app(sys.argv[1:])"
    run = [sys.executable, "-c", program]
    done = subprocess.run(
        [*run, "run", "-n", "2", "--nodes", "2", "--", *run]
        + ["doctor", "--net", "--seconds", "0.01", "--messages", "2000", "--report", str(file), "--json"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = "\n".join(line.partition("] ")[2] if line.startswith("[") else line for line in done.stdout.splitlines())
    found = json.loads(text[text.index("{") :])
    assert json.loads(file.read_text()) == found
    assert found["transport"] == "emulated rc" and len(found["links"]) == 2
    assert all(row["wrong_messages"] == 0 and row["messages"] >= 2000 for row in found["links"])
