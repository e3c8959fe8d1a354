"""What is said of a foreign error: its type, and the place in our own code; an error of ours carries nothing of it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dpcore.errors import WorkspaceError
from tasks.workspace import redaction
from tasks.workspace.redaction import ErrorBoundary, own_error


def error_through(*files: Path) -> Exception:
    """An error that was raised in the last of these files, which the others called."""
    code = "raise ValueError('a raw value')"
    for file in reversed(files):
        code = f"exec(compile({code!r}, {str(file)!r}, 'exec'))"
    with pytest.raises(ValueError, match="a raw value") as caught:
        exec(code)  # noqa: S102  frames of files that need not exist
    return caught.value


@pytest.mark.parametrize("folder", ["checkout", ".venv/lib/python3.11/site-packages"])
def test_the_place_is_in_our_packages_wherever_they_are_installed(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel's packages have all other libraries beside them, often below a folder named .venv."""
    root = tmp_path / folder
    monkeypatch.setattr(redaction, "ROOT", root)
    error = error_through(root / "tasks" / "ours.py", root / "somelibrary" / "theirs.py")
    assert "ours.py:1" in str(own_error(error, "stage"))
    assert "raw value" not in str(own_error(error, "stage"))
    assert "an unknown place" in str(own_error(error_through(root / "somelibrary" / "theirs.py"), "stage"))


CELL = "Ada Lovelace, 36"


def ours(_error: Exception) -> WorkspaceError:
    return WorkspaceError("it cannot be read", rule="unreadable", where="here", hint="look")


def fail_directly() -> None:
    with ErrorBoundary(ValueError, OSError, refusal=ours):
        raise ValueError(CELL)


@contextmanager
def guarded() -> Iterator[None]:
    with ErrorBoundary(ValueError, refusal=ours):
        yield


def fail_in_a_generator() -> None:
    with guarded():
        raise ValueError(CELL)


@pytest.mark.parametrize("fail", [fail_directly, fail_in_a_generator])
def test_the_error_that_replaces_another_is_free_of_it(fail) -> None:
    with pytest.raises(WorkspaceError) as caught:
        fail()
    assert (caught.value.rule, caught.value.__cause__, caught.value.__context__) == ("unreadable", None, None)
    assert CELL not in "".join(traceback.format_exception(caught.value))


def test_no_variable_of_the_boundary_leads_to_the_foreign_error() -> None:
    with pytest.raises(WorkspaceError) as caught:
        fail_directly()
    stack = traceback.TracebackException.from_exception(caught.value, capture_locals=True).stack
    assert not [name for frame in stack for name, shown in (frame.locals or {}).items() if CELL in shown]


def test_errors_that_are_not_listed_and_our_own_pass_as_they_are() -> None:
    with pytest.raises(KeyError), ErrorBoundary(ValueError, refusal=ours):
        raise KeyError("other")
    own = WorkspaceError("full", rule="disk-full", where="disk", hint="make room")
    with pytest.raises(WorkspaceError) as caught, ErrorBoundary(OSError, refusal=ours):
        raise own
    assert caught.value is own
