"""The demo over ranks that are threads: every case passes, and a damaged gather on one rank fails it."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import tilewire as tw
from fake_cluster import FakeCluster, FakeComm, Tamper
from synthetic_trace import make_trace
from tilewire import _core, demo, demo_report, encoder_weights
from tilewire.all_gather_cases import AllGatherCase, odd_cases, real_cases
from tilewire.attention_cases import odd_cases as attention_odd_cases
from tilewire.cli import app
from tilewire.cli import demo as demo_command
from tilewire.demo_cases import Case, CaseResult, gpu_cases, run_case
from tilewire.demo_progress import show_progress, step_line
from tilewire.demo_rank import ON_GPU, WITHOUT_ENCODER
from tilewire.encoder_weights import EncoderModel, load_model
from tilewire.errors import Unavailable
from tilewire.gpu import demo_machine, mps
from tilewire.gpu.driver import Gpu
from tilewire.launcher import Launch
from tilewire.linear import Array
from tilewire.rank_processes import Sink
from tilewire.trace_events import LEAST_OVERLAP_BYTES, as_events
from tilewire.trace_files import read_perfetto


@cache
def encoder_model() -> EncoderModel:
    return load_model()


def run_all(world_size: int, folder: Path, cases: Sequence[Case], tamper: Tamper | None = None) -> demo.Summary:
    work = demo.Work(cases, encoder_model())
    FakeCluster(world_size, tamper).run(lambda machine: demo.run_rank(machine, folder, work))
    return demo.read_results(folder, world_size)


def show(summary: demo.Summary, width: int = 150) -> str:
    out = io.StringIO()
    demo_report.print_summary(summary, Console(file=out, width=width))
    return out.getvalue()


def test_real_layer_passes(tmp_path: Path) -> None:
    summary = run_all(4, tmp_path, [replace(case, calls=1) for case in real_cases(4)])
    assert summary.ok, show(summary)
    # Four ranks, each all 512 rows of its 2048 columns.
    assert [case.compared for case in summary.cases] == [512 * 8192] * 2


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_odd_shapes_pass_at_any_world_size(world_size: int, tmp_path: Path) -> None:
    cases = odd_cases(world_size)
    summary = run_all(world_size, tmp_path, cases)
    assert summary.ok, show(summary)
    for case, result in zip(cases, summary.cases, strict=True):
        expected = sum(case.rows) * (sum(map(sum, case.columns)) + world_size * case.k * case.gathered)
        assert result.compared == expected, case.name


def swap_shards(rank: int, shards: list[Array]) -> list[Array]:
    if rank == 1 and shards[0].shape == shards[1].shape:
        shards[0], shards[1] = shards[1], shards[0]
    return shards


def double_one_element(rank: int, shards: list[Array]) -> list[Array]:
    if rank == 2 and shards[0].size:
        # The last element that is not 0; where all are, there is nothing to double.
        places = np.argwhere(shards[0].astype(np.float32))
        shards[0][tuple(places[-1])] *= 2
    return shards


def swap_rows(rank: int, shards: list[Array]) -> list[Array]:
    if len(shards[0]) > 1:
        shards[0][[0, 1]] = shards[0][[1, 0]]
    return shards


@pytest.mark.parametrize("tamper", [swap_shards, double_one_element, swap_rows])
def test_a_damaged_gather_fails_every_case_that_it_touches(tamper: Tamper) -> None:
    cases = [case for case in odd_cases(4) if min(case.rows[:2]) > 1 and case.k > 0]
    even = [case for case in cases if case.rows[0] == case.rows[1]]
    assert len(cases) > 9 and len(even) > 4
    for case in even if tamper is swap_shards else cases:
        results = FakeCluster(4, tamper).run(partial(run_case, case))
        assert not all(result.ok for result in results), case.name


def test_failure_names_case_rank_and_element(tmp_path: Path) -> None:
    summary = run_all(4, tmp_path, [AllGatherCase("even", [8] * 4, 64, [[16] * 4])], swap_shards)
    assert not summary.ok
    text = " ".join(show(summary).split())
    assert demo_report.verdict_of(summary) == "[bold red]FAILED[/bold red]: even."
    assert "FAILED" in text and "rank 1: elements are beyond their tolerance; worst element" in text


def test_wrong_dtype_of_the_result_fails() -> None:
    class WideComm(FakeComm):
        def all_gather_matmul(self, *arguments, **options):  # type: ignore[no-untyped-def]
            return super().all_gather_matmul(*arguments, **options).astype(np.float32)

    cluster = FakeCluster(1)
    result = run_case(AllGatherCase("wide", [4], 8, [[8]]), WideComm(cluster, 0))
    assert not result.ok and "dtype float32, expected bfloat16" in result.message


def test_rank_that_left_no_results_is_named(tmp_path: Path) -> None:
    run_all(2, tmp_path, [AllGatherCase("even", [8] * 2, 64, [[16] * 2])])
    (tmp_path / "rank1.json").unlink()
    with pytest.raises(FileNotFoundError, match="no results of rank 1"):
        demo.read_results(tmp_path, 2)


def test_encoder_that_differs_on_one_rank_fails_the_demo(tmp_path: Path) -> None:
    run_all(2, tmp_path, [AllGatherCase("even", [8] * 2, 64, [[16] * 2])])
    content = json.loads((tmp_path / "rank1.json").read_text())
    content["encoder"]["difference"] = 0.1
    (tmp_path / "rank1.json").write_text(json.dumps(content))
    summary = demo.read_results(tmp_path, 2)
    assert not summary.ok and "NOT equal" in show(summary)
    content["encoder"]["difference"] = content["encoder"]["tolerance"] / 2
    (tmp_path / "rank1.json").write_text(json.dumps(content))
    text = " ".join(show(demo.read_results(tmp_path, 2)).split())
    assert f"equal within the tolerance of bf16, {content['encoder']['tolerance']:.2g}" in text
    assert demo_report.verdict_of(summary).endswith(": sentence encoder.")


def test_no_case_at_all_is_no_success(tmp_path: Path) -> None:
    summary = run_all(1, tmp_path, [])
    assert not summary.ok and "nothing was run" in demo_report.verdict_of(summary)


def test_a_table_an_operation_under_its_own_name() -> None:
    cases = [
        CaseResult(op, f"{op} case", "2 x 2", True, "ok", 1, 0.001, {}) for op in ("matmul_x", "matmul_y", "matmul_x")
    ]
    text = show(demo.Summary(cases, [], 4))
    first, second = text.split("matmul_y on 4 ranks")
    assert "matmul_x on 4 ranks" in first and first.count("matmul_x case") == 2 and "matmul_y case" not in first
    assert second.count("matmul_y case") == 1 and "matmul_x" not in second


def large_case(world_size: int) -> CaseResult:
    """As long in all its cells as a case gets."""
    case = AllGatherCase("list of weights, biases, gathered rows", [1234] * world_size, 8192, [[2048] * world_size] * 3)
    moved = {"copy": 1023 << 20, "node": (1 << 30) + 1, "network": 1023 << 10}
    return CaseResult(case.op, case.name, case.shape, True, "", 512 * 81920, 0.1234, moved, make_trace())


@pytest.mark.parametrize("width", [72, 80, 132, 400])
def test_no_column_of_the_tables_is_lost_on_a_terminal(width: int) -> None:
    encoder = demo.EncoderResult((-np.eye(6)).tolist(), 0, 0, 0.1, 9)
    summary = demo.Summary([large_case(4), replace(large_case(4), name="x" * 90, ok=False)], [encoder], 4)
    text = show(summary, width)
    assert max(map(len, text.splitlines())) <= width and "…" not in text
    for name in ("case", "check", "time", "copy", "node", "network", "overlap", "sentence"):
        assert re.search(rf"{name}\s", text), name
    for cell in ("ok 41943040", "FAILED", "123.4 ms", "1023 MiB", "1 GiB", "1023 KiB", "-1.000", "%"):
        assert cell in text, cell
    # What is folded goes on in the next line of its column.
    rows = [re.split("[│┃]", line) for line in text.splitlines() if line[:1] in "│┃"]
    left = "".join(cell.replace(" ", "") for number in (1, 2) for cell in (row[number] for row in rows))
    for cell in (
        large_case(4).name,
        large_case(4).shape,
        "x" * 90,
        *demo.SENTENCES,
        "rows x K x N, of each rank",
    ):
        assert cell.replace(" ", "") in left, cell
    lines = [line for line in text.splitlines() if "123.4 ms" in line]
    assert all(("1023 KiB" in line) == (width == 400) for line in lines), "a line a case only where there is room"


def test_n_in_the_table_is_that_of_a_rank() -> None:
    """As in a call and in `tilewire plan`, not the columns of all ranks together."""
    case = AllGatherCase("layer", [128, 128], 64, [[32, 32], [8, 5]])
    assert case.shape == "128 each x 64 x 32 each, 8+5 bf16"
    assert "rows x K x N, of each rank" in show(demo.Summary([large_case(2)], [], 2))
    assert "N: columns of one rank's weight" in CliRunner().invoke(app, ["plan", "all_gather_matmul", "--help"]).output


def test_a_case_that_moves_next_to_nothing_has_no_overlap() -> None:
    tiny = replace(large_case(4), events=[replace(one, bytes=1) for one in as_events(make_trace())])
    small, large = (show(demo.Summary([case], [], 4)) for case in (tiny, large_case(4)))
    assert re.search(r"\d%", large) and not re.search(r"\d%", small)
    assert re.search(r"\s-\s+│\n", small) and "overlap -: less than 1 MiB went between ranks" in small
    assert LEAST_OVERLAP_BYTES == 1 << 20


def test_what_the_trace_had_no_room_for_is_summed_and_drawn(tmp_path: Path) -> None:
    run_all(2, tmp_path, [AllGatherCase("even", [8] * 2, 64, [[16] * 2])])
    for rank in range(2):
        path = tmp_path / f"rank{rank}.json"
        content = json.loads(path.read_text())
        content["cases"][0] |= {"dropped": 4, "events": [asdict(event) for event in make_trace()]}
        path.write_text(json.dumps(content))
    summary = demo.read_results(tmp_path, 2)
    demo.write_timeline(summary, tmp_path)
    assert summary.cases[0].dropped == 8 and "INCOMPLETE: 8 events" in (tmp_path / "timeline.svg").read_text()


def test_timeline_files_of_the_first_case(tmp_path: Path) -> None:
    case = CaseResult(
        "all_gather_matmul", "layer", "(4x128) x 2048 x 8192 bfloat16", True, "ok", 1, 0.001, {}, make_trace()
    )
    paths = demo.write_timeline(demo.Summary([case], [], 4), tmp_path)
    assert [path.name for path in paths] == ["timeline.json", "timeline.svg", "timeline.png"]
    assert read_perfetto(paths[0]).events == as_events(make_trace())
    assert all(path.stat().st_size > 1000 for path in paths)


@pytest.fixture
def quick_ranks(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """`tilewire demo` whose ranks leave the files of one small case behind; gives the commands that it started."""
    commands: list[list[str]] = []

    def launch_quickly(plan: Launch, out: Sink) -> int:
        commands.append(list(plan.command))
        with_encoder = WITHOUT_ENCODER not in plan.command
        content = {
            "cases": [
                asdict(
                    CaseResult(
                        "all_gather_matmul", "layer", "(2x8) x 8 x 8 bf16", True, "ok", 64, 0.001, {}, make_trace()
                    )
                )
            ],
            "encoder": asdict(demo.EncoderResult(np.eye(6).tolist(), 0, 0, 0.1, 9)) if with_encoder else None,
        }
        for rank in range(plan.world_size):
            Path(plan.command[3], f"rank{rank}.json").write_text(json.dumps(content))
        out.write(f"[0] {step_line(1, 2, 'layer')}\n")
        return 0

    monkeypatch.setattr(demo_command, "launch", launch_quickly)
    monkeypatch.setattr(demo_machine, "find_gpu", lambda: (None, ""))
    return commands


def test_demo_without_matplotlib_says_so_first_and_still_shows_the_table(
    quick_ranks: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "timeline.svg").write_text("of an old run")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = CliRunner().invoke(app, ["demo", "--nodes", "1,1", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "pip install 'tilewire[demo]'" in text.split("starting")[0], "it is said only after the work"
    assert "ok 128" in text and text.count("left out: the timeline pictures") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["timeline.json"]


def test_demo_without_the_encoder_runs_the_rest(
    quick_ranks: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(encoder_weights, "PARTS", ("no-such-package",))
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "ok 256" in result.output and "Not installed: no-such-package" in result.output
    assert "Sentence encoder" not in result.output and quick_ranks[0][-1] == WITHOUT_ENCODER


def test_whole_demo_leaves_nothing_out(quick_ranks: list[list[str]], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 0 and "left out" not in result.output
    assert "All right: 1 cases, and the encoder." in result.output
    assert "Sentence encoder" in result.output and (tmp_path / "timeline.png").exists()


GPU = Gpu("a GPU of this test", 132, 80 << 30, (9, 0))


def test_demo_runs_on_the_gpu_too_where_there_is_one(
    quick_ranks: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plans: list[Launch] = []
    quickly = demo_command.launch

    def launch(plan: Launch, out: Sink) -> int:
        plans.append(plan)
        return quickly(plan, out)

    monkeypatch.setattr(demo_machine, "find_gpu", lambda: (GPU, ""))
    monkeypatch.setattr(mps, "find_control", lambda: "/bin/true")
    monkeypatch.setattr(demo_command, "launch", launch)
    result = CliRunner().invoke(app, ["demo", "--nodes", "2,1", "--out", str(tmp_path)])
    text = " ".join(result.output.split())
    assert result.exit_code == 0 and "on a GPU of this test, 3 ranks on 2 nodes:" in text, text
    assert [ON_GPU in command for command in quick_ranks] == [False, True]
    assert [plan.virtual for plan in plans] == [False, True] and plans[1].layout == [2, 1]
    slow = "TILEWIRE_EMULATED_BANDWIDTH_GBPS"
    assert slow in plans[0].environment and slow not in plans[1].environment

    monkeypatch.setattr(mps, "find_control", lambda: None)
    result = CliRunner().invoke(app, ["demo", "--nodes", "2,1", "--out", str(tmp_path)])
    text = " ".join(result.output.split())
    assert result.exit_code == 0 and "on a GPU of this test, 1 rank on 1 node:" in text, text
    assert "left out: 3 ranks on 2 nodes on the GPU. There is no nvidia-cuda-mps-control" in text
    assert not plans[-1].virtual and plans[-1].layout == [1] and plans[-1].environment["TILEWIRE_DEVICE"] == "cuda"
    monkeypatch.setattr(mps, "find_control", lambda: "/bin/true")

    def no_daemon(plan: Launch, out: Sink) -> int:
        if plan.virtual:
            raise Unavailable("the MPS daemon does not start")
        return quickly(plan, out)

    monkeypatch.setattr(demo_command, "launch", no_daemon)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 0 and "left out: ranks on the GPU. the MPS daemon" in " ".join(result.output.split())


@pytest.mark.parametrize(("code", "said"), [(130, "interrupted"), (1, "a rank failed; see its output above")])
def test_ctrl_c_is_no_failure_of_a_rank(code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Launch] = []

    def launch(plan: Launch, out: Sink) -> int:
        plans.append(plan)
        return code

    monkeypatch.setattr(demo_command, "launch", launch)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == code and f"tilewire: {said}\n" in result.output, result.output
    assert [plan.name for plan in plans] == ["tilewire demo"], "who speaks of the ranks"


def test_help_says_what_the_demo_runs_on() -> None:
    text = " ".join(CliRunner().invoke(app, ["demo", "--help"]).output.split())
    assert text.count("2 nodes of 2") == 3, "its own text and both options"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"gpus": lambda: []}, ""),
        ({"gpus": lambda: [replace(GPU, capability=(8, 0), name="an A100")]}, "here is an A100"),
        ({"has_gpu_ranks": lambda: False}, "cmake.define.TILEWIRE_CUDA=ON"),
        ({"find_spec": lambda name: None}, "torch is not installed"),
    ],
)
def test_a_gpu_that_the_demo_cannot_use_is_named(
    changes: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = {"gpus": lambda: [GPU], "has_gpu_ranks": lambda: True}
    good |= {"find_spec": lambda name: object()}
    for name, function in {**good, **changes}.items():
        home = {"has_gpu_ranks": _core, "find_spec": demo_machine.importlib.util}.get(name, demo_machine)
        monkeypatch.setattr(home, name, function)
    gpu, reason = demo_machine.find_gpu()
    assert gpu is None and (why in reason if why else not reason), reason
    for name, function in good.items():
        home = {"has_gpu_ranks": _core, "find_spec": demo_machine.importlib.util}.get(name, demo_machine)
        monkeypatch.setattr(home, name, function)
    assert demo_machine.find_gpu() == (GPU, "")


def test_gpu_ranks_get_what_a_kernel_can_do() -> None:
    names = {case.name for case in demo.gpu_work(4, False, lambda step, steps, name: None).cases}
    everything = {case.name for case in demo.all_work(4, False, lambda step, steps, name: None).cases}
    alone = {case.name for case in gpu_cases(4)}
    assert alone == {"a long sequence, zigzag"} and alone < names and names - alone < everything
    assert {"uneven rows", "no rows anywhere", "bias", "K = 0", "gathered rows"} < names
    assert "fp32" not in names


def test_plans_of_cases_are_ones_that_kernels_have() -> None:
    cases = [case for case in attention_odd_cases(4) if case.plan is not None and case.on_gpu]
    there: Any = {"machine": "h200", "nodes": [2, 2]}
    assert cases
    for case in cases:
        rows = np.zeros((case.batch, 1, case.heads[0], case.d))
        plan = {**case.plan, **demo_machine.kernel_numbers("ring_attention", rows)}
        planned = tw.plan_ring_attention(case.rows, case.heads, case.d, plan=plan, **there)
        assert planned.as_dict()["tile_rows"] == plan["tile_rows"]
    with pytest.raises(tw.InvalidArgument, match="tiles"):
        tw.plan_ring_attention([40] * 4, (6, 3), 64, plan={**plan, "tile_rows": 64, "chunk_rows": 64}, **there)


def test_gpu_ranks_encode_where_they_have_all_operations_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(op: str) -> bool:
        case = replace(odd_cases(1)[0])
        other = SimpleNamespace(op=op, on_gpu=True, name="")
        monkeypatch.setattr(demo, "real_cases", lambda world_size: [case, other])
        monkeypatch.setattr(demo, "odd_cases", lambda world_size: [])
        return demo.gpu_work(1, True, lambda step, steps, name: None).model is not None

    monkeypatch.setattr(demo, "load_model", object)
    assert ask("matmul_reduce_scatter") and not ask("another")


def test_work_without_a_model_has_no_encoder(tmp_path: Path) -> None:
    steps: list[str] = []
    work = demo.Work(
        [AllGatherCase("even", [8], 64, [[16]])], None, lambda step, of, name: steps.append(f"{step}/{of} {name}")
    )
    FakeCluster(1).run(lambda machine: demo.run_rank(machine, tmp_path, work))
    summary = demo.read_results(tmp_path, 1)
    assert summary.ok and summary.encoder == [] and steps == ["1/1 all_gather_matmul: even"]


def test_steps_stand_in_one_column() -> None:
    out = io.StringIO()
    with show_progress(Console(file=out, width=100), "starting") as output:
        output.write(f"[0] {step_line(9, 21, 'nine')}\n[0] {step_line(10, 21, 'ten')}\n")
    nine, ten = out.getvalue().splitlines()[1:]
    assert nine.index("/21 nine") == ten.index("/21 ten")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_steps_are_progress_and_other_lines_stay_as_they_are(is_terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=is_terminal)
    with show_progress(console, "starting") as output:
        output.write(f"[0] {step_line(3, 7, 'a [case]')}\n[1] a [warning]\n")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    step = "2/7 0:00:00 a [case]" if is_terminal else "3/7 a [case]"
    assert "@step" not in text and step in text and "[1] a [warning]" in text
