"""What the words of a plan's explanation mean: `tilewire plan ... --explain`, and the table in docs/glossary.md."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class PlanWord:
    """A phrase of plans with its numbers left out (R, C, N stand for them), and what it says."""

    phrase: str
    meaning: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """The phrase with its numbers, one or many."""
        text = re.escape(self.phrase)
        text = re.sub(r"\b[RCN]\b|(?<=_)R(?=x)|(?<=x)C\b", r"\\d+", text).replace(r"\(s\)", "s?")
        return re.compile(rf"(?<![\w-]){text}(?![\w-])")


# In the order in which they stand in a plan.
PLAN_WORDS = (
    PlanWord("fused", "tiles are computed while chunks are on their way"),
    PlanWord("gather, then multiply", "not fused: all rows are here before the first tile is begun"),
    PlanWord("multiply, then reduce", "not fused: all tiles are done before the first chunk is added up"),
    PlanWord("gather, then attend", "not fused: the keys of all ranks are here before the first item is begun"),
    PlanWord(
        "head after head", "the keys of all ranks for one head, then for the next: the first item waits for one head"
    ),
    PlanWord("source after source", "the keys of all heads of one rank, then of the next: memory for ranks, not heads"),
    PlanWord("dispatch, then multiply", "not fused: all rows of a round are here before its first tile is begun"),
    PlanWord("rounds of N tokens a rank", "what moves together: there is memory for wherever these tokens may go"),
    PlanWord("room for N round(s)", "rounds that have memory at a time: the next one waits until one is multiplied"),
    PlanWord("chunks of N tokens", "what goes to another node at once: so many tokens, each with its experts"),
    PlanWord("N piece(s) of experts", "a rank's experts in so many parts: each is begun when its rows are there"),
    PlanWord("rows of the own node first", "they are multiplied apart from those of other nodes, which come later"),
    PlanWord("rows of all nodes together", "an expert's rows are multiplied together, when the last of them is there"),
    PlanWord("two shots", "each chunk is summed at its owner, which then sends the result to all: fewer bytes"),
    PlanWord("one shot", "every rank of a node adds up everything by itself: fewer steps"),
    PlanWord("chunks of N rows", "what is sent at once: so many whole rows of one rank's shard"),
    PlanWord("chunks of R x C", "what is sent and added up at once: so many rows and columns of one owner's part"),
    PlanWord("a slot for each", "every chunk has memory of its own at its receiver: no sender waits for room"),
    PlanWord("a window of N", "memory for N chunks of each owner at a time: a sender waits until one is free"),
    PlanWord("every head has a slot", "there is memory for the keys of all heads at once"),
    PlanWord("every source has a slot", "there is memory for the keys of all ranks at once"),
    PlanWord("N slot(s) of a head", "memory for so many heads at a time: a sender waits until one is done with"),
    PlanWord("N slot(s) of a source", "memory for so many ranks' keys at a time: a sender waits until they are read"),
    PlanWord("tiles of R x C", "what a worker computes at once: so many rows and columns of the result"),
    PlanWord(
        "N row block(s) at a time",
        "so many rows of tiles are walked together: b is used more often while cached, results come later",
    ),
    PlanWord("tiles of N rows", "what a worker computes at once: so many rows of q of one head"),
    PlanWord("N head(s) at a time", "so many heads of k are computed together, those rows first that have most to do"),
    PlanWord("N worker(s)", "who compute tiles: threads of a CPU rank, SMs or clusters of them on a GPU"),
    PlanWord("N push worker(s)", "who copy own chunks to the ranks of the own node"),
    PlanWord("N reduce worker(s)", "who add up the chunks that have come: threads, or teams of warps on a GPU"),
    PlanWord(
        "waits N pieces ahead", "a role waits for the data of so many pieces of work before the one in hand is done"
    ),
    PlanWord(
        "publishes N pieces behind", "a role tells others of its work so many pieces later: fewer signals, later ones"
    ),
    PlanWord(
        "gathers N rounds behind",
        "finished chunks are sent on so many rounds (a chunk of every owner) after their sums",
    ),
    PlanWord("bands of N", "tiles are walked through the chunks of so many owners side by side"),
    PlanWord(
        "own node N rounds behind",
        "chunks that stay on the node are computed so many rounds later than those that leave it",
    ),
    PlanWord(
        "tiles ping_pong_RxC", "the kernel whose two groups of warps take turns: one multiplies, the other stores"
    ),
    PlanWord("tiles cooperative_RxC", "the kernel whose groups of warps share one tile"),
    PlanWord(
        "warps beside the tiles push", "copies are made by warps of the SMs that compute: none is given up for them"
    ),
    PlanWord("N SMs push", "so many SMs only copy, and compute nothing"),
    PlanWord("N clocks apart", "the pace of those copies: so many clocks of the GPU from one piece to the next"),
    PlanWord("own rows read where they are", "the rank's own rows are multiplied from the caller's memory"),
    PlanWord("own rows copied first", "the rank's own rows are copied into the arena before they are multiplied"),
    PlanWord("predicted", "time of the whole call by the cost model: what candidates are compared by"),
    PlanWord("compute alone", "time of the tiles, if no one had to wait for data"),
    PlanWord("communication alone", "time until the last chunk has come, if nobody computed"),
    PlanWord("half of the arena", "the memory that peers write into has two halves, which calls use in turn"),
    PlanWord(
        "first and last arrival together",
        "what chunk sizes are compared by: when the first and when the last chunk comes",
    ),
    PlanWord("with K = N", "chunk sizes are compared by the time of a call of that K, as all ranks must choose alike"),
    PlanWord(
        "with N workers a rank", "chunks are compared by a call of so many workers, as all ranks must choose alike"
    ),
    PlanWord("no less", "as good as the plan that was taken, which was found first"),
    PlanWord("the flag area", "where a rank has a word for each chunk that can come (option max_chunks_per_source)"),
    PlanWord(
        "simulated", "time of the whole call in the simulator, which walks every role of every rank on that machine"
    ),
)


def words_of(explanation: str) -> list[PlanWord]:
    """Those that stand in a plan's explanation."""
    return [word for word in PLAN_WORDS if word.pattern.search(explanation)]


def unexplained(choice: str) -> list[str]:
    """The parts of a plan's first line, or of a candidate, that no word explains."""
    for word in PLAN_WORDS:
        choice = word.pattern.sub("", choice)
    return [part.strip() for part in choice.split(",") if part.strip()]


def explained(explanation: str) -> str:
    """The words of an explanation, a line each."""
    return "\n".join(["words:", *(f"  {word.phrase}: {word.meaning}" for word in words_of(explanation))])


def glossary_rows() -> list[str]:
    """The table's rows in docs/glossary.md."""
    return [f"| {word.phrase} | {word.meaning} |" for word in PLAN_WORDS]
