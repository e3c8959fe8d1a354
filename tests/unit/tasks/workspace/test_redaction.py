"""What is said of an unexpected error: its type, and the place in our own code that it came through."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.workspace import redaction
from tasks.workspace.redaction import own_error


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
