"""What a demo says at its end: a table an operation, the encoder's similarities, and one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewire.demo import SENTENCES, EncoderResult, Summary
from tilewire.demo_cases import CaseResult
from tilewire.trace_events import LINK_NOTE, NO_OVERLAP_NOTE, telling_overlap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

CASE, SHAPE = "case", "rows x K x N, of each rank"
TABLE_NOTE = (
    "check: elements compared on all ranks. time: of the call alone, on the slowest rank; making inputs and comparing "
    f"every element takes longer. {LINK_NOTE}"
)


def print_summary(summary: Summary, console: Console) -> None:
    for op in dict.fromkeys(case.op for case in summary.cases):
        console.print(case_table(op, summary, console))
    console.print(f"{TABLE_NOTE} {NO_OVERLAP_NOTE}", highlight=False)
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
    verdict = "[green]equal within the tolerance[/green]" if encoder.ok else "[red]NOT equal[/red]"
    console.print(
        f"Sharded over {summary.world_size} ranks and unsharded: {verdict} of bf16, {encoder.tolerance:.2g}; "
        f"similarities differ by {encoder.difference:.2g}, embeddings by {encoder.embedding_difference:.2g}.",
        highlight=False,
    )


def case_table(op: str, summary: Summary, console: Console) -> Table:
    """A line a case where the console is wide enough for all that is to be said, else two."""
    title = f"{op} on {summary.world_size} ranks"
    cases = [case for case in summary.cases if case.op == op]
    table = _one_line_table(title, cases)
    one_page = console.options.update_width(1 << 16)
    fits = console.measure(table, options=one_page).maximum <= console.width
    return table if fits else _two_line_table(title, cases)


def _one_line_table(title: str, cases: Sequence[CaseResult]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column(CASE, no_wrap=True)
    table.add_column(SHAPE, no_wrap=True)
    for name in ("check", "time", "copy", "node", "network", "overlap"):
        table.add_column(name, justify="right", no_wrap=True)
    for case in cases:
        check, time, share = _outcome(case)
        table.add_row(case.name, case.shape, check, time, *_moved(case), share)
    return table


def _two_line_table(title: str, cases: Sequence[CaseResult]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column(f"{CASE}\n  {SHAPE}", overflow="fold")
    for name in ("check\ncopy", "time\nnode", "overlap\nnetwork"):
        table.add_column(name, justify="right", no_wrap=True)
    for case in cases:
        table.add_row(case.name, *_outcome(case))
        table.add_row(f"  {case.shape}", *_moved(case), style="dim")
    return table


def _outcome(case: CaseResult) -> tuple[str, str, str]:
    from tilewire.timeline import readable_time

    shares = telling_overlap(case.events).values()
    share = f"{sum(shares) / len(shares):.0%}" if shares else "-"
    check = f"[green]ok[/green] {case.compared}" if case.ok else "[bold red]FAILED[/bold red]"
    return check, readable_time(case.time_s), share


def _moved(case: CaseResult) -> list[str]:
    from tilewire.timeline import readable_bytes

    return [readable_bytes(case.bytes_by_link.get(link, 0)) for link in ("copy", "node", "network")]


def similarity_table(encoder: EncoderResult) -> Table:
    from rich.table import Table

    table = Table(title=f"Sentence encoder, {encoder.rows} tokens: similarities", title_justify="left")
    table.add_column("sentence", overflow="fold")
    for number in range(1, len(SENTENCES) + 1):
        table.add_column(str(number), justify="right", no_wrap=True)
    for number, (sentence, row) in enumerate(zip(SENTENCES, encoder.similarities, strict=True), 1):
        cells = [f"[bold]{value:.3f}[/bold]" if 0.4 < value < 0.999 else f"{value:.3f}" for value in row]
        table.add_row(f"{number} {sentence}", *cells)
    return table
