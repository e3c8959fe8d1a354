"""A current folder that somebody else filled: modules and settings that must be neither imported nor read."""

from __future__ import annotations

from pathlib import Path

MODULES = (
    "uvicorn.py",
    "secrets.py",
    "multiprocessing.py",
    "prefect.py",
    "flows/__init__.py",
    "deployments/__init__.py",
)
SETTINGS = {
    ".env": "PREFECT_API_URL=http://127.0.0.1:9/api\n",
    "prefect.toml": '[api]\nurl = "http://127.0.0.1:9/api"\n',
    "matplotlibrc": "figure.figsize: 0.1, 0.1\n",
}


def plant(folder: Path) -> Path:
    """Fill a folder; whoever imports one of its modules leaves the file `executed` beside it."""
    folder.mkdir(parents=True)
    mark = folder.with_name("executed")
    for name in MODULES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"open({str(mark)!r}, 'a').write({name!r})\nraise SystemExit(9)\n")
    for name, text in SETTINGS.items():
        (folder / name).write_text(text)
    return mark
