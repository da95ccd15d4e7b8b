"""The command line: help, doctor, trace; and that importing the package stays light."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import tilewire
from synthetic_trace import make_trace
from tilewire import _core, doctor
from tilewire.cli import app, numbers
from tilewire.cli.plan import folded
from tilewire.gpu.driver import Gpu, NoDriver
from tilewire.op_list import OPS
from tilewire.plans import machines
from tilewire.self_test import run_self_test
from tilewire.trace_events import NO_OVERLAP_NOTE, Run, as_events
from tilewire.trace_files import read_perfetto, write_perfetto

PACKAGE_ROOT = str(Path(doctor.__file__).resolve().parents[1])


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_every_command_has_help() -> None:
    text = invoke("--help").output
    for command in ("demo", "run", "doctor", "plan", "trace"):
        assert command in text and invoke(command, "--help").exit_code == 0
    assert "..." not in text.split("Commands:")[1], "a line of the list is cut off"


def test_version_is_that_of_the_package() -> None:
    result = invoke("--version")
    assert result.exit_code == 0 and result.output == f"tilewire {tilewire.__version__}\n"


def test_doctor_gives_json() -> None:
    result = invoke("doctor", "--json")
    content = json.loads(result.output)
    names = [check["name"] for check in content["checks"]]
    assert names[0] == "Python" and len(names) == len(set(names))
    assert result.exit_code == (0 if content["healthy"] else 1)
    # The last probe tests every transport that is compiled in.
    assert {"ranks of one node", "transport emulated"} <= set(names[-1 - len(_core.transports()) :])
    for check in content["checks"]:
        assert check["state"] == "ok" or (check["cost"] and check["advice"]), check["name"]


def test_doctor_prints_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ALL_PROBES", [probe for probe in doctor.ALL_PROBES if "transports" not in str(probe)])
    output = invoke("doctor").output
    assert "Python" in output and "libibverbs" in output and "Everything that is needed is here." in output


def test_doctor_says_what_is_missing_and_how_to_look_into_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewire.self_test.run_self_test", lambda layout, transport: (1.0, "it rains"))
    check = doctor._self_test("transport emulated", [1, 1], "emulated", "nodes")
    assert "it rains" in check.detail and "tilewire run --nodes 1,1 -m tilewire.self_test" in check.advice
    assert "tilewire run -n 2 -m" in doctor._self_test("ranks of one node", [2], "auto", "ranks").advice
    monkeypatch.setattr("tilewire.cli.doctor.run_checks", lambda: [check])
    result = invoke("doctor")
    assert result.exit_code == 1 and "Missing, and needed: transport emulated." in result.output


def test_probe_that_fails_is_a_finding() -> None:
    def check_the_weather() -> doctor.Check:
        raise RuntimeError("it rains")

    (check,) = doctor.run_checks([check_the_weather])
    assert (check.name, check.state) == ("the weather", doctor.MISSING) and "RuntimeError: it rains" in check.detail


def test_only_what_is_needed_makes_a_machine_ill() -> None:
    ok, off = doctor.Check("a", doctor.OK, "1"), doctor.Check("b", doctor.OFF, "2")
    assert doctor.is_healthy([ok, off]) and not doctor.is_healthy([ok, doctor.Check("c", doctor.MISSING, "3")])
    with pytest.raises(ValueError, match="state of d is 'perhaps'"):
        doctor.Check("d", "perhaps", "")


def test_absent_library_costs_something(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", no_library)
    check = doctor.check_verbs()
    assert check.state == doctor.OFF and "cannot open" in check.detail and check.cost and check.advice


def test_trace_writes_what_it_was_asked_for(tmp_path: Path) -> None:
    write_perfetto(make_trace(), tmp_path / "e.json")
    picture, perfetto = tmp_path / "t.svg", tmp_path / "p.json"
    result = invoke("trace", str(tmp_path / "e.json"), "--picture", str(picture), "--perfetto", str(perfetto))
    assert result.exit_code == 0 and picture.exists() and json.loads(perfetto.read_text())["traceEvents"]
    assert len(re.findall(r"\d+%", result.output)) == 4 and "INCOMPLETE" not in result.output


def write_ranks(folder: Path, run: Run, ranks: range, dropped: int = 0) -> list[str]:
    """A file a rank, as a job leaves them."""
    for rank in ranks:
        own = [event for event in as_events(make_trace()) if event.rank == rank]
        write_perfetto(own, folder / f"e{rank}.json", dropped=dropped, run=run)
    return [str(folder / f"e{rank}.json") for rank in ranks]


def test_trace_refuses_files_that_do_not_belong_together(tmp_path: Path) -> None:
    files = write_ranks(tmp_path, Run("aaaa", 4), range(4))
    together = invoke("trace", *files)
    assert together.exit_code == 0 and "INCOMPLETE" not in together.output, together.output
    merged = tmp_path / "all.json"
    assert invoke("trace", *files, "--perfetto", str(merged)).exit_code == 0
    assert read_perfetto(merged).run == Run("aaaa", 4)
    twice = invoke("trace", files[0], files[0])
    assert twice.exit_code == 2 and f"{files[0]} is named twice" in twice.output
    again = invoke("trace", str(merged), *files)
    assert again.exit_code == 2 and f"rank 0 is there twice, in {merged} and in {files[0]}" in again.output
    # A later run with fewer ranks leaves the files of the last ranks as they were.
    write_ranks(tmp_path, Run("bbbb", 2), range(2))
    mixed = invoke("trace", *files, "--perfetto", str(tmp_path / "mixed.json"))
    assert mixed.exit_code == 2 and not (tmp_path / "mixed.json").exists()
    old, new = f"{files[2]} (rank 2 of 4, run aaaa)", f"{files[0]} (rank 0 of 2, run bbbb)"
    assert f"{old} is of another run than {new}" in mixed.output
    assert invoke("trace", *files[:2]).exit_code == 0
    part = invoke("trace", *files[2:])
    assert part.exit_code == 0 and "INCOMPLETE: nothing here is of ranks 0, 1 of the run's 4" in part.output


def overlaps(folder: Path, files: list[str]) -> tuple[dict[str, str], str]:
    """What `tilewire trace` says of each rank's overlap, in its table, and all of its output on one line."""
    output = invoke("trace", *files).output
    rows = re.findall(r"^│ +(\d+) │.*│ +(\S+) │$", output, re.MULTILINE)
    return dict(rows), " ".join(output.split())


def test_network_time_that_only_absent_ranks_know_is_not_counted_as_none(tmp_path: Path) -> None:
    files = write_ranks(tmp_path, Run("aaaa", 4), range(4))
    whole, _ = overlaps(tmp_path, files)
    assert all(share.endswith("%") for share in whole.values()) and len(whole) == 4
    # Ranks 0 and 1 are a node: their chunks go to ranks 2 and 3.
    part, said = overlaps(tmp_path, files[:2])
    assert part == {"0": "-", "1": "-"}
    assert "nothing here is of ranks 2, 3 of the run's 4; without their files the network time of ranks 0, 1 is" in said
    assert NO_OVERLAP_NOTE not in said
    # All that rank 0 sent is seen at rank 2, and nothing that ranks 1 and 3 sent.
    pairs, said = overlaps(tmp_path, [files[0], files[1], files[2]])
    assert pairs == {"0": whole["0"], "1": "-", "2": whole["2"]} and "network time of rank 1 is not known" in said
    merged = tmp_path / "part.json"
    invoke("trace", *files[:3], "--perfetto", str(merged))
    assert overlaps(tmp_path, [str(merged)])[0] == pairs


def test_picture_of_a_part_of_a_run_has_no_overlap_of_unknown_flights(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = write_ranks(tmp_path, Run("aaaa", 4), range(4))
    for names, is_told in ((files, True), (files[:2], False)):
        assert invoke("trace", *names, "--picture", str(tmp_path / "t.svg")).exit_code == 0
        assert ("hidden under compute" in (tmp_path / "t.svg").read_text()) == is_told


def test_trace_says_what_it_wrote_and_explains_only_what_it_shows(tmp_path: Path) -> None:
    files = write_ranks(tmp_path, Run(), range(4))
    paths = [str(tmp_path / "p.json"), str(tmp_path / "p.svg")]
    output = invoke("trace", *files, "--perfetto", paths[0], "--picture", paths[1]).output
    squeezed = "".join(output.split())
    assert all("wrote" + "".join(path.split()) in squeezed for path in paths)
    note = "".join(NO_OVERLAP_NOTE.split())
    assert note not in squeezed
    write_perfetto([event for event in make_trace() if event.role == "compute"], tmp_path / "c.json")
    assert note in "".join(invoke("trace", str(tmp_path / "c.json")).output.split())


def test_trace_warns_of_what_is_lacking(tmp_path: Path) -> None:
    write_ranks(tmp_path, Run(), range(1), dropped=5)
    write_ranks(tmp_path, Run(), range(1, 2), dropped=6)
    perfetto = tmp_path / "p.json"
    result = invoke("trace", str(tmp_path / "e0.json"), str(tmp_path / "e1.json"), "--perfetto", str(perfetto))
    assert result.exit_code == 0 and "INCOMPLETE: 11 events" in result.output
    assert json.loads(perfetto.read_text())["otherData"]["dropped"] == 11


def test_trace_names_files_that_it_cannot_read_or_write(tmp_path: Path) -> None:
    write_perfetto(make_trace(), tmp_path / "e.json")
    missing = invoke("trace", str(tmp_path / "none.json"))
    assert missing.exit_code == 2 and missing.output == (
        f"tilewire: cannot read {tmp_path / 'none.json'}: No such file or directory\n"
    )
    unwritable = invoke("trace", str(tmp_path / "e.json"), "--picture", "/no/such/folder/t.svg")
    assert unwritable.exit_code == 2 and unwritable.output.startswith(
        "tilewire: cannot write /no/such/folder/t.svg: No"
    )
    other = invoke("trace", str(tmp_path / "e.json"), "--perfetto", str(tmp_path / "p.svg"))
    assert other.exit_code == 2 and "p.svg must end in .json" in other.output and not (tmp_path / "p.svg").exists()


@pytest.mark.parametrize("file", ["t.png", "t.svg"])
def test_picture_that_cannot_be_drawn_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    write_perfetto(make_trace(), tmp_path / "e.json")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    picture, perfetto = str(tmp_path / file), tmp_path / "p.json"
    trace = invoke("trace", str(tmp_path / "e.json"), "--picture", picture, "--perfetto", str(perfetto))
    plan = invoke("plan", "all_gather_matmul", "--m", "64", "--k", "64", "--n", "64", "--picture", picture)
    for result in (trace, plan):
        assert result.exit_code == 2 and "pip install 'tilewire[demo]'" in result.output, result.output
    assert not perfetto.exists() and "predicted" not in plan.output
    assert invoke("trace", str(tmp_path / "e.json")).exit_code == 0


def test_traces_of_several_ranks_become_one_with_their_flights(tmp_path: Path) -> None:
    events = as_events(make_trace())
    paths = [tmp_path / f"t.{rank}.json" for rank in range(4)]
    for rank, path in enumerate(paths):
        write_perfetto([event for event in events if event.rank == rank], path)
    result = invoke("trace", *map(str, paths), "--perfetto", str(tmp_path / "all.json"))
    assert result.exit_code == 0, result.output
    merged = read_perfetto(tmp_path / "all.json").events
    assert [event for event in merged if event.role != "in flight"] == events
    # Each of the four ranks sends six chunks to the other node.
    assert sum(event.role == "in flight" for event in merged) == 24
    again = invoke("trace", str(tmp_path / "all.json"), "--perfetto", str(tmp_path / "again.json"))
    assert again.exit_code == 0 and read_perfetto(tmp_path / "again.json").events == merged


def test_nodes_are_said_alike_in_every_command() -> None:
    """A number is one of nodes, several are the ranks of each."""
    helps = []
    for command in (["run"], ["demo"], ["plan", "all_gather_matmul"]):
        text = " ".join(invoke(*command, "--help").output.split())
        begin = text.index("--nodes COUNT|WIDTHS")
        helps.append(text[begin : text.index("Default: 1.", begin)])
    assert helps[0] == helps[1] == helps[2] and "does not come out even" in helps[0]
    show_layout = "import os; print(os.environ['TILEWIRE_LAYOUT'])"
    shape = ["--m", "12", "--k", "8", "--n", "8", "--json"]
    for options, layout in (
        (["--ranks", "3", "--nodes", "2"], "2,1"),
        (["--nodes", "2"], "1,1"),
        (["--nodes", "3+1"], "3,1"),
        (["--ranks", "4", "--nodes", "3,1"], "3,1"),
    ):
        command = [sys.executable, "-m", "tilewire", "run", *options, "--no-prefix", sys.executable, "-c", show_layout]
        done = subprocess.run(command, cwd=PACKAGE_ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert set(done.stdout.split()) == {layout}, done.stderr
        given = invoke("plan", "all_gather_matmul", *options, *shape)
        widths = invoke("plan", "all_gather_matmul", "--nodes", layout, *shape)
        assert given.exit_code == 0 and given.output == widths.output
        last = ["--rank", str(sum(map(int, layout.split(","))))]
        assert "rank = " in invoke("plan", "all_gather_matmul", *options, *shape, *last).output
    for command in (
        ["run", "--nodes", "2;1", "true"],
        ["demo", "--nodes", "2;1"],
        ["plan", "all_gather_matmul", *shape],
    ):
        result = invoke(*command, *["--nodes", "2;1"] * (command[0] == "plan"))
        assert result.exit_code == 2 and "--nodes is '2;1'" in result.output, result.output


@pytest.mark.parametrize("width", [60, 80, 200])
def test_doctor_loses_nothing_on_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [
        doctor.Check("a_name_of_its_own", doctor.OFF, "x" * 150, "costs that " * 9, "do /a/long/path/" + "y" * 150),
        doctor.Check("b", doctor.OK, "[found]"),
    ]
    monkeypatch.setattr("tilewire.cli.doctor.run_checks", lambda: checks)
    monkeypatch.setenv("COLUMNS", str(width))
    output = invoke("doctor").output
    assert max(map(len, output.splitlines())) <= width and "…" not in output
    squeezed = re.sub(r"[\s│]", "", output)
    for text in (
        "a_name_of_its_own",
        "x" * 150,
        "costs:" + "coststhat" * 9,
        "do:do/a/long/path/" + "y" * 150,
        "[found]",
    ):
        assert text in squeezed, text


@pytest.mark.parametrize(
    ("check", "transports", "install"),
    [
        (doctor.check_verbs, "the transports rc and srd", "libibverbs1"),
        (doctor.check_efa, "the transport srd", "EFA installer"),
    ],
)
def test_doctor_says_what_a_lack_of_an_rdma_library_costs(
    monkeypatch: pytest.MonkeyPatch, check: Callable[[], doctor.Check], transports: str, install: str
) -> None:
    def no_library(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", no_library)
    found = check()
    assert found.state == doctor.OFF and transports in found.cost and install in found.advice
    monkeypatch.setattr("ctypes.CDLL", lambda name: None)
    assert check().state == doctor.OK


def test_doctor_says_where_forks_beside_rdma_are_no_good(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:  # what ibv_is_fork_initialized() says: 0 disabled, 1 enabled, 2 not needed
        def __init__(self, says: int) -> None:
            self.ibv_is_fork_initialized = lambda: says

    def state(release: str, library: object) -> str:
        monkeypatch.setattr("ctypes.CDLL", lambda name: library)
        check = doctor.check_rdma_forks(release=release)
        assert isinstance(check, doctor.Check) and release in check.detail
        assert check.state == doctor.OK or "RDMAV_FORK_SAFE=1" in check.advice
        return check.state

    monkeypatch.delenv("RDMAV_FORK_SAFE", raising=False)
    monkeypatch.delenv("IBV_FORK_SAFE", raising=False)
    old = object()  # of before rdma-core 35
    for release, library, expected in (
        ("6.1.0-13-amd64", old, doctor.OK),
        ("5.12.0", Library(0), doctor.OK),
        ("5.11.22", Library(0), doctor.OFF),
        ("5.4.0-150-generic", old, doctor.OFF),
        ("4.18.0-477.el8", Library(2), doctor.OK),
    ):
        assert state(release, library) == expected, release
    monkeypatch.setenv("RDMAV_FORK_SAFE", "1")
    assert state("5.4.0", Library(0)) == doctor.OK

    def no_library(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", no_library)
    assert doctor.check_rdma_forks() == []


def test_doctor_describes_each_rdma_port_and_takes_none_that_is_down(tmp_path: Path) -> None:
    def add_port(device: str, state: str) -> None:
        port = tmp_path / device / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        (port / "link_layer").write_text("Ethernet\n")
        (port / "rate").write_text("100 Gb/sec (4X EDR)\n")

    assert doctor.check_rdma_devices(str(tmp_path / "none")).detail.startswith("none in")
    add_port("mlx5_0", "1: DOWN")
    check = doctor.check_rdma_devices(str(tmp_path))
    assert (check.state, check.detail) == (doctor.OFF, "mlx5_0:1 DOWN, Ethernet, 100 Gb/sec (4X EDR)")
    assert "the transports rc and srd" in check.cost and "rdma link" in check.advice
    add_port("mlx5_1", "4: ACTIVE")
    check = doctor.check_rdma_devices(str(tmp_path))
    assert check.state == doctor.OK and "mlx5_0:1 DOWN" in check.detail and "mlx5_1:1 ACTIVE" in check.detail
    (tmp_path / "mlx5_1" / "ports" / "1" / "state").unlink()
    check = doctor.check_rdma_devices(str(tmp_path))
    assert check.state == doctor.OFF and "mlx5_1:1 No such file" in check.detail


def test_doctor_says_what_a_gpu_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> Any:
        raise NoDriver("libcuda.so.1: cannot open shared object file")

    def state(check: Any) -> tuple[str, str]:
        return check.state, " ".join((check.detail, check.cost, check.advice))

    monkeypatch.setattr(doctor, "driver_version", no_driver)
    monkeypatch.setattr(doctor, "gpus", no_driver)
    monkeypatch.setattr(doctor, "find_control", lambda: None)
    monkeypatch.setattr(_core, "has_gpu_ranks", lambda: False)
    for check, piece in (
        (doctor.check_cuda_driver(), "install its driver"),
        (doctor.check_gpus(), "nvidia-smi"),
        (doctor.check_cuda_part(), "cmake.define.TILEWIRE_CUDA=ON"),
        (doctor.check_mps(), "several ranks on one GPU"),
    ):
        assert state(check)[0] == "off" and piece in state(check)[1], check
    h200, a100 = Gpu("H200", 132, 141 << 30, (9, 0)), Gpu("A100", 108, 80 << 30, (8, 0))
    monkeypatch.setattr(doctor, "driver_version", lambda: (13, 0))
    monkeypatch.setattr(doctor, "gpus", lambda: [h200, h200])
    monkeypatch.setattr(doctor, "find_control", lambda: "/usr/bin/control")
    monkeypatch.setattr(_core, "has_gpu_ranks", lambda: True)
    for check, piece in (
        (doctor.check_cuda_driver(), "for CUDA 13.0"),
        (doctor.check_gpus(), "2 x H200 (132 SMs, 141.0 GiB)"),
        (doctor.check_cuda_part(), 'device="cuda"'),
        (doctor.check_mps(), "/usr/bin/control"),
    ):
        assert state(check)[0] == "ok" and piece in state(check)[1], check
    monkeypatch.setattr(doctor, "driver_version", lambda: (11, 8))
    monkeypatch.setattr(doctor, "gpus", lambda: [a100])
    assert doctor.check_cuda_driver().state == "off" and "H100 and H200" in state(doctor.check_gpus())[1]


def test_run_names_what_does_not_fit(tmp_path: Path) -> None:
    result = invoke("run", "-n", "1", "--nodes", "2", "true")
    assert result.exit_code == 2 and "1 rank on 2 nodes" in result.output
    result = invoke("run", "-n", "2", str(tmp_path / "none.py"))
    assert result.exit_code == 2 and f"there is no script {tmp_path}" in result.output


def test_run_refuses_options_that_no_rank_would_take_before_it_starts_any(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, piece in (
        ("TILEWIRE_DEDLINE_S", "5", "nearest known name is TILEWIRE_DEADLINE_S"),
        ("TILEWIRE_RING_ENTRIES", "1000", "a power of two"),
    ):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            result = invoke("run", "-n", "2", "/bin/echo", "started")
        assert result.exit_code == 2 and "started" not in result.output, result.output
        assert piece in result.output and len(result.output.splitlines()) == 1, result.output


def test_options_behind_the_script_belong_to_the_script(tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text("import sys; print(sys.argv[1:])")
    command = [sys.executable, "-m", "tilewire", "run", "-n", "2", str(script), "-n", "7", "--help"]
    done = subprocess.run(command, cwd=PACKAGE_ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] ['-n', '7', '--help']", "[1] ['-n', '7', '--help']"]


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("tilewire", ["numpy", "ml_dtypes", "typer", "rich", "matplotlib", "tokenizers", "safetensors", "torch"]),
        ("tilewire.launcher", ["numpy", "typer", "rich", "matplotlib"]),
        ("tilewire.cli", ["numpy", "matplotlib", "tokenizers", "torch"]),
        ("tilewire.encoder", ["typer", "rich", "matplotlib", "tokenizers", "safetensors"]),
        ("tilewire.demo", ["typer", "rich", "matplotlib"]),
    ],
)
def test_import_stays_light(module: str, absent: list[str]) -> None:
    code = f"import sys, {module}; print([name for name in {absent} if name in sys.modules])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=PACKAGE_ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_transport_that_does_not_work_is_a_finding() -> None:
    seconds, wrong = run_self_test([1, 1], "pigeon")
    assert "Unavailable" in wrong and "pigeon" in wrong and seconds < 30


def test_plan_says_what_and_why(tmp_path: Path) -> None:
    shape = ["--m", "2048", "--k", "1024", "--n", "512,256", "--nodes", "2,2", "--network-gbit", "100"]
    result = invoke("plan", "all_gather_matmul", *shape, "--picture", str(tmp_path / "p.svg"))
    assert result.exit_code == 0, result.output
    assert "predicted" in result.output and "chosen" in result.output and "simulated" in result.output
    picture = (tmp_path / "p.svg").read_text()
    assert "simulated   M 2048 x K 1024 x N 512,256 bf16   nodes 2+2" in picture
    # The lanes that a run has, not the simulator's steps of a call.
    assert ">call<" in picture and ">await<" not in picture and ">begin<" not in picture
    numbers = json.loads(invoke("plan", "all_gather_matmul", *shape, "--json").output)
    assert numbers["op"] == "all_gather_matmul" and numbers["chunk_rows"] > 0


@pytest.mark.parametrize("op", [op.name for op in OPS])
def test_every_operation_is_planned_drawn_and_given_as_json(op: str, tmp_path: Path) -> None:
    sizes = {"m": "64", "k": "32", "n": "48", "s": "64", "heads": "4,2", "d": "64"}
    sizes |= {"t": "16", "e": "8", "h": "32", "i": "48"}
    names = importlib.import_module(next(one.module for one in OPS if one.name == op)).PLAN_SHAPE
    shape = [word for name in names for word in (f"--{name}", sizes[name])] + ["--nodes", "2,2"]
    result = invoke("plan", op, *shape, "--picture", str(tmp_path / "p.svg"))
    assert result.exit_code == 0 and "predicted" in result.output and "simulated" in result.output, result.output
    assert ">send<" in (tmp_path / "p.svg").read_text()
    numbers = json.loads(invoke("plan", op, *shape, "--json").output)
    assert numbers["op"] == op and numbers.get("chunk_rows", numbers.get("chunk_tokens", 0)) > 0


def test_a_plan_is_told_what_is_no_number() -> None:
    asked = ["plan", "ring_attention", "--s", "512", "--heads", "8,2", "--d", "64", "--nodes", "2,2"]
    full, causal = (invoke(*asked, *more).output for more in ([], ["--causal", "--positions", "zigzag"]))
    assert "predicted" in full and "predicted" in causal and full != causal, causal
    assert invoke(*asked, "--positions", "given").exit_code == 2
    assert "--causal" not in invoke("plan", "all_gather_matmul", "--help").output


def test_plan_names_what_cannot_be() -> None:
    for arguments, piece in (
        (["matmul", "--m", "1", "--k", "1", "--n", "1"], "there is no operation matmul"),
        (["all_gather_matmul", "--m", "1", "--k", "-1", "--n", "1"], "k = -1"),
        (["all_gather_matmul", "--m", "x", "--k", "1", "--n", "1"], "--m is 'x'"),
        (["all_gather_matmul", "--m", "1,2,3", "--k", "1", "--n", "1", "--nodes", "2"], "m has 3 counts, must have 2"),
        (["all_gather_matmul", "--m", "1", "--k", "1", "--n", "1", "--nodes", "1+1", "--rank", "2"], "rank = 2"),
    ):
        result = invoke("plan", *arguments)
        assert result.exit_code == 2 and piece in result.output, result.output


RATES = ["--tflops", "--copy-gb", "--node-gb", "--network-gbit"]
TIMES = ["--node-latency-us", "--latency-us", "--step-us", "--command-us"]


@pytest.mark.parametrize("option", [*RATES, *TIMES])
def test_numbers_that_no_machine_has_are_refused_by_name(option: str) -> None:
    """0 is a time, but no rate: it stands for nothing else."""
    one = ["plan", "all_gather_matmul", "--m", "1", "--k", "1", "--n", "1"]
    for value in ("nan", "inf", "-1", "1e999", *(["0"] if option in RATES else [])):
        result = invoke(*one, f"{option}={value}")
        assert result.exit_code == 2 and option in result.output and "finite" in result.output, result.output
    if option in TIMES:
        assert invoke(*one, f"{option}=0").exit_code == 0


def test_plan_says_which_machine_it_took_and_every_number_of_it_has_an_option() -> None:
    shape = ["plan", "all_gather_matmul", "--m", "4096", "--k", "512", "--n", "512", "--nodes", "2,2"]
    plain = invoke(*shape)
    assert plain.exit_code == 0 and "machine: cpu\n" in plain.output, plain.output
    help_text = " ".join(invoke("plan", "all_gather_matmul", "--help").output.split())
    for machine in machines():
        assert f"{machine.name}: {machine.purpose}" in help_text
        named = invoke(*shape, "--machine", machine.name)
        assert f"machine: {machine.name}\n" in named.output, named.output
        for number in machine.numbers.values():
            assert f"{number:.6g} ({machine.name})" in help_text
    given = invoke(*shape, *(part for option in (*RATES, *TIMES) for part in (option, "7.5")), "--workers", "7")
    text = " ".join(given.output.split())
    assert "7 workers, each of 7.5 TFLOP/s; copies within a rank at 7.5 GB/s" in text, given.output
    assert "within a node 7.5 GB/s, 7.5 us; between nodes 7.5 Gbit/s, 7.5 us" in text
    assert "a step of a role 7.5 us; a command of a proxy 7.5 us" in text
    unknown = invoke(*shape, "--machine", "abacus")
    assert unknown.exit_code == 2 and "'abacus'" in unknown.output and "cpu, h200" in unknown.output


def test_plan_sets_long_lines_in_below_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    output = invoke("plan", "all_gather_matmul", "--m", "2048", "--k", "1024", "--n", "512", "--nodes", "2,2").output
    lines = output.splitlines()
    assert max(map(len, lines)) <= 60 and any(line.startswith("    ") for line in lines), output
    assert folded("a\n\n  b c", 4) == "a\n\n  b\n      c"


def test_sizes_and_ranks_beyond_all_bounds_are_refused_by_name() -> None:
    huge = str(10**30)
    shape = {"--m": "1", "--k": "1", "--n": "1"}
    for name, value in (("--m", huge), ("--k", huge), ("--n", huge), ("--nodes", "2000000"), ("--workers", "0")):
        options = [part for pair in {**shape, name: value}.items() for part in pair]
        result = invoke("plan", "all_gather_matmul", *options)
        assert result.exit_code == 2 and name in result.output, result.output


def test_grace_must_be_a_time() -> None:
    result = invoke("run", "--grace", "nan", "true")
    assert result.exit_code == 2 and "--grace" in result.output


def test_plan_speaks_in_units_that_one_reads() -> None:
    output = invoke("plan", "all_gather_matmul", "--m", "2048", "--k", "1024", "--n", "512", "--nodes", "2,2").output
    assert " ms" in output
    assert not re.search(r"\d{5,}\.?\d* .?s\b", output), output


@pytest.mark.parametrize("is_watched", [True, False])
def test_long_work_says_for_how_long(
    is_watched: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(numbers, "_TICK_S", 0.001)
    monkeypatch.setattr(numbers, "_FIRST_WORD_S", 0.001)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_watched)
    told, end = "", time.monotonic() + 60
    with numbers.working("planning much"):
        while not re.search(r"planning much \.\.\. \d+ s", told) and time.monotonic() < end:
            told += capsys.readouterr().err
    assert ("\rplanning much ... 0 s" if is_watched else "tilewire: planning much ... 0 s\n") in told
    assert capsys.readouterr().err.endswith("\r\033[K") == is_watched
