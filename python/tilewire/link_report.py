"""What a link test found (`tilewire doctor --net`): the same JSON that the C++ program tilewire_link_test writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LEAST_OF_LINE = 0.8  # of a NIC's rate; below it something is wrong with placement, PCIe, MTU or the network


@dataclass(frozen=True)
class Link:
    """One direction between two ranks, over one NIC of either or over all of them."""

    sender: int
    receiver: int
    nics: str
    latency_us: float
    latency_p99_us: float
    gbps_small: float  # chunks of 64 KiB
    gbps_large: float  # chunks of 1 MiB
    line_gbps: float  # 0: unknown
    messages: int
    wrong: int

    @property
    def of_line(self) -> float | None:
        return self.gbps_large / self.line_gbps if self.line_gbps else None

    @property
    def problem(self) -> str:
        """What is wrong with it, or ""."""
        if self.wrong:
            return f"{self.wrong} of {self.messages} messages were not whole when they were announced"
        if self.of_line is not None and self.of_line < LEAST_OF_LINE:
            return f"{100 * self.of_line:.0f} % of the line rate"
        return ""


def links_of(report: dict[str, Any]) -> list[Link]:
    return [
        Link(
            sender=row["from"],
            receiver=row["to"],
            nics=_nics(row["from_nics"], row["to_nics"]),
            latency_us=row["latency_us"],
            latency_p99_us=row["latency_p99_us"],
            gbps_small=row["gbps_64KiB"],
            gbps_large=row["gbps_1MiB"],
            line_gbps=row["line_gbps"],
            messages=row.get("messages", 0),
            wrong=row.get("wrong_messages", 0),
        )
        for row in report["links"]
    ]


def _nics(sender: list[str], receiver: list[str]) -> str:
    if not sender:
        return "none: it is played"
    return f"{' '.join(sender)} to {' '.join(receiver)}"


def verdict_of(report: dict[str, Any]) -> tuple[bool, str]:
    """Whether all is well, and what to say: of a path that is slow, and of one that lies, which is worse."""
    links = links_of(report)
    lies = [link for link in links if link.wrong]
    slow = [link for link in links if link.problem and not link.wrong]
    checked = sum(link.messages for link in links)
    if lies:
        text = "; ".join(f"rank {link.sender} to {link.receiver}: {link.problem}" for link in lies)
        return False, f"Results over this network would be wrong: {text}. Send the report."
    said = f"{checked} messages were checked, all whole."
    if not slow:
        return True, said
    text = "; ".join(f"rank {link.sender} to {link.receiver}, {link.nics}: {link.problem}" for link in slow)
    return True, f"{said} Slow: {text}. See docs/networks.md."
