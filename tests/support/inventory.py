"""Lists the tests, and what became of those of an earlier commit.

    cd tests; python -m support.inventory [COMMIT]

Prints how many tests each folder has and how many are slow (`make verify` alone runs those). With a
commit, tests are matched by name, wherever their file is: the exit code is 1 if one is gone or slow now.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from support import ROOT


def collect(tree: Path, marks: str) -> list[str]:
    """The identities of the tests under an expression of marks."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-m", marks]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if line.startswith("tests/") and "::" in line]


def names_of(tests: list[str]) -> Counter[str]:
    """How many cases each test function has."""
    return Counter(test.split("[", 1)[0].rsplit("::", 1)[1] for test in tests)


def main() -> int:
    """Print the list and, for a commit, the differences."""
    fast, slow = collect(ROOT, "not slow"), collect(ROOT, "slow")
    folders = sorted({Path(test.split("::")[0]).parent for test in fast + slow})
    for folder in folders:
        counts = [sum(Path(test.split("::")[0]).parent == folder for test in tests) for tests in (fast, slow)]
        print(f"{counts[0]:6} {counts[1]:4} slow  {folder}")
    print(f"{len(fast):6} {len(slow):4} slow  in all")
    if not sys.argv[1:]:
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary) / "tree"
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), sys.argv[1]], cwd=ROOT, check=True)
        try:
            earlier_fast, earlier_slow = collect(tree, "not slow"), collect(tree, "slow")
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    print(f"{len(earlier_fast):6} {len(earlier_slow):4} slow  at {sys.argv[1]}")
    gone = names_of(earlier_fast + earlier_slow) - names_of(fast + slow)
    slowed = (names_of(earlier_fast) - names_of(fast)) - gone
    for word, differences in {"gone": gone, "slow now": slowed}.items():
        for name, cases in sorted(differences.items()):
            print(f"{word}: {name} ({cases} cases)")
    return 1 if gone or slowed else 0


if __name__ == "__main__":
    raise SystemExit(main())
