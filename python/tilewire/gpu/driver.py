"""The GPUs of this machine, asked of the CUDA driver: no package of CUDA is needed."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

LIBRARY = "libcuda.so.1"
KERNEL_CAPABILITY = (9, 0)  # what kernels are compiled for
KERNEL_GPUS = "H100 and H200 (sm_90a)"
NEEDS_CUDA = "build it where nvcc is: pip install . --config-settings=cmake.define.TILEWIRE_CUDA=ON"
# CUdevice_attribute
_SMS, _MAJOR, _MINOR = 16, 75, 76
_MPS_ERRORS = range(805, 811)


@dataclass(frozen=True)
class Gpu:
    """One that this process can see."""

    name: str
    sms: int
    memory_bytes: int
    capability: tuple[int, int]  # of Hopper: (9, 0)


class NoDriver(Exception):
    """Says why there are no GPUs for CUDA programs."""


def driver_version() -> tuple[int, int]:
    """The CUDA version that the driver is for. Raises `NoDriver`."""
    version = ctypes.c_int()
    _check(_library().cuDriverGetVersion(ctypes.byref(version)), "cuDriverGetVersion")
    return version.value // 1000, version.value % 1000 // 10


def gpus() -> list[Gpu]:
    """Those that this process can see, by their numbers. Raises `NoDriver`."""
    cuda = _library()
    count = ctypes.c_int()
    _check(cuda.cuInit(0), "cuInit")
    _check(cuda.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    return [_gpu(cuda, number) for number in range(count.value)]


def _gpu(cuda: ctypes.CDLL, number: int) -> Gpu:
    device, memory, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(128)
    _check(cuda.cuDeviceGet(ctypes.byref(device), number), "cuDeviceGet")
    _check(cuda.cuDeviceGetName(name, len(name), device), "cuDeviceGetName")
    _check(cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device), "cuDeviceTotalMem")

    def attribute(which: int) -> int:
        value = ctypes.c_int()
        _check(cuda.cuDeviceGetAttribute(ctypes.byref(value), which, device), "cuDeviceGetAttribute")
        return value.value

    capability = attribute(_MAJOR), attribute(_MINOR)
    return Gpu(name.value.decode(errors="replace"), attribute(_SMS), memory.value, capability)


def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise NoDriver(str(error)) from error


def _check(result: int, name: str) -> None:
    if result == 0:
        return
    why = {100: "no GPU is here", 101: "there is no such GPU"}.get(result, f"error {result}")
    if result in _MPS_ERRORS:
        why += ", of the MPS daemon that CUDA_MPS_PIPE_DIRECTORY names"
    raise NoDriver(f"{name}: {why}")
