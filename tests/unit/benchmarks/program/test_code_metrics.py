"""The figures of a tree are those of a small one that was counted by hand."""

from __future__ import annotations

import ast
import io
import tarfile
from pathlib import Path, PurePosixPath

import pytest
from support import ROOT

from benchmarks.program.code_metrics import (
    acts,
    begins_with_participle,
    figures,
    measure,
    show,
    sources_now,
    sources_of_archive,
)

SMALL = {
    "core/__init__.py": '"""Everything."""\n',
    "core/errors.py": '"""Errors."""\n\n\nclass Fault(Exception):\n    """A fault."""\n\n    x = 1\n',  # 2 statements
    "core/one/__init__.py": "",
    "core/one/first.py": "def _step(a):\n    return a\n\n\ndef drawn(rng: Generator):\n    return rng.random()\n",  # 4
    "core/one/second.py": "import math\n\n\ndef _step(b):\n    b += 1\n    return b\n",  # 4
    "core/two/third.py": "def _step():\n    pass\n\n\nclass Fault:\n    def seen(self):\n        return self\n",  # 5
}
SOURCES = {PurePosixPath(path): text for path, text in SMALL.items()}


def test_a_small_tree_is_counted_as_by_hand() -> None:
    found = measure(SOURCES, "core")
    assert found.modules == {"core": 1, "core/one": 2, "core/two": 1}
    assert found.longest == ("core/errors.py", 7)
    assert (found.statements, found.imports) == (15, 1)
    assert (found.functions, found.participles) == (5, 2)
    assert found.acting == ["core/one/first.py: drawn"]


def test_a_name_is_a_duplicate_only_in_another_chapter() -> None:
    same_chapter = {path: text for path, text in SOURCES.items() if "two" not in path.parts}
    assert measure(same_chapter, "core").duplicates == {}
    assert measure(SOURCES, "core").duplicates == {
        "Fault": ["core/errors.py", "core/two/third.py"],
        "_step": ["core/one/first.py", "core/one/second.py", "core/two/third.py"],
    }


@pytest.mark.parametrize("name", ["measured", "_told", "drawn_classes", "bought_frame", "seen_in"])
def test_a_participle_is_seen(name: str) -> None:
    assert begins_with_participle(name)


@pytest.mark.parametrize("name", ["measure", "seed_of", "need_delta", "read_rows", "set_cap", "index", "__repr__"])
def test_other_words_are_no_participles(name: str) -> None:
    assert not begins_with_participle(name)


@pytest.mark.parametrize(
    ("text", "acting"),
    [
        ("def f(a):\n    return a + 1", False),
        ("def f(a):\n    b = []\n    b.append(a)\n    b[0] = 2\n    return b", False),
        ("def f(a):\n    yield a", False),
        ('def f(a):\n    """What a Protocol asks for."""', False),
        ("def f(a: MatrixNoise):\n    return a", False),
        ("def f(a):\n    print(a)", True),
        ("def f(a):\n    def g():\n        return 1\n    a.b()", True),
        ("def f(a):\n    a.append(1)\n    return a", True),
        ("def f(self):\n    self.rows[0].x = 1\n    return 2", True),
        ("def f(self):\n    self.count += 1\n    return 2", True),
        ("def f(a):\n    return Ridge().fit(a)", True),
        ("def f(a, *, noise: Noise | None):\n    return a", True),
        ("def f(a: Callable[[int], int]):\n    return a(1)", True),
    ],
)
def test_an_effect_is_told_from_a_value(text: str, acting: bool) -> None:
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert acts(function) is acting


def test_figures_stand_beside_those_of_an_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "core"
    folder.mkdir()
    (folder / "old.py").write_text("x = 1\n")
    packed = io.BytesIO()
    with tarfile.open(
        fileobj=packed, mode="w"
    ) as archive:  # what `git archive` writes: folders, and files of every kind
        (folder / "page.md").write_text("text")
        archive.add(folder, "core")
    (folder / "old.py").rename(folder / "new.py")
    before, now = sources_of_archive(packed.getvalue()), sources_now("core", root=tmp_path)
    assert before == {PurePosixPath("core/old.py"): "x = 1\n"}
    assert now == {PurePosixPath("core/new.py"): "x = 1\n"}
    show(measure(now, "core"), measure(before, "core"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["longest", "module", "1", "lines", "(core/old.py)", "1", "lines", "(core/new.py)"] in lines


def test_the_figures_of_dpcore_are_those_of_its_files() -> None:
    found = measure(sources_now("dpcore"), "dpcore")
    files = [path for path in (ROOT / "dpcore").rglob("*.py") if path.name != "__init__.py"]
    assert sum(found.modules.values()) == len(files)
    assert figures(found)["modules"] == str(len(files))


def test_several_folders_are_one_tree_with_the_chapters_of_all() -> None:
    apart = {PurePosixPath(path.as_posix().replace("core/two", "edge/one")): text for path, text in SOURCES.items()}
    found = measure(apart, "core", "edge")
    assert found.modules == {"core": 1, "core/one": 2, "edge/one": 1}
    assert found.statements == measure(SOURCES, "core").statements
    assert list(found.duplicates) == ["Fault", "_step"]
