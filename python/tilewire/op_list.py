"""THE list of operations. What `tilewire` exports, the subcommands of `tilewire plan` and the cases of
`tilewire demo` follow from it.

An operation `matmul_x` has a module with three names: the function `matmul_x`, the class `MatmulX` for calls whose
shapes are fixed, and `plan_matmul_x`; and `PLAN_SHAPE`, which says what each number of a shape is, with `PLAN_WORDS`
where a plan may be told more. A module beside it, named as it is with `_cases` behind, has what `tilewire.demo_cases`
says. A new operation is one more entry below, in both places: the first is for type checkers alone, which run nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewire.all_gather import AllGatherMatmul, all_gather_matmul, plan_all_gather_matmul  # noqa: F401
    from tilewire.all_reduce import MatmulAllReduce, matmul_all_reduce, plan_matmul_all_reduce  # noqa: F401
    from tilewire.attention import RingAttention, plan_ring_attention, ring_attention  # noqa: F401
    from tilewire.moe_dispatch import MoeDispatchMatmul, moe_dispatch_matmul, plan_moe_dispatch_matmul  # noqa: F401
    from tilewire.reduce_scatter import MatmulReduceScatter, matmul_reduce_scatter, plan_matmul_reduce_scatter  # noqa: F401


@dataclass(frozen=True)
class Op:
    """An operation by the name of its function, and the module that has it. The module is not imported for this.

    network_ends: the role that gives chunks to the network and the one that takes them on another node, as its events
    name them; None where no role takes what comes.
    """

    name: str
    module: str
    network_ends: tuple[str, str] | None = None

    @property
    def plan_name(self) -> str:
        return f"plan_{self.name}"

    @property
    def cases_module(self) -> str:
        return f"{self.module}_cases"

    @property
    def exports(self) -> tuple[str, str, str]:
        """Its public names."""
        handle = "".join(word.capitalize() for word in self.name.split("_"))
        return (handle, self.name, self.plan_name)


OPS = [
    Op("all_gather_matmul", "tilewire.all_gather", network_ends=("send", "forward")),
    Op("matmul_reduce_scatter", "tilewire.reduce_scatter"),
    Op("matmul_all_reduce", "tilewire.all_reduce", network_ends=("send", "forward")),
    Op("ring_attention", "tilewire.attention", network_ends=("send", "forward")),
    Op("moe_dispatch_matmul", "tilewire.moe_dispatch"),
]
