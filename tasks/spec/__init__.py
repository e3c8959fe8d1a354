"""release.yaml: read with exact numbers, validated strictly, refused with rule, place and hint.

`load_spec` reads a file and `parse_spec` a text; both give a frozen `ReleaseSpec`
or raise `SpecError` for the first problem they meet.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dpcore.errors import SpecError
from tasks.spec.checks import ChecksSpec
from tasks.spec.loader import read_yaml
from tasks.spec.operations import CsvSpec, QuerySpec, RunnerSpec
from tasks.spec.refusals import first_problem
from tasks.spec.release import ReleaseSpec
from tasks.spec.ticks import MonthRule
from tasks.workspace.reading import read_bytes
from tasks.workspace.redaction import ErrorBoundary

__all__ = [
    "ChecksSpec",
    "CsvSpec",
    "MonthRule",
    "QuerySpec",
    "ReleaseSpec",
    "RunnerSpec",
    "load_spec",
    "parse_spec",
    "read_document",
    "spec_of",
]


def load_spec(path: Path) -> ReleaseSpec:
    """The specification in a file.

    Raises:
        SpecError: the file cannot be read, is not YAML, or breaks a rule.
    """
    return parse_spec(_read_text(path))


@functools.lru_cache(maxsize=8)
def parse_spec(text: str) -> ReleaseSpec:
    """The specification in a text; a run asks for the same one several times.

    Raises:
        SpecError: the text is not YAML, or breaks a rule.
    """
    return spec_of(read_yaml(text))


def read_document(path: Path) -> dict[Any, Any]:
    """What a file says, before it is validated as a specification.

    Raises:
        SpecError: the file cannot be read, or is not YAML.
    """
    return read_yaml(_read_text(path))


def spec_of(document: dict[Any, Any]) -> ReleaseSpec:
    """The specification that a document states.

    Raises:
        SpecError: it breaks a rule.
    """
    with ErrorBoundary(ValidationError, refusal=first_problem):  # its text quotes whole sections of the input
        return ReleaseSpec.model_validate(document)


def _read_text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8-sig")
    except FileNotFoundError:
        raise SpecError(
            "there is no specification file",
            rule="spec-not-found",
            where=str(path),
            hint="make a workspace with `dprelease init DIR`, or point -w at one that has a release.yaml",
        ) from None
    except OSError as error:
        raise SpecError(
            f"the specification cannot be read ({type(error).__name__})",
            rule="spec-unreadable",
            where=str(path),
            hint="release.yaml must be a plain file that you may read",
        ) from None
    except UnicodeDecodeError as error:
        raise SpecError(
            f"the specification is not UTF-8 text (byte {error.start})",
            rule="spec-not-text",
            where=str(path),
            hint="save release.yaml as UTF-8",
        ) from None
