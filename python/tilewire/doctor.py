"""What this machine has, what it lacks, and what each lack costs."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.metadata
import importlib.util
import os
import platform
import re
import resource
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tilewire
from tilewire.gpu.driver import KERNEL_CAPABILITY, KERNEL_GPUS, NEEDS_CUDA, NoDriver, driver_version, gpus
from tilewire.gpu.mps import find_control

OK, MISSING, OFF = "ok", "missing", "off"
_STATES = (OK, MISSING, OFF)
LEAST_PYTHON = (3, 10)
LEAST_SHM_BYTES = 1 << 30
LEAST_CUDA = (12, 0)  # a package that was built with CUDA 13 needs a driver for 13, and says so


@dataclass(frozen=True)
class Check:
    """One finding. *missing*: needed for what most people do; *off*: optional, and not here."""

    name: str
    state: str
    detail: str  # what was found: a version, a size, a path
    cost: str = ""  # what its lack costs
    advice: str = ""  # what to do about it

    def __post_init__(self) -> None:
        if self.state not in _STATES:
            raise ValueError(f"state of {self.name} is {self.state!r}, must be one of {', '.join(_STATES)}")


Probe = Callable[[], "Check | list[Check]"]


def run_checks(probes: Sequence[Probe] | None = None) -> list[Check]:
    """Runs the probes (all of them unless told). A probe that raises becomes a finding: doctors do not fall ill."""
    findings: list[Check] = []
    for probe in ALL_PROBES if probes is None else probes:
        try:
            found = probe()
            findings += found if isinstance(found, list) else [found]
        except Exception as error:
            name = probe.__name__.removeprefix("check_").replace("_", " ")
            findings.append(Check(name, MISSING, f"could not be checked: {type(error).__name__}: {error}"))
    return findings


def is_healthy(checks: Iterable[Check]) -> bool:
    return all(check.state != MISSING for check in checks)


def check_python() -> Check:
    version = platform.python_version()
    if sys.version_info >= LEAST_PYTHON:
        return Check("Python", OK, version)
    least = ".".join(map(str, LEAST_PYTHON))
    return Check("Python", MISSING, version, "nothing runs", f"use Python {least} or newer")


def check_core() -> Check:
    if importlib.util.find_spec("tilewire._core"):
        return Check("compiled core", OK, tilewire.__version__)
    return Check(
        "compiled core", MISSING, "tilewire._core is not there", "no operation runs", "install with: pip install ."
    )


def check_transports() -> list[Check]:
    """What is compiled in, and a call between two processes over each that can be used."""
    if not importlib.util.find_spec("tilewire._core"):
        return []
    from tilewire import _core

    findings = [_self_test("ranks of one node", [2], "auto", "ranks that share a node")]
    for name, purpose, why in _core.transports():
        if why:
            findings.append(Check(f"transport {name}", OFF, why, purpose, "see what is missing above"))
        else:
            findings.append(_self_test(f"transport {name}", [1, 1], name, purpose))
    return findings


def _self_test(title: str, layout: list[int], transport: str, purpose: str) -> Check:
    from tilewire.self_test import MODULE, run_self_test

    seconds, wrong = run_self_test(layout, transport)
    if wrong:
        where = f"-n {layout[0]}" if len(layout) == 1 else f"--nodes {','.join(map(str, layout))}"
        advice = f"read all of it: TILEWIRE_TRANSPORT={transport} tilewire run {where} -m {MODULE}"
        return Check(title, MISSING, f"self-test failed: {wrong}", purpose, advice)
    return Check(title, OK, f"self-test passed in {seconds:.1f} s; {purpose}")


def check_numpy() -> Check:
    return _package("numpy", MISSING, "arrays, the demo and the checker", "pip install numpy")


def check_ml_dtypes() -> Check:
    return _package("ml_dtypes", MISSING, "bf16 numpy arrays (fp16 and fp32 work)", "pip install ml_dtypes")


def check_torch() -> Check:
    return _package("torch", OFF, "tensors of PyTorch (numpy and DLPack work)", "pip install torch")


def check_encoder_weights() -> Check:
    from tilewire.encoder_weights import ADVICE, PACKAGE, missing_parts

    absent = missing_parts()
    if not absent:
        return Check("encoder weights", OK, importlib.metadata.version(PACKAGE))
    return Check("encoder weights", OFF, f"without {', '.join(absent)}", "the demo's sentence encoder", ADVICE)


def check_matplotlib() -> Check:
    return _package("matplotlib", OFF, "timeline pictures (Perfetto files work)", "pip install 'tilewire[demo]'")


NO_RDMA = "the transports rc and srd: nodes joined by RDMA adapters (nodes emulated on one machine work)"
NO_EFA = "the transport srd: nodes joined by AWS EFA (nodes emulated on one machine work)"
NO_GPU = "ranks on GPUs (ranks on CPUs work)"


def check_verbs() -> Check:
    advice = "on a machine with an RDMA adapter: apt-get install libibverbs1 ibverbs-providers"
    return _library("libibverbs", "libibverbs.so.1", NO_RDMA, advice)


def check_efa() -> Check:
    advice = "on an instance with EFA: install AWS's EFA installer"
    return _library("libefa", "libefa.so.1", NO_EFA, advice)


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip().partition("\n")[0]
    except OSError as error:
        return f"{path.name}: {error.strerror}"


def rdma_ports(folder: Path) -> list[str]:
    """Every port as the kernel describes it: "mlx5_0:1 ACTIVE, Ethernet, 100 Gb/sec (4X EDR)"."""

    def describe(port: Path) -> str:
        state = _first_line(port / "state").partition(": ")[2] or "in no known state"  # "4: ACTIVE"
        name = f"{port.parent.parent.name}:{port.name}"
        return f"{name} {state}, {_first_line(port / 'link_layer')}, {_first_line(port / 'rate')}"

    return [describe(port) for port in sorted(folder.glob("*/ports/*"))]


def check_rdma_devices(folder: str = "/sys/class/infiniband") -> Check:
    ports = rdma_ports(Path(folder))
    if any(" ACTIVE, " in port for port in ports):
        return Check("RDMA devices", OK, "; ".join(ports))
    if ports:
        return Check("RDMA devices", OFF, "; ".join(ports), NO_RDMA, "look at cables, switch and `rdma link`")
    return Check("RDMA devices", OFF, f"none in {folder}", NO_RDMA, "on a machine with an adapter: load its driver")


FORKS_WITH_RDMA = (5, 12)  # from there on Linux gives a child its own copy of what adapters write into


def check_rdma_forks(library: str = "libibverbs.so.1", release: str = "") -> Check | list[Check]:
    """Whether a program may fork while adapters write into its memory. Nothing to say without the library."""
    try:
        verbs = ctypes.CDLL(library)
    except OSError:
        return []
    release = release or platform.release()
    parts = re.match(r"(\d+)\.(\d+)", release)
    if parts and (int(parts[1]), int(parts[2])) >= FORKS_WITH_RDMA:
        return Check("forks beside RDMA", OK, f"Linux {release}")
    # Kernels of some distributions have it earlier: the library, since rdma-core 35, asks.
    says = getattr(verbs, "ibv_is_fork_initialized", lambda: 0)()
    for variable in ("RDMAV_FORK_SAFE", "IBV_FORK_SAFE"):
        if variable in os.environ:
            return Check("forks beside RDMA", OK, f"Linux {release}, {variable} is set")
    if says:
        return Check("forks beside RDMA", OK, f"Linux {release}, libibverbs takes care of it")
    cost = "forking (data loaders) while ranks are joined by rc or srd: their queues may stop"
    return Check(
        "forks beside RDMA", OFF, f"Linux {release}", cost, "on all ranks: RDMAV_FORK_SAFE=1, or spawn workers"
    )


def check_cuda_driver() -> Check:
    try:
        version = driver_version()
    except NoDriver as error:
        return Check("CUDA driver", OFF, str(error), NO_GPU, "on a machine with an NVIDIA GPU, install its driver")
    detail = f"for CUDA {version[0]}.{version[1]}"
    if version >= LEAST_CUDA:
        return Check("CUDA driver", OK, detail)
    return Check("CUDA driver", OFF, detail, NO_GPU, f"install one for CUDA {LEAST_CUDA[0]}.{LEAST_CUDA[1]} or newer")


def check_gpus() -> Check:
    try:
        found = gpus()
    except NoDriver as error:
        return Check("GPUs", OFF, str(error), NO_GPU, "see the CUDA driver above, CUDA_VISIBLE_DEVICES and nvidia-smi")
    names = [f"{gpu.name} ({gpu.sms} SMs, {_size(gpu.memory_bytes)})" for gpu in found]
    detail = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or "none"
    if any(gpu.capability == KERNEL_CAPABILITY for gpu in found):
        return Check("GPUs", OK, detail)
    return Check("GPUs", OFF, detail, NO_GPU, f"use one that kernels are compiled for: {KERNEL_GPUS}")


def check_cuda_part() -> Check | list[Check]:
    """Whether this package can make ranks of GPUs."""
    if not importlib.util.find_spec("tilewire._core"):
        return []
    from tilewire import _core

    if _core.has_gpu_ranks():
        return Check("CUDA part of this package", OK, 'tilewire.init(device="cuda")')
    return Check("CUDA part of this package", OFF, "built without CUDA", NO_GPU, NEEDS_CUDA)


def check_mps() -> Check:
    control = find_control()
    if control:
        running = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
        return Check("MPS", OK, f"{control}; CUDA_MPS_PIPE_DIRECTORY is {running or 'not set'}")
    cost = "several ranks on one GPU (a GPU for each rank works)"
    return Check(
        "MPS", OFF, "no nvidia-cuda-mps-control", cost, "it comes with the NVIDIA driver (nvidia-compute-utils)"
    )


def check_nvcc() -> Check:
    path = shutil.which("nvcc") or next(filter(os.path.exists, ["/usr/local/cuda/bin/nvcc"]), None)
    if path:
        return Check("nvcc", OK, f"{path}; compiles the CUDA part")
    cost = "building the CUDA part (make build, pip install with TILEWIRE_CUDA=ON); what is built needs none of it"
    return Check("nvcc", OFF, "not found", cost, "install CUDA 12.9 or newer")


def check_locked_memory() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        return Check("locked memory limit", OK, "unlimited")
    advice = "RDMA needs more: ulimit -l unlimited, or memlock in /etc/security/limits.conf"
    return Check("locked memory limit", OFF, _size(soft), NO_RDMA, advice)


def check_shared_memory() -> Check:
    status = os.statvfs("/dev/shm")
    free = status.f_bavail * status.f_frsize
    if free >= LEAST_SHM_BYTES:
        return Check("/dev/shm", OK, f"{_size(free)} free")
    return Check("/dev/shm", OFF, f"{_size(free)} free", "large arenas of CPU ranks", "in a container: --shm-size=2g")


def check_cores() -> Check:
    count = len(os.sched_getaffinity(0))
    if count > 1:
        return Check("CPU cores", OK, str(count))
    return Check(
        "CPU cores", OFF, str(count), "overlap on CPU ranks: roles take turns", "allow this process more cores"
    )


ALL_PROBES: tuple[Probe, ...] = (
    check_python,
    check_core,
    check_numpy,
    check_ml_dtypes,
    check_torch,
    check_encoder_weights,
    check_matplotlib,
    check_verbs,
    check_efa,
    check_rdma_devices,
    check_rdma_forks,
    check_cuda_driver,
    check_gpus,
    check_cuda_part,
    check_mps,
    check_nvcc,
    check_locked_memory,
    check_shared_memory,
    check_cores,
    check_transports,
)


def _package(name: str, absent: str, cost: str, advice: str) -> Check:
    try:
        return Check(name, OK, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Check(name, absent, "not installed", cost, advice)


def _library(name: str, detail: str, cost: str, advice: str) -> Check:
    """`detail` begins with the library's file."""
    try:
        ctypes.CDLL(detail.split(";")[0])
    except OSError as error:
        # "cannot open shared object file" means absent; anything else (a missing symbol) is worth reading.
        return Check(name, OFF, str(error), cost, advice)
    return Check(name, OK, detail)


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
