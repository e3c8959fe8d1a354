"""One story of releases, told once through the real command line and server, looked at by many tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from planted import plant
from storybook import SPEC, Story, steps_of, write_inputs


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The whole story, through the command line, the flow and an embedded server."""
    base = tmp_path_factory.mktemp("story")
    for name in ("home", "tmp", "workspace"):
        (base / name).mkdir()
    init = ["init", str(base / "workspace"), "--demo", "none"]
    driver = [sys.executable, str(Path(__file__).with_name("cli_driver.py"))]
    environment = {"HOME": str(base / "home"), "TMPDIR": str(base / "tmp"), "PATH": os.environ["PATH"]}
    plant(base / "current")

    def drive(steps: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            [*driver, str(base / name)],
            input=json.dumps(steps),
            text=True,
            capture_output=True,
            env=environment,
            cwd=base / "current",
            timeout=280,
            check=False,
        )
        (base / f"{name}.terminal").write_text(done.stdout + done.stderr)
        assert done.returncode == 0, done.stderr[-3000:]
        results: list[dict[str, Any]] = json.loads((base / name).read_text())
        return results

    drive([{"name": "init", "argv": init}], "init.json")
    (base / "workspace" / "release.yaml").write_text(SPEC)
    write_inputs(base)
    results = drive(steps_of(base), "steps.json")
    return Story(base, {result["name"]: result for result in results})
