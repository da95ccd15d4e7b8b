"""Each checker must pass what is right and name what is planted."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run(checker, root):
    command = [sys.executable, SCRIPTS / checker, "--root", root]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def must_pass(checker, root):
    result = run(checker, root)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def must_name(checker, root, *parts):
    result = run(checker, root)
    assert result.returncode == 1, f"the planted fault passed: {result.stdout}{result.stderr}"
    for part in parts:
        assert part in result.stdout, f"'{part}' is not in: {result.stdout}"


TREE = {
    "include/tilewire/error.h": "#include <string>\n",
    "include/tilewire/options.h": "#include <tilewire/error.h>\n#include <memory>\n",
    "include/tilewire/communicator.h": "#include <tilewire/options.h>\n",
    "src/base/bytes.h": "#include <tilewire/error.h>\n",
    "src/schedule/wire.h": '#include "base/bytes.h"\n',
    "src/memory/arena.h": '#include "schedule/wire.h"\n',
    "src/transport/proxy.h": '#include "memory/arena.h"\n',
    "src/transport/proxy_test.cc": '#include "transport/proxy.h"\n#include <gtest/gtest.h>\n',
    "src/planning/planner.h": '#include "schedule/wire.h"\n',
    "src/arithmetic/sum.h": '#include "base/bytes.h"\n',
    "src/arithmetic/sum_test.cc": '#include "testing/cluster.h"\n',
    "src/executor/call.h": '#include "transport/proxy.h"\n#include "planning/planner.h"\n#include "arithmetic/sum.h"\n',
    "src/operands/checks.h": '#include "executor/call.h"\n',
    "src/reduction/layout.h": '#include "operands/checks.h"\n',
    "src/testing/cluster.h": '#include "reduction/layout.h"\n',
    "src/ops/ag_gemm/plan.h": '#include "transport/proxy.h"\n#include "reduction/layout.h"\n',
    "src/ops/ag_gemm/call_fixture.h": '#include "testing/cluster.h"\n',
    "src/ops/gemm_rs/plan.h": '#include "schedule/wire.h"\n',
    "src/ops/registry.cc": '#include "ops/ag_gemm/plan.h"\n#include "ops/gemm_rs/plan.h"\n',
    "src/api/communicator.cc": '#include <tilewire/communicator.h>\n#include "ops/ag_gemm/plan.h"\n',
    "python/module.cc": "#include <tilewire/communicator.h>\n",
}


def test_layers_pass_a_right_tree(tmp_path):
    write(tmp_path, TREE)
    must_pass("check_layers", tmp_path)


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("src/base/bytes.h", '#include "schedule/wire.h"', "base may not include schedule"),
        ("src/base/bytes.h", "#include <tilewire/communicator.h>", "base may not include api"),
        ("src/schedule/wire.h", '#  include "memory/arena.h"', "schedule may not include memory"),
        ("src/memory/arena.h", '#include "transport/proxy.h"', "memory may not include transport"),
        ("src/transport/proxy_test.cc", '#include "ops/ag_gemm/plan.h"', "transport may not include ops"),
        ("src/planning/planner.h", '#include "executor/call.h"', "planning may not include executor"),
        ("src/arithmetic/sum.h", '#include "schedule/wire.h"', "arithmetic may not include schedule"),
        ("src/executor/call.h", '#include "operands/checks.h"', "executor may not include operands"),
        ("src/operands/checks.h", '#include "reduction/layout.h"', "operands may not include reduction"),
        ("src/ops/ag_gemm/plan.h", '#include "testing/cluster.h"', "ops may not include testing"),
        ("src/testing/cluster.h", '#include "ops/ag_gemm/plan.h"', "testing may not include ops"),
        ("src/ops/gemm_rs/plan.h", '#include "ops/ag_gemm/plan.h"', "op gemm_rs may not include the op ag_gemm"),
        ("include/tilewire/options.h", "#include <tilewire/communicator.h>", "base may not include api"),
        ("include/tilewire/communicator.h", '#include "base/bytes.h"', "public and standard headers only"),
        ("python/module.cc", '#include "ops/ag_gemm/plan.h"', "python may not include ops"),
        ("src/transport/proxy.h", '#include "arena.h"', "no such file"),
    ],
)
def test_layers_name_a_planted_include(tmp_path, name, line, reason):
    write(tmp_path, TREE)
    write(tmp_path, {name: TREE[name] + line + "\n"})
    must_name("check_layers", tmp_path, f"{name}:", reason)


def test_layers_name_a_folder_that_is_no_layer(tmp_path):
    write(tmp_path, {**TREE, "src/extras/x.h": "\n"})
    must_name("check_layers", tmp_path, "the layer extras is not in the table")


def test_layers_do_not_pass_an_empty_tree(tmp_path):
    assert run("check_layers", tmp_path).returncode != 0


RIGHT = '// getenv("X") and std::cout are words of a comment\nconst char* kText = "abort()";\nvoid abort(int code);\n'


def test_rules_pass_comments_texts_and_own_functions(tmp_path):
    write(tmp_path, {"src/base/log.cc": "void f() { std::fwrite(p, 1, n, stderr); }\n", "src/base/a.cc": RIGHT})
    write(tmp_path, {"src/base/options.cc": "char** e = environ;\n", "src/base/a_test.cc": "int f() { exit(3); }\n"})
    must_pass("check_rules", tmp_path)


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("src/base/a.cc", 'auto x = std::getenv("HOME");', "reads the environment"),
        ("src/memory/a.cc", "extern char** environ;", "reads the environment"),
        ("src/base/page_main.cc", 'auto x = getenv("HOME");', "reads the environment"),
        ("src/base/a.cc", "std::cout << 1;", "prints through base/log.h"),
        ("src/base/a.cc", "std::fprintf(stderr, s);", "prints through base/log.h"),
        ("src/base/a.cc", "fmt::print(s);", "prints through base/log.h"),
        ("src/base/a.h", "inline void f() { std::abort(); }", "never ends the process"),
        ("src/base/a.cc", "if (bad) exit(1);", "never ends the process"),
        ("src/base/utils.h", "int x;", "name the file after what is in it"),
        ("python/tilewire/helpers.py", "x = 1", "name the file after what is in it"),
        ("docs/page.md", "TO" + "DO: write this", "is left over"),
        ("src/base/a.cc", 'throw Error("not impl' + 'emented");', "is left over"),
    ],
)
def test_rules_name_a_planted_line(tmp_path, name, line, reason):
    write(tmp_path, {"src/base/good.cc": RIGHT, name: line + "\n"})
    must_name("check_rules", tmp_path, name, reason)


def test_headers_must_compile_alone(tmp_path):
    header = "#pragma once\n#include <string>\ninline std::string f() { return {}; }\n"
    write(tmp_path, {"src/base/good.h": header, "src/base/next.h": '#pragma once\n#include "base/good.h"\n'})
    must_pass("check_headers", tmp_path)
    # What passed is remembered; a change in an included file must still be seen.
    write(tmp_path, {"src/base/good.h": header.replace("#include <string>\n", "")})
    must_name("check_headers", tmp_path, "src/base/good.h", "src/base/next.h")


def test_headers_for_cuda_are_no_fault_of_a_machine_without_it(tmp_path):
    write(tmp_path, {"src/base/gpu.h": "#pragma once\n#include <cuda_of_another_machine.h>\n"})
    assert "for want of CUDA's headers: src/base/gpu.h" in must_pass("check_headers", tmp_path)
    write(tmp_path, {"src/base/bad.h": "#pragma once\n#include <no_such_header.h>\n"})
    must_name("check_headers", tmp_path, "src/base/bad.h")


@pytest.mark.parametrize(
    ("source", "proves"),
    [
        ('// Says why.\n#include "base/bad.h"\n', True),
        ('#include <string>\n#include "base/bad.h"\n', False),
        ('struct Leaned {};\n#include "base/bad.h"\n', False),
        ("int f();\n", False),
    ],
)
def test_headers_of_the_build_are_left_to_it_only_where_it_compiles_them_alone(tmp_path, source, proves):
    commands = [{"directory": str(tmp_path), "file": "src/base/bad.cc", "command": "g++"}]
    files = {"src/base/bad.h": "#pragma once\nLeaned f();\n", "src/base/bad.cc": source}
    write(tmp_path, {**files, "build/dev/compile_commands.json": json.dumps(commands)})
    if proves:
        must_pass("check_headers", tmp_path)
    else:
        must_name("check_headers", tmp_path, "src/base/bad.h")


@pytest.mark.skipif(not shutil.which("clang-tidy"), reason="clang-tidy is not installed")
def test_tidy_names_a_planted_fault(tmp_path):
    shutil.copy(SCRIPTS.parent / ".clang-tidy", tmp_path)
    write(tmp_path, {"src/base/a.cc": "int f(int a) { return a; }\n"})
    must_pass("check_tidy", tmp_path)
    write(tmp_path, {"src/base/a.cc": "double f(int a, int b) { double c = a / b; return c; }\n"})
    must_name("check_tidy", tmp_path, "bugprone-integer-division")
    write(tmp_path, {"src/base/a.cc": "int f(int a) { return __builtin_no_such_thing(a); }\n"})
    must_pass("check_tidy", tmp_path)  # whether it compiles is for the compiler to say


@pytest.mark.skipif(not shutil.which("clang-tidy"), reason="clang-tidy is not installed")
def test_tidy_names_a_fault_in_one_of_several_sources(tmp_path):
    shutil.copy(SCRIPTS.parent / ".clang-tidy", tmp_path)
    header = "#pragma once\ninline double half(int a) { return a * 0.5; }\n"
    user = '#include "base/half.h"\nnamespace {{ double {0}_once(int a) {{ return half(a); }} }}\n'
    user += "double {0}(int a) {{ return {0}_once(a); }}\n"
    write(tmp_path, {"src/base/half.h": header, "src/base/a.cc": user.format("a"), "src/base/b.cc": user.format("b")})
    must_pass("check_tidy", tmp_path)
    fault = "double f(int a, int b) { double c = a / b; return c; }\n"
    write(tmp_path, {"src/base/b.cc": user.format("b") + fault})
    must_name("check_tidy", tmp_path, "src/base/b.cc", "bugprone-integer-division")
    # Two sources that cannot be one unit are each looked at.
    write(tmp_path, {"src/base/a.cc": user.format("b").replace("double b(", "double a("), "src/base/b.cc": fault})
    must_name("check_tidy", tmp_path, "src/base/b.cc")
    write(tmp_path, {"src/base/b.cc": user.format("b")})
    must_pass("check_tidy", tmp_path)
    # A fault in a header is one of whoever includes it.
    write(tmp_path, {"src/base/half.h": "#pragma once\ninline double half(int a) { return a / 2; }\n"})
    must_name("check_tidy", tmp_path, "src/base/half.h", "bugprone-integer-division")


def test_format_sees_a_line_that_is_not_laid_out(tmp_path):
    clang_format = Path(sys.executable).with_name("clang-format")
    shutil.copy(SCRIPTS.parent / ".clang-format", tmp_path)
    write(tmp_path, {"good.cc": "int f(int a) { return a; }\n", "bad.cc": "int  f( int a ){return a;}\n"})
    for name, code in (("good.cc", 0), ("bad.cc", 1)):
        command = [clang_format, "--dry-run", "-Werror", name]
        assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == code


@pytest.mark.skipif(Path(sys.prefix) != SCRIPTS.parent / ".venv", reason="runs in another environment")
def test_setup_passes_at_once_where_everything_is_there():
    result = subprocess.run([SCRIPTS / "setup", "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_setup_names_what_is_missing(tmp_path):
    """A machine without compiler, build tools, sudo and apt-get is told the packages."""
    for tool in ("bash", "cat", "dirname", "grep", "head", "paste", "printf", "sed", "sha256sum", "sort"):
        found = shutil.which(tool)
        if found:
            (tmp_path / tool).symlink_to(found)
    fake_id = tmp_path / "id"
    fake_id.write_text("#!/bin/sh\necho 1000\n")
    fake_id.chmod(0o755)
    environment = {"PATH": str(tmp_path)}
    result = subprocess.run([SCRIPTS / "setup"], capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 1
    for part in ("g++", "cmake", "ninja-build", "apt-get install"):
        assert part in result.stderr, result.stderr
