"""check_cases must pass right pages and name what is planted."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECKER = Path(__file__).resolve().parent / "check_cases"
PAGE = """| case | fault | held by |
|---|---|---|
| B01 | words | `src/a_test.cc: Wire.Survives`, `tests/test_b.py: test_it` |
| B02 | more words | later: needs a network |
| B03 | words of a GPU | `tests/c.cu: test_words` |
"""


def check(root: Path, page: str) -> subprocess.CompletedProcess[str]:
    for folder in ("src", "tests", "docs"):
        (root / folder).mkdir()
    (root / "src/a_test.cc").write_text("TEST_F(Wire, Survives) {\n}\n")
    (root / "tests/c.cu").write_text("void test_words() {\n  test_rest();\n}\n")
    (root / "tests/test_b.py").write_text("def test_it() -> None:\n    pass\n")
    (root / "docs/cases.md").write_text(page)
    return subprocess.run([sys.executable, str(CHECKER), str(root)], capture_output=True, text=True, check=False)


def test_right_page_passes(tmp_path: Path) -> None:
    found = check(tmp_path, PAGE)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("Wire.Survives", "Wire.Survive", "no test Wire.Survive"),
        ("src/a_test.cc", "src/b_test.cc", "there is no src/b_test.cc"),
        ("test_it", "test_i", "no test test_i"),
        ("test_words", "test_rest", "no test test_rest"),
        ("later: needs a network", "", "neither a test nor"),
        ("later: needs a network", "later", "neither a test nor"),
        ("B02", "B01", "B01 has two rows"),
        (PAGE, "# Cases\n", "has no case"),
    ],
)
def test_planted_fault_is_named(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    found = check(tmp_path, PAGE.replace(old, new))
    assert found.returncode == 1 and complaint in found.stderr
