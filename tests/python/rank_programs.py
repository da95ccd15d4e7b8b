"""What the ranks of the API's tests run; see `rank_run`. Each function gives something that JSON can hold."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tilewire as tw
from tilewire.coded_data import coded_shard, coded_weight
from tilewire.demo_cases import odd_cases, run_case
from tilewire.demo_rank import TilewireMachine
from tilewire.linear import Array, local_matmul
from tilewire.trace_events import Recording, Run
from tilewire.trace_files import read_perfetto

BF16 = ml_dtypes.bfloat16
K, N = 48, 40


def outcome(call: Callable[[], Any]) -> dict[str, Any]:
    """Name of the exception's class, its text, and the seconds that it took; class "" when there was none."""
    begin = time.monotonic()
    try:
        call()
    except BaseException as error:
        return {"error": type(error).__name__, "text": str(error), "seconds": time.monotonic() - begin}
    return {"error": "", "text": "", "seconds": time.monotonic() - begin}


class Numbers:
    """Random inputs of all ranks, the same on each, and the whole that a call has to give."""

    def __init__(self, comm: Any, seed: int, rows: list[int] | None = None, dtype: Any = BF16, k: int = K) -> None:
        generator = np.random.default_rng(seed)
        self.rows = rows or [16] * comm.world_size
        whole = generator.integers(-8, 9, (sum(self.rows), k)).astype(dtype)
        weights = [generator.integers(-4, 5, (k, N)).astype(dtype) for _ in self.rows]
        first = sum(self.rows[: comm.rank])
        self.whole = whole
        self.a = whole[first : first + self.rows[comm.rank]].copy()
        self.b = weights[comm.rank]

    def want(self, b: Array | None = None, bias: Array | None = None) -> Array:
        return local_matmul(self.whole, self.b if b is None else b, bias)


def same(got: Any, want: Array) -> bool:
    """Bit for bit, dtype and shape too."""
    array = np.asarray(got)
    return array.dtype == want.dtype and array.shape == want.shape and array.tobytes() == want.tobytes()


# --- results


def odd_shapes() -> list[str]:
    """The messages of the cases of all operations that went wrong, and how many there were."""
    with tw.init() as comm:
        machine = TilewireMachine(comm)
        results = [run_case(case, machine) for case in odd_cases(comm.world_size)]
    failed = [f"{result.name}: {result.message}" for result in results if not result.ok]
    return [*failed, f"{len(results)} cases, {len(failed)} failed"]


class Foreign:
    """An array of another library: all that is known of it is DLPack."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class Elsewhere(Foreign):
    """One in the memory of a GPU."""

    def __dlpack_device__(self) -> Any:
        return 2, 1


def misaligned(array: Array) -> Array:
    """The same values at addresses that are no multiples of their size."""
    record = np.zeros(array.shape, dtype=[("pad", "u1"), ("value", array.dtype)])
    record["value"] = array
    return record["value"]


def input_layouts() -> dict[str, bool]:
    """Every way for inputs to lie in memory gives the same bits."""
    checks: dict[str, bool] = {}
    with tw.init() as comm:
        d = Numbers(comm, 1)
        wide = np.zeros((40, 100), BF16)
        wide[3 : 3 + 16, 7 : 7 + K] = d.a
        spaced = np.zeros((16, 3 * K), BF16)
        spaced[:, ::3] = d.a
        views = {
            "contiguous": d.a,
            "slice of a larger array": wide[3:19, 7 : 7 + K],
            "every third column": spaced[:, ::3],
            "column order": np.asfortranarray(d.a),
            "rows backwards": np.ascontiguousarray(d.a[::-1])[::-1],
            "columns backwards": np.ascontiguousarray(d.a[:, ::-1])[:, ::-1],
            "read-only": np.frombuffer(d.a.tobytes(), BF16).reshape(d.a.shape),
            "misaligned": misaligned(d.a),
        }
        for name, a in views.items():
            checks[f"a: {name}"] = same(tw.all_gather_matmul(a, d.b), d.want())
        weights = {
            "stored as [N, K]": np.ascontiguousarray(d.b.T).T,
            "stored as [N, K], backwards": np.ascontiguousarray(d.b.T[::-1])[::-1].T,
            "slice": np.pad(d.b, 5)[5:-5, 5:-5],
            "misaligned": misaligned(d.b),
        }
        for name, b in weights.items():
            checks[f"b: {name}"] = same(tw.all_gather_matmul(d.a, b), d.want())
        one_row = np.arange(K).astype(BF16)[None]
        repeated = np.broadcast_to(one_row, (16, K))
        want = local_matmul(np.broadcast_to(one_row, (16 * comm.world_size, K)), d.b, None)
        checks["a: stride 0"] = same(tw.all_gather_matmul(repeated, d.b), want)
        column = np.broadcast_to(d.b[:, :1], (K, N))
        checks["b: stride 0"] = same(tw.all_gather_matmul(d.a, column), d.want(column))
        for dtype in (np.float32, np.float16):
            f = Numbers(comm, 2, dtype=dtype)
            result = tw.all_gather_matmul(Foreign(f.a), Foreign(f.b))
            checks[f"DLPack {np.dtype(dtype)}"] = isinstance(result, np.ndarray) and same(result, f.want())
            checks[f"DLPack strided {np.dtype(dtype)}"] = same(
                tw.all_gather_matmul(Foreign(f.a), Foreign(np.ascontiguousarray(f.b.T).T)), f.want()
            )
        placed = comm.empty(d.a.shape)
        placed[:] = d.a
        checks["a in the arena"] = same(tw.all_gather_matmul(placed, d.b), d.want())
        checks["a in the arena, changed"] = True
        for seed in range(3):
            d2 = Numbers(comm, 10 + seed)
            placed[:] = d2.a
            checks["a in the arena, changed"] &= same(tw.all_gather_matmul(placed, d2.b), d2.want())
    checks["arena array outlives the communicator"] = same(placed, d2.a)
    return checks


def options_of_a_call() -> dict[str, bool]:
    """rows, bias, out, out_dtype, lists, gathered rows, plans and handles."""
    checks: dict[str, bool] = {}
    with tw.init(deadline_s=np.float32(40), connect_deadline_s=np.int64(41)) as comm:
        checks["times of numpy"] = (comm.option("deadline_s"), comm.option("connect_deadline_s")) == ("40", "41")
        d = Numbers(comm, 3)
        uneven = Numbers(comm, 4, rows=[3 + 11 * rank for rank in range(comm.world_size)])
        checks["rows as a list"] = same(tw.all_gather_matmul(uneven.a, uneven.b, rows=uneven.rows), uneven.want())
        checks["rows exchanged"] = same(tw.all_gather_matmul(uneven.a, uneven.b, rows="exchange"), uneven.want())
        none = Numbers(comm, 5, rows=[0] * (comm.world_size - 1) + [9])
        checks["no rows on most ranks"] = same(tw.all_gather_matmul(none.a, none.b, rows="exchange"), none.want())

        bias = np.arange(N, dtype=np.float32)
        for dtype in (np.float32, np.float16, BF16):
            checks[f"bias {np.dtype(dtype)}"] = same(
                tw.all_gather_matmul(d.a, d.b, bias=bias.astype(dtype)), d.want(bias=bias)
            )
        checks["bias strided"] = same(tw.all_gather_matmul(d.a, d.b, bias=np.repeat(bias, 2)[::2]), d.want(bias=bias))

        out = np.full((len(d.whole), N), 7, BF16)
        checks["out is given back"] = tw.all_gather_matmul(d.a, d.b, out=out) is out and same(out, d.want())
        room = np.full((len(d.whole) + 2, N + 6), 7, BF16)
        tw.all_gather_matmul(d.a, d.b, out=room[1:-1, 3:-3])
        checks["out is part of a larger array"] = same(room[1:-1, 3:-3], d.want())
        room[1:-1, 3:-3] = 7
        checks["nothing around out is touched"] = bool((room == 7).all())

        wide = tw.all_gather_matmul(d.a, d.b, out_dtype="fp32")
        checks["out_dtype fp32"] = same(wide, d.whole.astype(np.float32) @ d.b.astype(np.float32))
        out32 = np.empty((len(d.whole), N), np.float32)
        checks["out's dtype counts"] = same(tw.all_gather_matmul(d.a, d.b, out=out32), wide)

        weights = [d.b, d.b[:, :7], np.zeros((K, 0), BF16), np.ascontiguousarray(d.b.T).T]
        biases = [None, bias[:7], None, bias]
        products, gathered = tw.all_gather_matmul(d.a, weights, bias=biases, return_gathered=True)
        checks["list of weights"] = isinstance(products, list) and all(
            same(got, d.want(b, one)) for got, b, one in zip(products, weights, biases, strict=True)
        )
        checks["gathered rows"] = same(gathered, d.whole)
        (single,) = tw.all_gather_matmul(d.a, [d.b])
        checks["list of one weight"] = same(single, d.want())

        plan = tw.plan_all_gather_matmul(len(d.whole), K, N, nodes=[int(c) for c in comm.layout.split("+")])
        forced = {**plan.as_dict(), "chunk_rows": 8, "tile_rows": 32, "tile_cols": 64}
        checks["plan as a dict"] = same(tw.all_gather_matmul(d.a, d.b, plan=forced), d.want())
        checks["the plan was used"] = '"chunk_rows":8' in comm.last_call.plan_json
        checks["plan as an object"] = same(tw.all_gather_matmul(d.a, d.b, plan=plan), d.want())
        checks["plan as text"] = same(tw.all_gather_matmul(d.a, d.b, plan=plan.json), d.want())
        unfused = {**forced, "is_fused": False}
        checks["unfused plan, same bits"] = same(tw.all_gather_matmul(d.a, d.b, plan=unfused), d.want())

        listed = tw.all_gather_matmul(uneven.a, uneven.b, rows=np.array(uneven.rows), return_gathered=np.True_)
        checks["rows and switches of numpy"] = same(listed[0], uneven.want())
        numpy_plan = {**forced, "chunk_rows": np.int64(16), "is_fused": np.False_}
        checks["plan with numbers of numpy"] = same(tw.all_gather_matmul(d.a, d.b, plan=numpy_plan), d.want())
        checks["sizes of numpy"] = comm.empty((np.int32(3), np.int64(4))).shape == (3, 4)
        checks["one size of numpy"] = comm.empty(np.int64(5)).shape == (5,)
        small = tw.AllGatherMatmul(np.array(d.rows), np.int64(K), np.uint8(N))
        checks["handle with numbers of numpy"] = same(small(d.a, d.b), d.want())

        handle = tw.AllGatherMatmul(uneven.rows, K, N)
        checks["handle"] = all(
            same(handle(one.a, one.b), one.want())
            for one in (Numbers(comm, seed, rows=uneven.rows) for seed in (20, 21, 22))
        )
        checks["handle explains"] = "predicted" in handle.explain() and '"chunk_rows"' in handle.plan
        both = tw.AllGatherMatmul(d.rows, K, [N, N], return_gathered=True, out_dtype=np.float32)
        products, gathered = both(d.a, [d.b, d.b], bias=[bias, None])
        checks["handle of two weights"] = same(products[1], wide) and same(gathered, d.whole)

        moved = comm.last_call.bytes_by_link
        checks["bytes are counted"] = set(moved) == {"copy", "node", "network"} and moved["copy"] >= d.a.nbytes
        with comm.trace() as trace:
            tw.all_gather_matmul(d.a, d.b)
        tw.all_gather_matmul(d.a, d.b)
        roles = {event.role for event in trace.events}
        checks["trace has this call's roles"] = "compute" in roles and {e.rank for e in trace.events} == {comm.rank}
        first = len(trace.events)
        with comm.trace() as trace:
            tw.all_gather_matmul(d.a, d.b)
        checks["a second trace has its own call only"] = len(trace.events) == first and trace.dropped == 0
        checks["bytes of all ranks"] = comm.all_gather_bytes(bytes([comm.rank, 0, 255]) * comm.rank) == [
            bytes([rank, 0, 255]) * rank for rank in range(comm.world_size)
        ]
    return checks


def same_bits_again() -> dict[str, Any]:
    """Random delays and first epochs near 2^32: results have the same bits each time."""
    with tw.init() as comm:
        wrong = 0
        for repeat in range(12):
            d = Numbers(comm, repeat, rows=[5 + 7 * ((rank + repeat) % 3) for rank in range(comm.world_size)])
            once = tw.all_gather_matmul(d.a, d.b, rows=d.rows)
            wrong += not same(once, d.want())
            wrong += not same(tw.all_gather_matmul(d.a, d.b, rows=d.rows), np.asarray(once))
        return {"wrong": wrong, "option": comm.option("first_epoch")}


# --- refusals: nothing is sent, the communicator stays usable when all ranks refuse


@contextmanager
def little_memory(room_bytes: int) -> Iterator[None]:
    """This process may take so much more address space."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def refusals(kind: str = "") -> dict[str, Any]:
    """Calls that every rank refuses, by name of what is wrong; "after" is a good call at the end."""
    found: dict[str, Any] = {}
    with tw.init() as comm:
        d = Numbers(comm, 6)
        total = len(d.whole)
        square = np.zeros((K, K), BF16)

        def refuse(name: str, *arguments: Any, **options: Any) -> None:
            found[name] = outcome(lambda: tw.all_gather_matmul(*arguments, **options))

        refuse("dtype of a", d.a.astype(np.float64), d.b)
        refuse("byte order", d.a.astype(np.dtype(">f4")), d.b.astype(np.float32))
        refuse("dtypes differ", d.a.astype(np.float32), d.b)
        refuse("a is on a GPU", Elsewhere(d.a), d.b)
        refuse("b is on a GPU", d.a, Elsewhere(d.b))
        refuse("out is on a GPU", d.a, d.b, out=Elsewhere(d.a))
        refuse("a has 1 dimension", d.a[0], d.b)
        refuse("b has 3 dimensions", d.a, d.b[None])
        refuse("a is a list", [[1.0]], d.b)
        refuse("b is no array", d.a, 3)
        refuse("b as [N, K]", d.a, np.ascontiguousarray(d.b.T))
        refuse("K differs", d.a, np.zeros((K + 4, N), BF16))
        refuse("no weight", d.a, [])
        refuse("nine weights", d.a, [d.b] * 9)
        refuse("second weight is wrong", d.a, [d.b, d.b[:-1]])
        refuse("bias is too long", d.a, d.b, bias=np.zeros(N + 1, np.float32))
        refuse("bias has 2 dimensions", d.a, d.b, bias=np.zeros((1, N), np.float32))
        refuse("bias is a list", d.a, d.b, bias=[np.zeros(N, np.float32)])
        refuse("bias dtype", d.a, d.b, bias=np.zeros(N, np.float64))
        refuse("out has the wrong shape", d.a, d.b, out=np.zeros((total, N + 1), BF16))
        refuse("out has the wrong dtype", d.a, d.b, out=np.zeros((total, N), BF16), out_dtype="fp32")
        refuse("out is in column order", d.a, d.b, out=np.zeros((N, total), BF16).T)
        refuse("out repeats a row", d.a, d.b, out=np.lib.stride_tricks.as_strided(d.b, (total, N), (0, 2)))
        refuse("out is read-only", d.a, d.b, out=np.frombuffer(bytes(2 * total * N), BF16).reshape(total, N))
        refuse("out is no array", d.a, d.b, out="here")
        refuse("out is a list", d.a, d.b, out=[np.zeros((total, N), BF16)])
        arena = np.zeros((total + K, K), BF16)
        refuse("out aliases a", arena[:16], square, out=arena[:total])
        refuse("out aliases b", d.a, arena[total - 1 : total - 1 + K], out=arena[:total])
        shared = np.zeros((total, N), BF16)
        refuse("out twice", d.a, [d.b, d.b], out=[shared, shared])
        refuse("out_dtype", d.a, d.b, out_dtype="int8")
        refuse("rows is too short", d.a, d.b, rows=[16])
        refuse("rows is negative", d.a, d.b, rows=[-1] + [16] * (comm.world_size - 1))
        refuse("rows does not match a", d.a, d.b, rows=[17] * comm.world_size)
        refuse("rows is a word", d.a, d.b, rows="guess")
        refuse("rows has fractions", d.a, d.b, rows=[16.5] * comm.world_size)
        refuse("plan is no JSON", d.a, d.b, plan="{")
        refuse("rows is a number", d.a, d.b, rows=3.5)
        refuse("rows has a bool", d.a, d.b, rows=[True] * comm.world_size)
        refuse("rows is beyond 64 bits", d.a, d.b, rows=[2**70] * comm.world_size)
        refuse("return_gathered is a word", d.a, d.b, return_gathered="no")
        refuse("plan is of another op", d.a, d.b, plan={"op": "gemm_rs"})
        refuse("plan has an unknown field", d.a, d.b, plan={**plan_of(comm, d, 8), "speed": 3})
        refuse("plan is a number", d.a, d.b, plan=3)
        refuse("plan holds an array", d.a, d.b, plan={"op": np.zeros(3)})
        refuse("comm is a word", d.a, d.b, comm="mpi")
        found["handle: wrong shape"] = outcome(lambda: tw.AllGatherMatmul(d.rows, K, N)(d.a[:, :-1], d.b[:-1]))

        def refuse_handle(name: str, *arguments: Any, **options: Any) -> None:
            found[f"handle: {name}"] = outcome(lambda: tw.AllGatherMatmul(*arguments, **options))

        refuse_handle("n is a bool", d.rows, K, True)
        refuse_handle("n is beyond 64 bits", d.rows, K, [N, 2**70])
        refuse_handle("k is a word", d.rows, "48", N)
        refuse_handle("rows is a number", 16, K, N)
        refuse_handle("return_gathered is a word", d.rows, K, N, return_gathered="no")
        refuse_handle("dtype is a number", d.rows, K, N, dtype=3.5)
        refuse_handle("comm is a number", d.rows, K, N, comm=5)
        tall = np.broadcast_to(np.zeros((1, 1), BF16), (2**12, 1))
        odd = np.broadcast_to(misaligned(tall[:1].copy()), (2**14, 2**14))  # has to be copied
        # malloc itself takes 64 MiB for a new heap where it has failed.
        with little_memory(256 << 20):
            refuse("an argument is too large", odd, square)
            refuse("result is too large", tall, np.broadcast_to(tall[:1], (1, 2**16)))
            refuse(
                "gathered rows are too large",
                np.broadcast_to(tall[:1], (2**10, 2**18)),
                np.zeros((2**18, 0), BF16),
                return_gathered=True,
            )
        found["empty: one is a bool"] = outcome(lambda: comm.empty((2, True)))
        found["empty: beyond 64 bits"] = outcome(lambda: comm.empty((2**40, 2**40)))
        found["empty: dtype"] = outcome(lambda: comm.empty((2, 2), "int8"))
        found["empty: shape"] = outcome(lambda: comm.empty((2, -2)))
        found["empty: no room"] = outcome(lambda: comm.empty(1 << 50))
        found["after"] = same(tw.all_gather_matmul(d.a, d.b), d.want())
    found["closed"] = outcome(lambda: tw.all_gather_matmul(d.a, d.b, comm=comm))
    found["no communicator"] = outcome(lambda: tw.all_gather_matmul(d.a, d.b))
    found["close again"] = outcome(comm.close)
    return found


class Interrupted:
    """An array during whose checks Ctrl-C is pressed."""

    def __dlpack_device__(self) -> tuple[int, int]:
        raise KeyboardInterrupt

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError


# --- ranks that disagree: each on a communicator of its own


def disagreements() -> dict[str, Any]:
    """By name of what differs: what each rank got, and whether later calls give the same."""
    found: dict[str, Any] = {}

    def differ(name: str, call: Callable[[Any, Numbers, bool], Any]) -> None:
        with tw.init() as comm:
            d = Numbers(comm, 7)
            tw.all_gather_matmul(d.a, d.b)
            comm.barrier()  # the end of the communicator must not reach a rank that is still in this call
            is_last = comm.rank == comm.world_size - 1
            found[name] = outcome(lambda: call(comm, d, is_last))
            found[name]["later"] = outcome(lambda: tw.all_gather_matmul(d.a, d.b))
            found[name]["check"] = outcome(comm.check)["error"]

    zeros = np.zeros
    differ("rows", lambda c, d, last: tw.all_gather_matmul(d.a[: 16 - last], d.b))
    differ("rows lists", lambda c, d, last: tw.all_gather_matmul(d.a, d.b, rows=[16, 16 + last, 16][: c.world_size]))
    differ("K", lambda c, d, last: tw.all_gather_matmul(zeros((16, K + last), BF16), zeros((K + last, N), BF16)))
    differ(
        "dtype",
        lambda c, d, last: tw.all_gather_matmul(
            d.a.astype(np.float16 if last else BF16), d.b.astype(np.float16 if last else BF16)
        ),
    )
    differ("plan", lambda c, d, last: tw.all_gather_matmul(d.a, d.b, plan=plan_of(c, d, 8 + 8 * last)))
    differ("refused by one", lambda c, d, last: tw.all_gather_matmul(d.a, d.b[: K - last]))
    differ("refused by one, in Python", lambda c, d, last: tw.all_gather_matmul(d.a[0] if last else d.a, d.b))
    differ("refused by one: device", lambda c, d, last: tw.all_gather_matmul(Elsewhere(d.a) if last else d.a, d.b))
    differ("refused by one: comm", lambda c, d, last: tw.all_gather_matmul(d.a, d.b, comm="x" if last else c))
    differ("refused by one: rows", lambda c, d, last: tw.all_gather_matmul(d.a, d.b, rows=3.5 if last else None))
    differ("refused by one: n", lambda c, d, last: tw.AllGatherMatmul(d.rows, K + 2, True if last else N))
    differ("refused by one: memory", lambda c, d, last: wide_call(d, last))
    differ("interrupted", lambda c, d, last: tw.all_gather_matmul(Interrupted() if last else d.a, d.b))
    differ("refused by one: bytes", lambda c, d, last: c.all_gather_bytes(5 if last else b"5"))
    differ("refused by one: many bytes", lambda c, d, last: c.all_gather_bytes(bytes(23 << 20 if last else 1)))
    differ("call and barrier", lambda c, d, last: c.barrier() if last else tw.all_gather_matmul(d.a, d.b))
    return found


def wide_call(d: Numbers, is_small: bool) -> None:
    """192 MiB of results, for which a rank of little memory has no room."""
    b = np.broadcast_to(np.zeros((K, 1), BF16), (K, 2 << 20))
    with little_memory(64 << 20) if is_small else nullcontext():
        tw.all_gather_matmul(d.a, b)


def plan_of(comm: Any, d: Numbers, chunk_rows: int) -> dict[str, Any]:
    nodes = [int(count) for count in comm.layout.split("+")]
    return {**tw.plan_all_gather_matmul(len(d.whole), K, N, nodes=nodes).as_dict(), "chunk_rows": chunk_rows}


# --- ends


def meet(folder: str, name: str) -> None:
    """Waits for the other ranks without the library: where one has failed, the next try must not meet the last one."""
    paths = [Path(folder, f"{name}.{rank}") for rank in range(int(os.environ["TILEWIRE_WORLD_SIZE"]))]
    paths[int(os.environ["TILEWIRE_RANK"])].touch()
    end = time.monotonic() + 60
    while not all(path.exists() for path in paths):
        assert time.monotonic() < end, f"not all ranks came to {name}"
        time.sleep(0.02)


@contextmanager
def many_calls(comm: Any) -> Iterator[Iterator[Callable[[], Any]]]:
    """Calls without end, for ranks that are to be interrupted."""
    d = Numbers(comm, 8)
    yield itertools.repeat(lambda: tw.all_gather_matmul(d.a, d.b))


def endless_calls(folder: str, victim: str, how: str) -> dict[str, Any]:
    """Calls until something ends them; the victim ends in its own way in the middle."""
    comm = tw.init()
    Path(folder, f"pid{comm.rank}").write_text(str(os.getpid()))
    with many_calls(comm) as calls:
        begin = time.monotonic()
        try:
            for number, call in enumerate(calls):
                if number == 5 and comm.rank == int(victim):
                    _end(how)
                call()
        except KeyboardInterrupt:
            return {"error": "KeyboardInterrupt", "text": "", "seconds": time.monotonic() - begin}
        except tw.Error as error:
            return {
                "error": type(error).__name__,
                "text": str(error),
                "seconds": time.monotonic() - begin,
                "next": outcome(lambda: call())["error"],
                "close": outcome(comm.close)["seconds"],
            }
    return {}


def _end(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "sleep":
        time.sleep(6)
    elif how == "exception":
        raise ValueError("a bug of the user's")
    elif how == "exit":
        sys.exit(3)
    elif how == "close":
        tw.communicator._open[0].close()  # type: ignore[attr-defined]


def blocked_call(folder: str) -> dict[str, Any]:
    """Rank 0 never joins the call; the others are interrupted while they wait."""
    with tw.init() as comm:
        d = Numbers(comm, 9)
        tw.all_gather_matmul(d.a, d.b)
        Path(folder, f"pid{comm.rank}").write_text(str(os.getpid()))
        wait = (lambda: time.sleep(100)) if comm.rank == 0 else (lambda: tw.all_gather_matmul(d.a, d.b))
        found = outcome(wait)
        found["later"] = outcome(lambda: tw.all_gather_matmul(d.a, d.b))
        return found


def exits(how: str) -> bool:
    """Ends without close()."""
    if how == "shown before init":
        sys.last_value = ValueError("a problem of the past")
    comm = tw.init()
    d = Numbers(comm, 11)
    fine = same(tw.all_gather_matmul(d.a, d.b), d.want())
    placed = comm.empty((4, 4))
    placed[:] = 1
    if how.startswith("exception"):
        comm.barrier()  # the end of the communicator must not reach a rank that is still in this call
    if how == "exception" and comm.rank == 1:
        raise ValueError("a bug of the user's")
    if how == "exception in with" and comm.rank == 1:
        with comm:
            raise ValueError("a bug of the user's")
    if how == "code" and comm.rank == 1:
        sys.exit(7)
    if how == "early" and comm.rank == 0:
        sys.exit(0)
    if how == "early":
        time.sleep(3)
    if how.startswith("exception") and comm.rank != 1:
        found = outcome(lambda: tw.all_gather_matmul(d.a, d.b))
        told = "rank 1: left by an exception: ValueError: a bug of the user's"
        return found["error"] == "Aborted" and told in found["text"] and found["seconds"] < 5
    if how == "shown before init" and comm.rank != 1:
        found = outcome(lambda: tw.all_gather_matmul(d.a, d.b))
        return "rank 1" in found["text"] and "exception" not in found["text"]
    if how == "forked child" and os.fork() == 0:
        sys.exit(0)
    return fine


def never_comes(folder: str) -> dict[str, Any]:
    """The last rank is there but does not call init()."""
    meet(folder, "start")  # the others come together, however slowly they start
    if int(os.environ["TILEWIRE_RANK"]) == int(os.environ["TILEWIRE_WORLD_SIZE"]) - 1:
        time.sleep(4)
        return {}
    return outcome(lambda: tw.init(connect_deadline_s=2))


def init_errors(folder: str) -> dict[str, Any]:
    """What init() refuses on all ranks; then it succeeds."""
    rank = int(os.environ["TILEWIRE_RANK"])
    refused: dict[str, dict[str, Any]] = {
        "unknown option": {"dedline_s": 3},
        "bad value": {"deadline_s": "soon"},
        "bad layout": {"layout": "1,x"},
        "layout is a number": {"layout": 2},
        "layout has a fraction": {"layout": [1, 1.5]},
        "rank is a bool": {"rank": True},
        "layout does not fit": {"layout": [7, 1]},
        "options differ": {"max_chunks_per_source": 64 + rank},
        "secret differs": {"secret": f"a secret of rank {rank} only", "connect_deadline_s": 3},
        "no transport": {"transport": "pigeon"},
        "no transport, one node": {"transport": "pigeon", "layout": [2]},
        "trace file": {"trace_file": "/no/such/folder/trace.json"},
    }
    found: dict[str, Any] = {}
    for name, options in refused.items():
        found[name] = outcome(lambda options=options: tw.init(**options))
        meet(folder, name)
    with tw.init(trace_file=str(Path(folder, "calls.json"))) as first, tw.init() as second:
        d = Numbers(second, 12)
        found["two are open"] = outcome(lambda: tw.all_gather_matmul(d.a, d.b))
        found["second"] = same(tw.all_gather_matmul(d.a, d.b, comm=second), d.want())
        with first.trace() as timeline:
            found["first"] = same(tw.all_gather_matmul(d.a, d.b, comm=first), d.want())
        timeline.write(str(Path(folder, f"own.{rank}.json")))
    # The one is written by the core, the other by the package: the same form with the same events.
    by_option, by_write = (read_perfetto(Path(folder, f"{name}.{rank}.json")) for name in ("calls", "own"))
    found["trace written"] = (
        by_option == by_write == Recording(timeline.events, 0, Run(first._core.id, first.world_size))
    )
    found["ids differ"] = first._core.id != second._core.id
    found["roles"] = sorted({event.role for event in by_option.events})
    return found


def many_communicators() -> dict[str, Any]:
    """Created and closed again and again: nothing may grow."""

    def state() -> list[int]:
        return [len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))]

    tw.init().close()
    before = state()
    for number in range(6):
        with tw.init() as comm:
            d = Numbers(comm, number)
            tw.all_gather_matmul(d.a, d.b)
    after = state()  # with a closed communicator that is still referenced
    del comm
    return {"before": before, "after": after}


def coded_inputs() -> bool:
    """Position-coded data through both halves and a growing arena."""
    with tw.init(arena_initial_bytes=8192) as comm:
        fine = True
        for number, rows in enumerate((4, 64, 300, 8)):
            counts = [rows] * comm.world_size
            a = coded_shard(comm.rank, counts, 64, BF16, number)
            b = coded_weight(64, 32, 0, BF16, number)
            shards = [coded_shard(rank, counts, 64, BF16, number) for rank in range(comm.world_size)]
            fine &= same(tw.all_gather_matmul(a, b), local_matmul(np.concatenate(shards), b, None))
        return fine
