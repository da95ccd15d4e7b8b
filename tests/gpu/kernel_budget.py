#!/usr/bin/env python3
"""Registers, stack and shared memory of every kernel in object files, against a golden file. Needs no GPU and no tool.

    kernel_budget.py --golden FILE --compiler VERSION [--write] OBJECT...

A stack frame is a spill, or an array that the compiler could not keep in registers: a failure by itself. Registers are
compared where the compiler is that of the golden file.
nvcc puts cubins (ELF files) into the section .nv_fatbin; they must not be compressed (nvcc --no-compress).
"""

import argparse
import json
import struct
import sys
from pathlib import Path

ELF, CUDA_MACHINE = b"\x7fELF", 190
# Attributes of the section .nv.info, each with a symbol and a value.
FRAME_BYTES, REGISTERS = 0x11, 0x2F
SIZED_VALUE = 4  # the format of an attribute that has a payload of its own


def cubins(data):
    """Every ELF file for a GPU that lies in these bytes."""
    at = data.find(ELF)
    while at >= 0:
        if len(data) >= at + 64 and struct.unpack_from("<H", data, at + 18)[0] == CUDA_MACHINE:
            yield data[at:]
        at = data.find(ELF, at + 4)


def sections(cubin):
    """Name, link, info, offset, size of each section."""
    offset = struct.unpack_from("<Q", cubin, 0x28)[0]
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + i * size) for i in range(count)]
    text = headers[names][4]
    for name, _, _, _, at, length, link, info, _, _ in headers:
        end = cubin.index(b"\0", text + name)
        yield cubin[text + name : end].decode(), link, info, at, length


def symbol_names(cubin, table, strings):
    """The names of all symbols, by number."""
    names = []
    for at in range(table[3], table[3] + table[4], 24):
        begin = strings[3] + struct.unpack_from("<I", cubin, at)[0]
        names.append(cubin[begin : cubin.index(b"\0", begin)].decode())
    return names


def attributes(cubin, at, length):
    """(attribute, symbol, value) of the .nv.info section that lies there."""
    end = at + length
    while at < end:
        form, attribute, size = struct.unpack_from("<BBH", cubin, at)
        at += 4
        if form != SIZED_VALUE:
            continue
        if size == 8 and attribute in (FRAME_BYTES, REGISTERS):
            yield (attribute, *struct.unpack_from("<II", cubin, at))
        at += size


def kernels(path):
    """{symbol: {registers, stack_bytes, shared_bytes}} of one object file."""
    found = {}
    for cubin in cubins(path.read_bytes()):
        all_sections = list(sections(cubin))
        by_name = {s[0]: s for s in all_sections}
        symbols = symbol_names(cubin, by_name[".symtab"], by_name[".strtab"])
        for attribute, symbol, value in attributes(cubin, *by_name[".nv.info"][3:]):
            key = {FRAME_BYTES: "stack_bytes", REGISTERS: "registers"}[attribute]
            found.setdefault(symbols[symbol], {})[key] = value
        for name, *_, length in all_sections:
            if name.startswith(".nv.shared.") and name[len(".nv.shared.") :] in found:
                found[name[len(".nv.shared.") :]]["shared_bytes"] = length
    return {name: numbers for name, numbers in found.items() if "registers" in numbers}  # no device functions


def measured(paths):
    found = {}
    for path in paths:
        here = kernels(path)
        if not here:
            sys.exit(f"kernel_budget: no kernel in {path}: is it built with --no-compress?")
        found.update(here)
    return {name: found[name] for name in sorted(found)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--golden", type=Path, required=True)
    parser.add_argument("--compiler", required=True, help="version of nvcc")
    parser.add_argument("--write", action="store_true", help="make the golden file what was found")
    parser.add_argument("objects", type=Path, nargs="+")
    arguments = parser.parse_args()
    found = measured(arguments.objects)
    if arguments.write:
        golden = {"compiler": arguments.compiler, "kernels": found}
        arguments.golden.write_text(json.dumps(golden, indent=2) + "\n", encoding="utf-8")
    golden = json.loads(arguments.golden.read_text(encoding="utf-8"))
    is_same_compiler = golden["compiler"] == arguments.compiler
    if not is_same_compiler:
        print(f"nvcc {arguments.compiler}, golden {golden['compiler']}: stack frames are looked at, registers are not")
    wrong = 0
    for name in sorted(found.keys() | golden["kernels"].keys()):
        if is_same_compiler and found.get(name) != golden["kernels"].get(name):
            print(f"{name}\n  is     {found.get(name)}\n  golden {golden['kernels'].get(name)}")
            wrong += 1
        if found.get(name, {}).get("stack_bytes", 0) != 0:
            print(f"{name} has a stack frame: spills, or an array with an index that is not known when compiled")
            wrong += 1
    print(f"{len(found)} kernels, {wrong} complaints")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
