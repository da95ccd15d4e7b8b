"""The demo: real and odd products, a sentence encoder, a table and a timeline.

`run_rank` is one rank's part; it leaves its results in a file of a shared folder. `read_results` reads the files of all
ranks. Only then is it known whether all went well: a rank without a file has failed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewire.demo_cases import Case, CaseResult, Machine, odd_cases, real_cases, run_case
from tilewire.encoder import encode, similarity_tolerance
from tilewire.encoder_weights import EncoderModel, load_model
from tilewire.linear import LocalLinear, OpLinear
from tilewire.trace_events import LINK_NOTE, as_events, flights, overlap, write_events, write_file, write_perfetto

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SENTENCES = (
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
    "She went to the match by car.",
    "The kernel overlaps communication with computation.",
    "Data moves between the processors while they multiply.",
)
TABLE_NOTE = f"check: elements compared on all ranks. time: the slowest rank's. {LINK_NOTE}"


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


def run_rank(machine: Machine, folder: Path, work: Work) -> None:
    """Runs everything on this rank and writes `rank<r>.json`. Collective."""
    steps = len(work.cases) + (work.model is not None)
    content: dict[str, Any] = {"cases": [], "encoder": None}
    for step, case in enumerate(work.cases, 1):
        work.tell(step, steps, case.name)
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
    """Writes the first case's events, Perfetto file and pictures; gives their paths (none without events)."""
    from tilewire.timeline import write_picture

    paths = [folder / name for name in ("events.json", "perfetto.json", "timeline.svg", "timeline.png")]
    for path in paths:
        path.unlink(missing_ok=True)  # an old run's must not pass for this one's
    first = summary.cases[0]
    if not first.events:
        return []
    title = f"{first.op}   {first.shape}   {summary.world_size} ranks"
    write_events(first.events, paths[0], first.dropped)
    write_perfetto(first.events, paths[1], title, first.dropped)
    if not with_pictures:
        return paths[:2]
    for path in paths[2:]:
        write_picture(first.events, path, title, first.dropped)
    return paths


def print_summary(summary: Summary, console: Console) -> None:
    for op in dict.fromkeys(case.op for case in summary.cases):
        console.print(case_table(op, summary))
    console.print(TABLE_NOTE, highlight=False)
    for case in summary.cases:
        if not case.ok:
            console.print(f"[red]{case.name}[/red]: ", end="")
            console.print(case.message, markup=False, highlight=False)
    if summary.encoder:
        print_encoder(summary, console)


def verdict_of(summary: Summary) -> str:
    """One line: did all go well?"""
    wrong = [case.name for case in summary.cases if not case.ok]
    wrong += ["sentence encoder"] * any(not result.ok for result in summary.encoder)
    if wrong or not summary.ok:
        return f"[bold red]FAILED[/bold red]: {', '.join(wrong) or 'nothing was run'}."
    return f"[green]All right[/green]: {len(summary.cases)} cases{', and the encoder' * bool(summary.encoder)}."


def print_encoder(summary: Summary, console: Console) -> None:
    encoder = next((result for result in summary.encoder if not result.ok), summary.encoder[0])
    console.print(similarity_table(encoder))
    verdict = "[green]equal[/green]" if encoder.ok else "[red]NOT equal[/red]"
    console.print(
        f"Sharded over {summary.world_size} ranks and unsharded: {verdict}; similarities differ by "
        f"{encoder.difference:.2g}, embeddings by {encoder.embedding_difference:.2g}, bf16 tolerance "
        f"{encoder.tolerance:.2g}.",
        highlight=False,
    )


def case_table(op: str, summary: Summary) -> Table:
    from rich.table import Table

    from tilewire.timeline import readable_bytes

    table = Table(title=f"{op} on {summary.world_size} ranks", title_justify="left")
    table.add_column("case", min_width=16)
    table.add_column("shape: (rows) x K x N", min_width=20)
    for name in ("check", "time", "copy", "node", "network", "overlap"):
        table.add_column(name, justify="right", no_wrap=True)
    for case in (case for case in summary.cases if case.op == op):
        check = f"[green]ok[/green] {case.compared}" if case.ok else "[bold red]FAILED[/bold red]"
        moved = [readable_bytes(case.bytes_by_link.get(link, 0)) for link in ("copy", "node", "network")]
        shares = overlap(case.events).values()
        share = f"{sum(shares) / len(shares):.0%}" if shares else "-"
        table.add_row(case.name, case.shape, check, f"{case.time_s * 1e3:.2f} ms", *moved, share)
    return table


def similarity_table(encoder: EncoderResult) -> Table:
    from rich.table import Table

    table = Table(title=f"Sentence encoder, {encoder.rows} tokens: similarities", title_justify="left")
    table.add_column("sentence")
    for number in range(1, len(SENTENCES) + 1):
        table.add_column(str(number), justify="right", no_wrap=True)
    for number, (sentence, row) in enumerate(zip(SENTENCES, encoder.similarities, strict=True), 1):
        cells = [f"[bold]{value:.3f}[/bold]" if 0.4 < value < 0.999 else f"{value:.3f}" for value in row]
        table.add_row(f"{number} {sentence}", *cells)
    return table
