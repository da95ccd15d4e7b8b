"""scripts/setup installs what is missing and only that, needs no network when everything is there, and otherwise names
what is missing. What it calls of the system is played: apt-get, pip and who the user is."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent
REQUIREMENTS = ["requirements.txt", "requirements-no-deps.txt"]
# What the script is written with, and what it looks for but for a package or two.
TOOLS = ["bash", "cat", "dirname", "env", "head", "paste", "sed", "sha256sum", "sort", "touch"]
LOOKED_FOR = ["ninja", "clang-tidy"]


class Machine:
    """A clone on a machine that has a compiler and headers, as this one; programs by name are there or not."""

    def __init__(self, root: Path) -> None:
        self.root, self.bin, self.log = root, root / "bin", root / "log"
        (root / "scripts").mkdir()
        self.bin.mkdir()
        for name in ["setup", *REQUIREMENTS]:
            shutil.copy(SCRIPTS / name, root / "scripts" / name)
        for name in TOOLS:
            self.has(name, f'exec {shutil.which(name)} "$@"')
        for name in LOOKED_FOR:
            self.has(name, "")
        self.has("python3", f'exec {sys.executable} "$@"')
        self.has("g++", "echo 12.2.0")
        self.has("cmake", "echo cmake version 3.25.0")
        self.has("id", "echo 0")
        self.has("apt-get", f'echo "apt-get $*" >>{self.log}')
        self.made("python", f'[[ "$*" != *pip* ]] || {{ echo "pip $*" >>{self.log}; exit ${{PIP_FAILS:-0}}; }}\n'
                  f'exec {sys.executable} "$@"')  # fmt: skip
        text = b"".join((SCRIPTS / name).read_bytes() for name in REQUIREMENTS)
        self.stamp = root / ".venv/setup-stamp"
        self.stamp.write_text(hashlib.sha256(text).hexdigest() + "  -\n")

    def has(self, name: str, does: str) -> None:
        self._write(self.bin / name, does)

    def made(self, name: str, does: str) -> None:
        (self.root / ".venv/bin").mkdir(parents=True)
        self._write(self.root / ".venv/bin" / name, does)

    def lacks(self, name: str) -> None:
        (self.bin / name).unlink()

    def setup(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.bin / "bash"), str(self.root / "scripts/setup"), *arguments]
        settings = {"PATH": str(self.bin), "HOME": str(self.root), **environment}
        return subprocess.run(
            command, env=settings, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False
        )

    def called(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    @staticmethod
    def _write(path: Path, does: str) -> None:
        path.write_text(f"#!{shutil.which('bash')}\n{does}\n")
        path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    if not os.path.exists("/usr/include/gtest/gtest.h"):
        pytest.skip("the headers are not where packages have them")
    return Machine(tmp_path)


@pytest.mark.parametrize("arguments", [(), ("--check", "--lint")])
def test_where_everything_is_there_nothing_is_asked_of_the_network(
    machine: Machine, arguments: tuple[str, ...]
) -> None:
    done = machine.setup(*arguments)
    assert done.returncode == 0 and "everything is there" in done.stdout, done.stdout + done.stderr
    assert machine.called() == []


def test_what_is_missing_is_installed_and_only_that(machine: Machine) -> None:
    machine.lacks("ninja")
    machine.has("apt-get", f'echo "apt-get $*" >>{machine.log}; [[ "$1" != install ]] || '
                f"{{ touch {machine.bin}/ninja; {shutil.which('chmod')} +x {machine.bin}/ninja; }}")  # fmt: skip
    done = machine.setup()
    assert done.returncode == 0, done.stdout + done.stderr
    assert [call for call in machine.called() if " install " in call] == [
        "apt-get install --yes --no-install-recommends ninja-build --quiet=2"
    ]


def test_what_only_lint_needs_is_not_installed_without_it(machine: Machine) -> None:
    machine.lacks("clang-tidy")
    assert machine.setup().returncode == 0 and machine.called() == []
    done = machine.setup("--lint")
    assert done.returncode == 1 and "still missing: clang-tidy" in done.stderr, done.stderr


LIBRARIES = {"libibverbs1": "libibverbs.so.1", "ibverbs-providers": "libibverbs/librxe-rdmav*.so"}


@pytest.mark.parametrize("there", [True, False])
def test_for_the_guest_what_is_there_is_not_installed_again(machine: Machine, there: bool) -> None:
    guest = machine.root / "tests/rdma/guest"
    guest.parent.mkdir(parents=True)
    machine._write(guest, f'echo "guest $*" >>{machine.log}')
    for name in ("qemu-system-x86_64", "busybox", "depmod", "rdma"):
        machine.has(name, "")
    if not there:
        machine.lacks("qemu-system-x86_64")
    expected = [] if there else ["qemu-system-x86"]
    for package, library in LIBRARIES.items():
        if not [*Path("/usr/lib").glob(f"*/{library}"), *Path("/lib").glob(f"*/{library}")]:
            expected.append(package)
    if not Path("/usr/include/infiniband/verbs.h").exists():
        expected.append("libibverbs-dev")
    done = machine.setup("--guest")
    assert done.returncode == 0, done.stdout + done.stderr
    installed = [call for call in machine.called() if " install " in call]
    command = "apt-get install --yes --no-install-recommends {} --quiet=2"
    assert installed == ([command.format(" ".join(expected))] if expected else [])
    assert machine.called()[-1] == "guest --prepare"


def test_packages_that_cannot_be_had_are_named_and_so_are_those_that_are_too_old(machine: Machine) -> None:
    machine.lacks("ninja")
    machine.has("g++", "echo 11.4.0")
    machine.has("cmake", "echo cmake version 3.24.9")
    checked = machine.setup("--check")
    assert checked.returncode == 1 and "missing packages: g++ cmake ninja-build\n" in checked.stderr, checked.stderr
    assert machine.called() == [], "--check installs nothing"
    done = machine.setup()
    assert done.returncode == 1 and "still missing: g++ cmake ninja-build (" in done.stderr, done.stderr


def test_who_may_install_nothing_is_told_what_to_run(machine: Machine) -> None:
    machine.lacks("ninja")
    machine.has("id", "echo 1000")
    done = machine.setup()
    assert done.returncode == 1 and machine.called() == []
    assert "missing packages: ninja-build" in done.stderr and "as root, run: apt-get update && apt-get" in done.stderr


def test_python_packages_that_cannot_be_had_are_named_and_tried_again(machine: Machine) -> None:
    (machine.root / "scripts" / REQUIREMENTS[0]).write_text("no-such-package-as-this>=1\npytest\n")
    done = machine.setup(PIP_FAILS="1")
    assert done.returncode == 1 and "missing: no-such-package-as-this" in done.stderr, done.stderr
    assert "PIP_NO_INDEX=1" in done.stderr
    assert machine.setup("--check").returncode == 1, "what was not installed counts as there"
    assert machine.setup().returncode == 0 and machine.setup("--check").returncode == 0
    assert sum("pip" in call for call in machine.called()) == 3
