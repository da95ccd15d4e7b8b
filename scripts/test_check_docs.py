"""check_docs must pass right pages and name what is planted."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECKER = Path(__file__).resolve().parent / "check_docs"

WAIT_H = """// lost_wake_up() is a word of a comment
class HostWaiter {
 public:
  WaitResult wait(const Ready& ready) { return look(ready); }
};
constexpr std::array kKinds = {1, 2};
"""
WAIT_CC = """HostWaiter::HostWaiter(Bell bell) : bell_(bell) {}

WaitResult HostWaiter::wait_long(Callback ready) {
  return spin(ready);
}
"""
PAGE = """# A page

## What it is, and why

See [the other](docs/other.md), [its part](docs/other.md#the-second-part), [this part](#what-it-is-and-why) and
[the net](https://example.org/a#b). The file `src/memory/wait.h`, also `memory/wait.h`, `wait.h`, `wait.*` and `docs/`.
The names `src/memory/wait.h: HostWaiter`, `src/memory/wait.h: HostWaiter::wait`, `src/memory/wait.h: kKinds`,
`src/memory/wait.cc: HostWaiter::wait_long`, `python/run.py: start`; the formula `l mod L`, the pair `a/b`.
Two lines of prose may begin with
make that or with
tilewire that. It is built: `build/dev/`, `env/bin`. Set `TILEWIRE_DEADLINE_S`, say `make test` and `tilewire run`.

```
cat no/such/file.h
make test
```
"""
TREE = {
    "README.md": PAGE,
    "docs/other.md": "# Other\n\n## The second part\n\nBack to the [page](../README.md).\n",
    "docs/options.md": "| `TILEWIRE_DEADLINE_S` |\n",
    "src/memory/wait.h": WAIT_H,
    "src/memory/wait.cc": WAIT_CC,
    "python/run.py": "def start():\n    pass\n",
    "python/tilewire/cli/run.py": 'app.command("run")(run)\n',
    ".gitignore": "/build/\n/env/\n*.pyc\n",
    "Makefile": "test: build ## Run the tests\n",
}


def check(root, files):
    for name, text in {**TREE, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return subprocess.run(
        [sys.executable, CHECKER, "--root", root], capture_output=True, text=True, check=False, timeout=60
    )


# `env` is what a page tells its reader to make: once it is there, what it does not hold is no fault of the page.
@pytest.mark.parametrize("made", [{}, {"env/pyvenv.cfg": "", "build/dev/CMakeCache.txt": ""}])
def test_right_pages_pass(tmp_path, made):
    result = check(tmp_path, made)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("See [it](docs/gone.md).", "the link docs/gone.md leads nowhere"),
        ("See ![it](docs/gone.svg).", "the link docs/gone.svg leads nowhere"),
        ("See [it](docs/other.md#a-third-part).", "docs/other.md has no heading for #a-third-part"),
        ("See [it](#nothing).", "README.md has no heading for #nothing"),
        ("In `src/memory/gone.h`.", "there is no src/memory/gone.h"),
        ("In `src/memory/gone`.", "there is no src/memory/gone"),
        ("In `gone.cc`.", "there is no gone.cc"),
        ("In `gone.*: wait`.", "there is no gone.*"),
        ("In `src/memory/wait.h: Waiter`.", "src/memory/wait.h has no Waiter"),
        ("In `src/memory/wait.h: HostWaiter::sleep`.", "src/memory/wait.h has no HostWaiter::sleep"),
        ("In `src/memory/wait.h: look`.", "src/memory/wait.h has no look"),  # called there, not declared
        ("In `src/memory/wait.h: lost_wake_up`.", "src/memory/wait.h has no lost_wake_up"),  # in a comment
        ("In `src/memory/wait.cc: spin`.", "src/memory/wait.cc has no spin"),
        ("In `python/run.py: stop`.", "python/run.py has no stop"),
        ("Set TILEWIRE_DEADLINE.", "there is no TILEWIRE_DEADLINE"),
        ("Say `make tests`.", "make has no target tests"),
        ("Say `tilewire fly`.", "tilewire has no fly"),
        ("```\nmake tests\n```", "make has no target tests"),
    ],
)
def test_a_planted_fault_is_named_with_its_line(tmp_path, line, complaint):
    result = check(tmp_path, {"README.md": PAGE + line + "\n"})
    number = PAGE.count("\n") + 1 + line.startswith("```")
    assert result.returncode == 1, f"the planted fault passed: {result.stdout}{result.stderr}"
    assert result.stdout == f"README.md:{number}: {complaint}\n"


def test_pages_in_any_folder_are_read(tmp_path):
    result = check(tmp_path, {"src/memory/README.md": "In `wait.h: Waiter` and `gone.h`.\n"})
    assert result.stdout.splitlines() == [
        "src/memory/README.md:1: there is no gone.h",
        "src/memory/README.md:1: wait.h has no Waiter",
    ]


def test_a_tree_without_pages_does_not_pass(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    result = subprocess.run([sys.executable, CHECKER, "--root", tmp_path], capture_output=True, text=True, check=False)
    assert result.returncode != 0
