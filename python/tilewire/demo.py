"""The demo: real and odd products, a sentence encoder and a timeline.

`run_rank` is one rank's part; it leaves its results in a file of a shared folder. `read_results` reads the files of all
ranks. Only then is it known whether all went well: a rank without a file has failed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewire.demo_cases import Case, CaseResult, Machine, gpu_cases, odd_cases, real_cases, run_case
from tilewire.encoder import OPS_USED, encode, similarity_tolerance
from tilewire.encoder_weights import EncoderModel, load_model
from tilewire.linear import LocalLinear, OpLinear
from tilewire.trace_events import Recording, as_events, flights
from tilewire.trace_files import write_file, write_recording

SENTENCES = (
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
    "She went to the match by car.",
    "The kernel overlaps communication with computation.",
    "Data moves between the processors while they multiply.",
)


@dataclass(frozen=True)
class EncoderResult:
    """One rank's view of the encoder's run."""

    similarities: list[list[float]]
    difference: float  # largest |similarity - unsharded similarity|
    embedding_difference: float  # largest distance of an embedding from the unsharded one
    tolerance: float
    rows: int  # tokens of all sentences

    @property
    def ok(self) -> bool:
        return max(self.difference, self.embedding_difference) <= self.tolerance


@dataclass(frozen=True)
class Work:
    """What a rank does in a demo."""

    cases: Sequence[Case]
    model: EncoderModel | None  # None: no sentence encoder
    tell: Callable[[int, int, str], None] = lambda step, steps, name: None  # called as each step begins


def all_work(world_size: int, with_encoder: bool, tell: Callable[[int, int, str], None]) -> Work:
    cases = [*real_cases(world_size), *odd_cases(world_size)]  # the first one gives the timeline
    return Work(cases, load_model() if with_encoder else None, tell)


def gpu_work(world_size: int, with_encoder: bool, tell: Callable[[int, int, str], None]) -> Work:
    """The cases that GPU ranks can run, and the encoder where they can run all operations that it uses."""
    every = (*real_cases(world_size), *gpu_cases(world_size), *odd_cases(world_size))
    cases = [case for case in every if case.on_gpu]
    can_encode = {case.op for case in cases}.issuperset(OPS_USED)
    return Work(cases, load_model() if with_encoder and can_encode else None, tell)


def run_rank(machine: Machine, folder: Path, work: Work) -> None:
    """Runs everything on this rank and writes `rank<r>.json`. Collective."""
    steps = len(work.cases) + (work.model is not None)
    content: dict[str, Any] = {"cases": [], "encoder": None}
    for step, case in enumerate(work.cases, 1):
        work.tell(step, steps, f"{case.op}: {case.name}")
        content["cases"].append(asdict(run_case(case, machine)))
    if work.model is not None:
        work.tell(steps, steps, "sentence encoder")
        content["encoder"] = asdict(run_encoder(machine, work.model))
    write_file(folder / f"rank{machine.rank}.json", json.dumps(content).encode())


def run_encoder(machine: Machine, model: EncoderModel) -> EncoderResult:
    """Encodes the sentences sharded and, on this rank alone, unsharded. Collective."""
    tokens = model.tokenize(SENTENCES)
    sharded = encode(model, tokens, OpLinear(machine))
    whole = encode(model, tokens, LocalLinear())
    similarities = sharded @ sharded.T
    difference, distance = np.abs(similarities - whole @ whole.T).max(), np.linalg.norm(sharded - whole, axis=1).max()
    return EncoderResult(
        [[float(value) for value in row] for row in similarities],
        # A NaN must not pass for a small difference.
        float(np.nan_to_num(difference, nan=np.inf)),
        float(np.nan_to_num(distance, nan=np.inf)),
        similarity_tolerance(model.config),
        sum(map(len, tokens)),
    )


@dataclass(frozen=True)
class Summary:
    """What all ranks say together. Times are those of the slowest rank, bytes are sums, checks hold on all ranks."""

    cases: list[CaseResult]
    encoder: list[EncoderResult]  # of each rank, or none when it was left out
    world_size: int

    @property
    def ok(self) -> bool:
        return bool(self.cases) and all(case.ok for case in self.cases) and all(e.ok for e in self.encoder)


def read_results(folder: Path, world_size: int) -> Summary:
    """Merges the ranks' files; FileNotFoundError names the ranks that left none."""
    paths = [folder / f"rank{rank}.json" for rank in range(world_size)]
    missing = [str(rank) for rank, path in enumerate(paths) if not path.exists()]
    if missing:
        raise FileNotFoundError(f"no results of rank {', '.join(missing)}: see its output above")
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    by_case = zip(*([_case_result(row) for row in content["cases"]] for content in contents), strict=True)
    encoder = [EncoderResult(**content["encoder"]) for content in contents if content["encoder"] is not None]
    return Summary([_merge(list(results)) for results in by_case], encoder, world_size)


def _case_result(row: dict[str, Any]) -> CaseResult:
    return CaseResult(**{**row, "events": as_events(row["events"])})


def _merge(results: list[CaseResult]) -> CaseResult:
    first = results[0]
    failures = [f"rank {rank}: {result.message}" for rank, result in enumerate(results) if not result.ok]
    links = sorted({link for result in results for link in result.bytes_by_link})
    events = as_events([event for result in results for event in result.events])
    return CaseResult(
        first.op,
        first.name,
        first.shape,
        not failures,
        "; ".join(failures) or first.message,
        sum(result.compared for result in results),
        max(result.time_s for result in results),
        {link: sum(result.bytes_by_link.get(link, 0) for result in results) for link in links},
        as_events([*events, *flights(events)]),
        sum(result.dropped for result in results),
    )


def write_timeline(summary: Summary, folder: Path, with_pictures: bool = True) -> list[Path]:
    """Writes the first case's timeline, as JSON and as pictures; gives their paths (none without events)."""
    paths = [folder / f"timeline.{kind}" for kind in ("json", "svg", "png")]
    for path in paths:
        path.unlink(missing_ok=True)  # an old run's must not pass for this one's
    first = summary.cases[0]
    if not first.events:
        return []
    written = paths if with_pictures else paths[:1]
    for path in written:
        title = f"{first.op}   {first.shape}   {summary.world_size} ranks"
        write_recording(Recording(first.events, first.dropped), path, title)
    return written
