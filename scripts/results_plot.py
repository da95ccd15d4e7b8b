"""A picture of a results file: a line for each kind of comparison and operation, with a dot for each shape where its
ratio to the baseline lies. Plain SVG, so that it needs Python alone."""

import math
from html import escape

LEFT, WIDTH, LINE, TOP, RIGHT = 330, 520, 22, 46, 90
LOWEST, HIGHEST = 0.125, 8.0
TICKS = (0.125, 0.25, 0.5, 1, 2, 4, 8)
WORSE, BETTER, MEAN, INK, FAINT = "#c2410c", "#15803d", "#1e293b", "#334155", "#cbd5e1"
# Tests have no ratio to show.
LEFT_OUT = {"gpu_test", "gpu_soak", "sanitizer"}


def lines_of(rows):
    """(label, its rows with a ratio) in the order in which they come."""
    lines = {}
    for row in rows:
        if row["bench"] in LEFT_OUT or not row["ratio"] > 0:
            continue
        lines.setdefault(f"{row['op']}: {row['bench']}", []).append(row)
    return lines


def x_of(ratio):
    """Where a ratio lies; those beyond the scale at its end."""
    kept = min(max(ratio, LOWEST), HIGHEST)
    return LEFT + WIDTH * math.log(kept / LOWEST) / math.log(HIGHEST / LOWEST)


def text(x, y, words, anchor="start", weight="normal"):
    style = f'text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style} fill="{INK}">{escape(words)}</text>'


def dot(row, y):
    shape = f"{row['shape']}, against {row['baseline_name']}: {row['ratio']:.2f}"
    colour = BETTER if row["ratio"] >= 1 else WORSE
    place = f'cx="{x_of(row["ratio"]):.1f}" cy="{y:.1f}" r="4"'
    return f'<circle {place} fill="{colour}" fill-opacity="0.55"><title>{escape(shape)}</title></circle>'


def picture_of(results, heading):
    """The SVG text; "" where nothing of it is a comparison."""
    lines = lines_of(results["rows"])
    if not lines:
        return ""
    height = TOP + LINE * len(lines) + 30
    bottom = TOP + LINE * len(lines)
    size = f'width="{LEFT + WIDTH + RIGHT}" height="{height}"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        text(12, 20, heading, weight="bold"),
        text(LEFT + WIDTH + 14, TOP - 8, "mean, worst"),
    ]
    for tick in TICKS:
        x = x_of(tick)
        stroke = INK if tick == 1 else FAINT
        out.append(f'<line x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{bottom}" stroke="{stroke}"/>')
        out.append(text(x, bottom + 16, f"{tick:g}", "middle"))
    for number, (label, rows) in enumerate(lines.items()):
        y = TOP + LINE * (number + 0.5)
        ratios = [row["ratio"] for row in rows]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        out.append(text(LEFT - 10, y + 4, f"{label} ({len(rows)})", "end"))
        out += [dot(row, y) for row in rows]
        out.append(f'<rect x="{x_of(mean) - 1.5:.1f}" y="{y - 8:.1f}" width="3" height="16" fill="{MEAN}"/>')
        out.append(text(LEFT + WIDTH + 14, y + 4, f"{mean:.2f}, {min(ratios):.2f}"))
    return "\n".join([*out, "</svg>", ""])
