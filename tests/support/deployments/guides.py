"""Documents whose commands are executed: read as a person reads them, typed into one shell, and compared.

What a document may hold:

- a ```console block: `$ ` begins a command, `> ` goes on with it, other lines are what it prints. `...` stands
  for any text. `# exit 2` at a command's end is its exit code, 0 without it;
- `<!-- file: NAME -->` before a block of another kind: the reader writes it into that file;
- `<!-- sql -->` before an SQL block: the reader's database owner runs it;
- `<!-- with: postgres -->` before a block: only where there is a database;
- `<!-- instead: COMMAND -->` before a console block: what the test runs in its place;
- `<!-- not run: REASON -->` before a console block.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from support import ROOT
from support.processes import blas_settings

GUIDES = ROOT / "deployments" / "guides"

SESSION = "GUIDE_SESSION"
"""In the environment of everything that a document's shell starts."""
TRACEBACK = "Traceback (most recent call last)"

_BLOCK = re.compile(
    r"(?:^<!-- (?P<notes>[^\n]*) -->\n)?^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_EXIT = re.compile(r"\s+# exit (\d+)$")


@dataclass(frozen=True)
class Step:
    """Something that the reader does: a command with its end, or a file to write, or statements for a database."""

    line: int
    kind: str  # run | file | sql
    text: str
    code: int = 0
    shown: tuple[str, ...] = ()
    name: str = ""
    needs: str | None = None


@dataclass(frozen=True)
class Block:
    """A fenced block with the note before it."""

    line: int
    kind: str
    body: str
    note: str
    value: str


def blocks_of(text: str) -> Iterator[Block]:
    """Every fenced block of a document."""
    for match in _BLOCK.finditer(text):
        note, _, value = (match["notes"] or "").partition(":")
        line = text.count("\n", 0, match.start("body")) + 1
        yield Block(line, match["kind"], match["body"], note.strip(), value.strip())


def section_of(text: str, title: str) -> str:
    """One section of a document, the lines before it blanked, so that line numbers stay."""
    start = text.index(f"\n## {title}\n") + 1
    end = text.find("\n## ", start)
    return "\n" * text.count("\n", 0, start) + text[start : end if end > 0 else None]


def steps_of(text: str) -> list[Step]:
    """What a reader of the document does, in order."""
    return [step for block in blocks_of(text) for step in _steps_of_block(block)]


def _steps_of_block(block: Block) -> Iterator[Step]:
    needs = block.value if block.note == "with" else None
    if block.note == "file":
        name, _, needs_too = block.value.partition("; with: ")
        yield Step(block.line, "file", block.body, name=name, needs=needs_too or None)
    elif block.note == "sql":
        yield Step(block.line, "sql", block.body, needs="postgres")
    elif block.kind == "console" and block.note == "instead":
        yield Step(block.line, "run", block.value)
    elif block.kind == "console" and block.note != "not run":
        yield from _commands(block, needs)


def _commands(block: Block, needs: str | None) -> Iterator[Step]:
    parts: list[tuple[int, list[str], list[str]]] = []
    for number, line in enumerate(block.body.splitlines()):
        if line.startswith("$ "):
            parts.append((block.line + number, [line[2:]], []))
        elif line.startswith("> ") and parts and not parts[-1][2]:
            parts[-1][1].append(line[2:])
        else:
            assert parts, f"line {block.line + number}: output before any command"
            parts[-1][2].append(line)
    for number, lines, shown in parts:
        command = "\n".join(lines)
        end = _EXIT.search(command)
        command = command[: end.start()] if end else command
        yield Step(number, "run", command, int(end[1]) if end else 0, tuple(shown), needs=needs)


# ---------------------------------------------------------------- comparing


def is_shown(shown: Sequence[str], output: str) -> bool:
    """Whether an output is as a document shows it; where lines break, and how wide a gap is, does not count."""
    parts = _plain("\n".join(shown)).split("...")
    return re.fullmatch(".*".join(re.escape(part.strip()) for part in parts), _plain(output)) is not None


def _plain(text: str) -> str:
    return " ".join(text.split())


# ---------------------------------------------------------------- executing


@dataclass
class Told:
    """What a step printed, and how it ended."""

    step: Step
    output: str
    code: int
    seconds: float


@dataclass
class Reader:
    """Somebody with an empty folder, one terminal, and `dprelease` on the path."""

    folder: Path
    home: Path
    more: dict[str, str] = field(default_factory=dict)
    has: frozenset[str] = frozenset()
    runs_sql: Callable[[str], None] | None = None
    seconds: float = 840
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    told: list[Told] = field(default_factory=list)

    def follow(self, steps: Sequence[Step]) -> None:
        """Do everything in order, in one shell; stops at the first thing that is not as the document says."""
        shell = self._shell()
        limit = time.monotonic() + self.seconds
        try:
            for step in steps:
                if step.needs is None or step.needs in self.has:
                    self._do(shell, step, limit)
            self._require_tidy()
        finally:
            shell.kill()
            with contextlib.suppress(BrokenPipeError):
                shell.communicate()
            for process in self.left():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    def _shell(self) -> subprocess.Popen[str]:
        self.folder.mkdir(exist_ok=True)
        self.home.mkdir(exist_ok=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        mine = {"PATH": path, "HOME": str(self.home), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", SESSION: self.token}
        mine |= blas_settings()
        return subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self.folder,
            env=mine | self.more,
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _do(self, shell: subprocess.Popen[str], step: Step, limit: float) -> None:
        start = time.monotonic()
        if step.kind == "file":
            (self.folder / step.name).write_text(step.text)
            return
        if step.kind == "sql":
            assert self.runs_sql is not None, "no database to run statements in"
            self.runs_sql(step.text)
            return
        output, code = self._type(shell, step.text, limit)
        self.told.append(Told(step, output, code, time.monotonic() - start))
        where = f"line {step.line}: {step.text}\n"
        assert code == step.code, f"{where}ended with {code}, not {step.code}:\n{output}"
        assert TRACEBACK not in output, f"{where}{output}"
        if step.shown:
            assert is_shown(step.shown, output), f"{where}printed:\n{output}\nshown:\n" + "\n".join(step.shown)

    def _type(self, shell: subprocess.Popen[str], command: str, limit: float) -> tuple[str, int]:
        """Type a command into the shell; returns what it printed and its exit code."""
        number = len(self.told)
        out, done = (self.home / f"{number}.{name}" for name in ("out", "done"))
        assert shell.stdin is not None
        typed = f"{{ {command}\n}} < /dev/null > {shlex.quote(str(out))} 2>&1\n"
        if number == 0:
            typed = "set -m\n" + typed  # job control, as a terminal has it
        draft = shlex.quote(str(done) + ".draft")
        shell.stdin.write(f"{typed}echo $? > {draft}; mv {draft} {shlex.quote(str(done))}\n")
        shell.stdin.flush()
        while not done.is_file():
            assert shell.poll() is None, f"the shell ended at: {command}\n{_read(out)}"
            assert time.monotonic() < limit, f"out of time at: {command}\n{_read(out)}{self.logs()}"
            time.sleep(0.05)
        return _read(out), int(done.read_text())

    def left(self) -> list[psutil.Process]:
        """Processes that the document started and that still run."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(SESSION) == self.token and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def _require_tidy(self) -> None:
        """A document ends what it starts, and what it lets run says nothing ugly."""
        shell = [process for process in self.left() if process.name() != "bash"]
        assert not shell, f"the document leaves behind {[process.cmdline() for process in shell]}"
        ours = [path for path in self.folder.glob("*serve.log") if TRACEBACK in path.read_text()]
        assert not ours, self.logs()

    def logs(self) -> str:
        """The ends of the logs that the document wrote."""
        return "".join(f"\n{path.name}:\n{_read(path)[-3000:]}" for path in sorted(self.folder.glob("*.log")))


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""


def main() -> None:
    """Follow a document by hand and print what really happens: `python -m support.deployments.guides FILE FOLDER`."""
    document, folder = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
    folder.mkdir(parents=True)
    reader = Reader(folder / "folder", folder / "home")
    text = document.read_text()
    start = time.monotonic()
    try:
        reader.follow(steps_of(section_of(text, sys.argv[3]) if len(sys.argv) > 3 else text))
    finally:
        for told in reader.told:
            sys.stdout.write(f"--- line {told.step.line}, {told.seconds:.1f} s, exit {told.code}\n")
            sys.stdout.write(f"$ {told.step.text}\n{told.output}")
        sys.stdout.write(f"{time.monotonic() - start:.0f} s\n")


if __name__ == "__main__":
    main()
