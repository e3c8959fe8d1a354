"""Where `dprelease plan --plot` draws to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dpcore.errors import RefusedError

if TYPE_CHECKING:
    from tasks.schedule.outlook import Outlook

PLOT_ENDINGS = (".svg", ".png")


def require_drawable(path: Path) -> None:
    """A plot goes into a picture file in a folder that is there.

    Raises: RefusedError.
    """
    if path.suffix.lower() not in PLOT_ENDINGS:
        message, rule = f"a plot cannot be written as {path.suffix or 'a file without an ending'}", "plot-format"
    elif path.is_dir() or not path.absolute().parent.is_dir():
        message, rule = "there is no folder to write the plot into", "plot-folder"
    else:
        return
    hint = f"give the name of a file in an existing folder, ending in {' or '.join(PLOT_ENDINGS)}"
    raise RefusedError(message, rule=rule, where="--plot", hint=hint)


def draw(outlook: Outlook, path: Path) -> None:
    """Draw the months ahead and the alternatives; a file that cannot be written whole is not left there."""
    from tasks.report.plan_plot import plan_png, plan_svg

    drawn = plan_svg(outlook).encode() if path.suffix.lower() == ".svg" else plan_png(outlook)
    try:
        path.write_bytes(drawn)
    except OSError:
        path.unlink(missing_ok=True)
        raise
