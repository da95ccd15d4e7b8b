"""How the package is built by those who only use it, and by those who work on it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def flags_of(folder: Path) -> str:
    """The options of all compilations that a build folder would run."""
    return " ".join(entry["command"] for entry in json.loads((folder / "compile_commands.json").read_text()))


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
def test_a_warning_of_a_newer_compiler_breaks_no_installation(tmp_path: Path) -> None:
    # As pip does it, Python apart: that asks for packages which need not be here.
    settings = {**PROJECT["tool"]["scikit-build"]["cmake"]["define"], "TILEWIRE_BUILD_PYTHON": "OFF"}
    command = ["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(tmp_path), "--log-level=ERROR"]
    command += [f"-D{name}={value}" for name, value in settings.items()]
    subprocess.run(command, check=True, timeout=120)
    assert "-Wall" in flags_of(tmp_path) and "-Werror" not in flags_of(tmp_path)


def test_those_who_work_on_it_hear_of_every_warning() -> None:
    presets = {
        preset["name"]: preset for preset in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    }

    def werror(name: str) -> str:
        preset = presets[name]
        own = preset.get("cacheVariables", {}).get("TILEWIRE_WERROR")
        return own or (werror(preset["inherits"]) if "inherits" in preset else "")

    assert {name: werror(name) for name in presets if not presets[name].get("hidden")} == {
        "dev": "ON",
        "release": "OFF",  # what README tells users to build
        "asan": "ON",
        "tsan": "ON",
        "cuda": "ON",
    }


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(
    ("cpp", "python", "verdict"),
    [(0, 0, ""), (8, 0, "the C++ tests;"), (0, 1, "the Python tests;"), (8, 1, "the C++ tests and the Python tests;")],
)
def test_all_tests_are_run_whichever_fail(cpp: int, python: int, verdict: str, tmp_path: Path) -> None:
    starts = (
        "echo '   Start  8: rdma_guest_test'; echo '      Start  7: a_test'; echo ' 7/9 Test  #7: a_test ...   Passed'"
    )
    for name, code, more in (("ctest", cpp, starts), ("python", python, "true")):
        (tmp_path / name).write_text(f'#!/bin/sh\n{more}\necho "ran {name} $*"\nexit {code}\n')
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["make", "--no-print-directory", "-o", "build", "test", f"PYTHON={tmp_path / 'python'}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "ran ctest --preset dev\n" in done.stdout and "ran python -m pytest\n" in done.stdout, done.stderr
    assert "Test  #7" in done.stdout and "Start" not in done.stdout
    assert "\nrdma_guest_test begins" in f"\n{done.stdout}", "minutes without a word"
    assert (done.returncode == 0) == (not verdict), done.stderr
    assert verdict in done.stdout and ("make test: failed" in done.stdout) == bool(verdict)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
def test_configuring_says_nothing_when_all_is_well(tmp_path: Path) -> None:
    line = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "--preset dev" in line)
    command = line.strip().lstrip("@").replace("$(CURDIR)/$(PYTHON)", sys.executable).replace("$(CUDA_FLAG)", "")
    command = command.replace("cmake --preset dev", f"cmake --preset dev -S {ROOT} -B {tmp_path}")
    for off in ("TILEWIRE_BUILD_TESTS", "TILEWIRE_BUILD_BENCH", "TILEWIRE_CUDA"):
        command = command.replace("-DTILEWIRE_BUILD_PYTHON=ON", f"-D{off}=OFF -DTILEWIRE_BUILD_PYTHON=ON")
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout + done.stderr == "", done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_kernels_can_be_left_out_of_what_make_builds() -> None:
    def configuring(*words: str) -> str:
        command = ["make", "-n", "configure", *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout

    assert "-DTILEWIRE_CUDA=OFF" in configuring("TILEWIRE_CUDA=OFF")
    assert "TILEWIRE_CUDA" not in configuring("TILEWIRE_CUDA=")


# Variables of make's command line are in the environment of what it starts, where the library refuses names that it
# does not know.
@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_what_make_starts_sees_no_option_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(f"include {ROOT}/Makefile\nshow: ; @env\n")
    command = ["make", "-C", str(tmp_path), "show", "TILEWIRE_CUDA=OFF"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TILEWIRE_")}
    seen = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "\nPATH=" in seen and "\nTILEWIRE_" not in seen, seen


def test_users_join_sources() -> None:
    assert PROJECT["tool"]["scikit-build"]["cmake"]["define"]["TILEWIRE_UNITY"] == "ON"
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    [release] = [preset for preset in presets if preset["name"] == "release"]
    assert release["cacheVariables"]["TILEWIRE_UNITY"] == "ON"


# What pip is not told it takes from pyproject.toml, and builds all again by that.
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("cuda", ["OFF", "AUTO"])
def test_what_is_built_is_installed_and_not_built_again(cuda: str, tmp_path: Path) -> None:
    for name in ("scripts/install_python", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    built = dict.fromkeys(PROJECT["tool"]["scikit-build"]["cmake"]["define"], "ON")
    built.update(TILEWIRE_UNITY="OFF", TILEWIRE_FMT_HEADER_ONLY="OFF", TILEWIRE_CUDA=cuda)
    (tmp_path / "build/dev").mkdir(parents=True)
    (tmp_path / "build/dev/CMakeCache.txt").write_text(
        "".join(f"{name}:{'STRING' if name.endswith('CUDA') else 'BOOL'}={value}\n" for name, value in built.items())
    )
    told = subprocess.run([tmp_path / "scripts/install_python"], capture_output=True, text=True, check=True).stdout
    assert {f"--config-settings=cmake.define.{name}={value}" for name, value in built.items()} <= set(told.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("name", "lists", "says", "code"),
    [
        ("a_test", "  One", "[  PASSED  ] 1 test.", 0),
        ("a_test", "  One", "[  PASSED  ] 0 tests.", 1),  # all were skipped
        ("a_test", "", "[  PASSED  ] 1 test.", 1),
        ("a_test", "  One", "[  FAILED  ] 1 test.", 1),
        ("conformance_test", "  One", "[  PASSED  ] 1 test.", 0),
        (
            "conformance_test",
            "$([[ $2 == *Value* ]] || echo '  One')",
            "[  PASSED  ] 1 test.",
            1,
        ),  # one matches nothing
    ],
)
def test_guest_tests_fail_where_none_is_run(name: str, lists: str, says: str, code: int, tmp_path: Path) -> None:
    program = tmp_path / name
    told = f"case $1 in --gtest_list_tests) echo \"{lists}\" ;; *) echo '{says}' ;; esac"
    program.write_text(f"#!/bin/bash\n{told}\n")
    program.chmod(0o755)
    command = [str(ROOT / "tests" / "rdma" / "guest_tests"), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.skipif(os.uname().machine != "x86_64" or shutil.which("bash") is None, reason="needs bash on x86_64")
@pytest.mark.parametrize(("sent", "to_all"), [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, True)])
def test_a_guest_ends_with_the_script_that_started_it(sent: signal.Signals, to_all: bool, tmp_path: Path) -> None:
    for name in ("busybox", "depmod", "ip", "tc", "rdma", "qemu-system-x86_64"):
        (tmp_path / name).write_text(f"#!/bin/bash\necho $$ >{tmp_path}/new && mv {tmp_path}/new {tmp_path}/id\n"
                                     "exec sleep 300\n")  # fmt: skip
        (tmp_path / name).chmod(0o755)
    (tmp_path / "cache/6.1").mkdir(parents=True)
    (tmp_path / "cache/6.1/complete").touch()
    (tmp_path / "tmp").mkdir()
    own = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TILEWIRE_GUEST_CACHE": str(tmp_path / "cache")}
    own["TMPDIR"] = str(tmp_path / "tmp")
    # Whoever runs this may ignore Ctrl-C, which would be inherited.
    command = ["env", "--default-signal", str(ROOT / "tests/rdma/guest"), "true"]
    quiet = subprocess.DEVNULL
    script = subprocess.Popen(command, env={**os.environ, **own}, start_new_session=True, stdout=quiet)
    while not (tmp_path / "id").exists():
        assert script.poll() is None
        time.sleep(0.01)
    emulator = int((tmp_path / "id").read_text())
    try:
        (os.killpg if to_all else os.kill)(script.pid, sent)
        assert script.wait(timeout=60) == 128 + sent
        assert not Path(f"/proc/{emulator}").exists(), "the guest runs on"
        assert list((tmp_path / "tmp").iterdir()) == []
    finally:
        with suppress(ProcessLookupError):
            os.kill(emulator, signal.SIGKILL)
