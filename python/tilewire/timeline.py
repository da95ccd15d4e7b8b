"""The timeline picture: a band a rank, a lane a role's worker, a bar a tile or chunk, coloured by whose data it is."""

from __future__ import annotations

import colorsys
import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewire.errors import Unavailable
from tilewire.trace_events import (
    CALL_ROLE,
    COMPUTE_ROLE,
    FLIGHT_ROLE,
    NO_RUN,
    Event,
    Run,
    as_events,
    bytes_by_link,
    incomplete_note,
    lanes_of,
    telling_overlap,
)
from tilewire.trace_files import PICTURES, write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart by most colour-blind readers (the Okabe-Ito set without black, most different first).
_SOURCE_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_INK, _QUIET, _BAND, _WAIT = "#22272e", "#6b7280", "#f4f5f7", "#d3d7de"
_ALARM = "#b42318"
_LANE_HEIGHT, _BAND_GAP = 1.0, 0.55
_LEAST_WIDTH = 0.0016  # of the picture
_NETWORK_HATCH = "////"
# What a lane shows, for those that see the picture first.
_LANE_NOTES = {
    COMPUTE_ROLE: "tiles",
    "push": "own rows to the ranks of the node",
    "send": "own rows to the proxy",
    FLIGHT_ROLE: "a chunk between nodes",
    "relay": "arrivals made known",
    "forward": "rows of other nodes to the ranks of the node",
    CALL_ROLE: "ranks agree on it, and wait for its end",
}
_NOTES_A_ROW = 4
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def source_colour(source: int) -> str:
    """The colour of a rank's data: the same in every picture."""
    if source < 0:
        return "#9aa1ab"
    if source < len(_SOURCE_COLOURS):
        return _SOURCE_COLOURS[source]
    # The golden angle keeps any number of further hues apart.
    red, green, blue = colorsys.hls_to_rgb((source * 0.381966) % 1.0, 0.35 + 0.25 * (source % 3) / 2, 0.6)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def check_picture(path: Path) -> str:
    """The kind of the picture, svg or png; asked before work is done whose result would be drawn. ValueError for
    another suffix, `Unavailable` where nothing can be drawn."""
    kind = path.suffix.lower().lstrip(".")
    if kind not in PICTURES:
        raise ValueError(f"the picture {path} must end in .svg or .png")
    check_matplotlib()
    return kind


def check_matplotlib() -> None:
    """`Unavailable`, with what to install, where no picture can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise Unavailable(
            "pictures cannot be drawn", values=f"matplotlib: {error}", advice="pip install 'tilewire[demo]'"
        ) from error


def write_picture(
    events: Iterable[Event] | Any, path: Path, title: str = "", dropped: int = 0, run: Run = NO_RUN
) -> None:
    """Draws the events of `run` to `path`, and says how many are lacking. Raises what `check_picture` raises; OSError
    names a path that cannot be written."""
    kind = check_picture(path)
    from matplotlib import rc_context

    # The same events give the same file: no random ids, no date.
    with rc_context(
        {"hatch.linewidth": 0.7, "svg.hashsalt": "tilewire", "svg.fonttype": "none", "font.family": "DejaVu Sans"}
    ):
        buffer = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else None
        draw(as_events(events), title, dropped, run).savefig(buffer, format=kind, dpi=160, metadata=metadata)
    write_file(path, buffer.getvalue())


def draw(events: list[Event], title: str = "", dropped: int = 0, run: Run = NO_RUN) -> Figure:
    """The picture as a matplotlib figure (no display is needed)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lanes = lanes_of(events)
    places = _lane_places(lanes)
    height = max(places.values(), default=0.0) + _LANE_HEIGHT
    figure = Figure(figsize=(13, 2.35 + 0.27 * height), facecolor="white")
    FigureCanvasAgg(figure)
    inches = figure.get_figheight()
    axes = figure.add_axes((0.085, 0.87 / inches, 0.9, 1 - 2.0 / inches))
    start = min((event.wait_begin_ns for event in events), default=0)
    end = max((event.t_end_ns for event in events), default=start)
    scale, unit = _unit(end - start)
    _draw_bands(axes, lanes, places)
    _draw_bars(axes, events, places, start, scale)
    span = max(end - start, 1) / scale
    axes.set_xlim(-0.002 * span, span * 1.004)
    axes.set_ylim(height + 0.1, -0.1)
    axes.set_xlabel(f"time in {unit}", color=_QUIET, fontsize=9)
    _dress(axes, lanes, places)
    head = [f"{(end - start) / scale:.4g} {unit} in all"] if events else ["no events"]
    _head(figure, title or "Timeline", [*head, *_totals(events, run)])
    figure.text(0.985, 1 - 0.3 / inches, incomplete_note(dropped), fontsize=10, color=_ALARM, va="center", ha="right")
    _legend(figure, events)
    _explain_lanes(figure, lanes)
    return figure


def _lane_places(lanes: list[tuple[int, str, int]]) -> dict[tuple[int, str, int], float]:
    """The top of each lane, with a gap between ranks."""
    places: dict[tuple[int, str, int], float] = {}
    top, rank = 0.0, None
    for lane in lanes:
        if rank is not None and lane[0] != rank:
            top += _BAND_GAP
        places[lane], rank = top, lane[0]
        top += _LANE_HEIGHT
    return places


def _draw_bands(axes: Axes, lanes: list[tuple[int, str, int]], places: dict[tuple[int, str, int], float]) -> None:
    for rank in sorted({lane[0] for lane in lanes}):
        tops = [places[lane] for lane in lanes if lane[0] == rank]
        bottom = max(tops) + _LANE_HEIGHT
        axes.axhspan(min(tops), bottom, color=_BAND, zorder=0, linewidth=0)
        for top in tops[1:]:
            axes.axhline(top, color="white", linewidth=1.2, zorder=1)
        middle = 1 - (min(tops) + bottom) / 2 / (max(places.values()) + _LANE_HEIGHT + 0.2)
        axes.annotate(
            f"rank {rank}",
            (-0.078, middle),
            xycoords="axes fraction",
            rotation=90,
            ha="center",
            va="center",
            fontsize=10,
            fontweight="bold",
            color=_INK,
        )


def _draw_bars(
    axes: Axes, events: list[Event], places: dict[tuple[int, str, int], float], start: int, scale: float
) -> None:
    from matplotlib.collections import PolyCollection

    waits, bars, faces, remote = [], [], [], []
    # Work of microseconds in a call of a second is still there to be seen.
    least = _LEAST_WIDTH * (max((event.t_end_ns for event in events), default=start) - start) / scale
    for event in events:
        top = places[event.rank, event.role, event.worker]
        begin, end = (event.t_begin_ns - start) / scale, (event.t_end_ns - start) / scale
        end = max(end, begin + least)
        if event.t_wait_ns:
            waits.append(_box((event.wait_begin_ns - start) / scale, begin, top + 0.36, top + 0.64))
        # Compute fills its lane; what moves data is slimmer, so the eye tells them apart without the colour.
        inset = 0.08 if event.role == COMPUTE_ROLE else 0.18
        bars.append(_box(begin, end, top + inset, top + _LANE_HEIGHT - inset))
        faces.append(source_colour(event.source))
        if event.link == "network":
            remote.append(bars[-1])
    axes.add_collection(PolyCollection(waits, facecolors=_WAIT, linewidths=0, zorder=2))
    axes.add_collection(PolyCollection(bars, facecolors=faces, edgecolors="white", linewidths=0.4, zorder=3))
    axes.add_collection(
        PolyCollection(remote, facecolors="none", edgecolors="white", hatch=_NETWORK_HATCH, linewidths=0.4, zorder=4)
    )


def _box(left: float, right: float, top: float, bottom: float) -> list[tuple[float, float]]:
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def _dress(axes: Axes, lanes: list[tuple[int, str, int]], places: dict[tuple[int, str, int], float]) -> None:
    workers: dict[tuple[int, str], int] = {}
    for rank, role, _ in lanes:
        workers[rank, role] = workers.get((rank, role), 0) + 1
    labels = [role if workers[rank, role] == 1 else f"{role} {worker}" for rank, role, worker in lanes]
    axes.set_yticks([places[lane] + _LANE_HEIGHT / 2 for lane in lanes], labels, fontsize=8, color=_INK)
    axes.tick_params(axis="y", length=0, pad=4)
    axes.tick_params(axis="x", colors=_QUIET, labelsize=8, length=3)
    axes.grid(axis="x", color="#dfe3e8", linewidth=0.6, zorder=1.5)
    axes.set_axisbelow(False)
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#c5cad3")


def _explain_lanes(figure: Figure, lanes: list[tuple[int, str, int]]) -> None:
    """Below the picture: what the lanes that are there show."""
    present = {role for _, role, _ in lanes}
    notes = [f"{role}: {note}" for role, note in _LANE_NOTES.items() if role in present]
    rows = [notes[at : at + _NOTES_A_ROW] for at in range(0, len(notes), _NOTES_A_ROW)]
    text = "\n".join("   ·   ".join(row) for row in rows)
    figure.text(0.085, 0.22 / figure.get_figheight(), text, fontsize=8, color=_QUIET, va="center", linespacing=1.5)


def _head(figure: Figure, title: str, parts: list[str]) -> None:
    inches = figure.get_figheight()
    figure.text(0.085, 1 - 0.3 / inches, title, fontsize=13, fontweight="bold", color=_INK, va="center")
    figure.text(0.085, 1 - 0.58 / inches, "   ·   ".join(parts), fontsize=9.5, color=_QUIET, va="center")


def _totals(events: list[Event], run: Run) -> list[str]:
    parts = [f"{readable_bytes(count)} by {link}" for link, count in bytes_by_link(events).items() if count]
    shares = telling_overlap(events, run)
    if shares:
        low, high = min(shares.values()), max(shares.values())
        share = f"{low:.0%}" if round(low, 2) == round(high, 2) else f"{low:.0%} to {high:.0%}"
        parts.append(f"{share} of communication hidden under compute")
    return parts


def _legend(figure: Figure, events: list[Event]) -> None:
    from matplotlib.patches import Patch

    sources = sorted({event.source for event in events})
    names = ["signals, no data" if source < 0 else f"data of rank {source}" for source in sources]
    handles = [Patch(facecolor=source_colour(s), label=n) for s, n in zip(sources, names, strict=True)][:12]
    if len(sources) > len(handles):
        handles.append(Patch(facecolor="none", label=f"and {len(sources) - len(handles)} more"))
    if any(event.t_wait_ns for event in events):
        handles.append(Patch(facecolor=_WAIT, label="waiting"))
    if any(event.link == "network" for event in events):
        look: dict[str, Any] = {"facecolor": _QUIET, "edgecolor": "white", "hatch": _NETWORK_HATCH, "linewidth": 0}
        handles.append(Patch(label="over the network", **look))
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.08, 1 - 0.7 / figure.get_figheight()),
        ncols=max(1, len(handles)),
        frameon=False,
        fontsize=8.5,
        labelcolor=_INK,
        handlelength=1.1,
        handleheight=0.9,
        columnspacing=1.6,
        handletextpad=0.5,
    )


def _unit(duration_ns: int) -> tuple[float, str]:
    return next(((size, name) for size, name in _UNITS if duration_ns >= 3 * size), _UNITS[-1])


def readable_time(seconds: float) -> str:
    """0.1532 -> "153.2 ms"."""
    size, unit = next(((size, name) for size, name in _UNITS if seconds * 1e9 >= size), _UNITS[-1])
    return f"{seconds * 1e9 / size:.4g} {unit}"


def readable_bytes(count: int) -> str:
    """1536 -> "1.5 KiB"."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.4g} {unit}"
        size /= 1024
    raise AssertionError("unreachable")
