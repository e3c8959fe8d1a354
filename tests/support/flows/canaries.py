"""Planted raw values, and a search for them in every shape in which they could leak.

All shapes are eight bytes or longer, so that chance does not produce them.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

NUMBER = 417.83920517462
WHOLE = 834650192746153
MOMENT = datetime(2026, 3, 17, 11, 23, 45, 678901, tzinfo=UTC)
CATEGORY = "CANARYkX93vLq2"
NAME = "CANARYWm51TzRb"
FILE = "CANARYfile7Qz"


def texts() -> dict[str, list[str]]:
    """Each canary's spellings."""
    micros = int(MOMENT.timestamp() * 1_000_000)
    return {
        "number": [repr(NUMBER), f"{NUMBER:.6f}", f"{NUMBER:.8g}", f"{NUMBER:.10e}", NUMBER.hex()],
        "whole": [str(WHOLE), f"{WHOLE:,}", f"{float(WHOLE)!r}", hex(WHOLE)],
        "moment": ["11:23:45.678901", str(micros), "45.678901"],
        "category": [CATEGORY],
        "name": [NAME],
        "file": [FILE],
    }


def packed() -> dict[str, list[bytes]]:
    """Each number's bytes: float and integer, both ends first."""
    micros = int(MOMENT.timestamp() * 1_000_000)
    return {
        "number": [struct.pack(f, NUMBER) for f in ("<d", ">d")],
        "whole": [struct.pack(f, WHOLE) for f in ("<q", ">q", "<d", ">d")],
        "moment": [struct.pack(f, v) for f, v in (("<q", micros), (">q", micros), ("<d", float(micros)))],
    }


Needles = tuple[tuple[str, bytes], ...]


def of_numbers(**numbers: int) -> Needles:
    """The needles of whole numbers that are planted as numbers of rows; each has eight digits or more."""
    spelt = {
        name: [str(n), f"{n:,}", f"{n:_}", f"{n:,}".replace(",", " "), f"{n:e}"[:9], hex(n)]
        for name, n in numbers.items()
    }
    bits = {name: [struct.pack(f, n) for f in ("<q", ">q", "<d", ">d")] for name, n in numbers.items()}
    return tuple(dict.fromkeys(_needles(spelt, bits)))


def _needles(spelt: dict[str, list[str]], bits: dict[str, list[bytes]]) -> Iterator[tuple[str, bytes]]:
    """Everything to look for: texts in three encodings, bytes, and base64 of both at each alignment."""
    plain = [(name, text.encode(code)) for name, all_ in spelt.items() for text in all_ for code in CODES]
    raw = [(name, value) for name, all_ in bits.items() for value in all_]
    for name, value in plain + raw:
        yield name, value
        yield name, value.hex().encode()
        for shift in range(3):  # the characters that depend on the value alone, wherever it starts
            encoded = base64.b64encode(b"\0" * shift + value + b"\0\0")
            yield name, encoded[-(-8 * shift // 6) : 8 * (shift + len(value)) // 6]


CODES = ("utf-8", "utf-16-le", "utf-16-be")


NEEDLES: Needles = tuple(dict.fromkeys(_needles(texts(), packed())))


def found_in(content: bytes, needles: Needles = NEEDLES) -> set[str]:
    """Names of the canaries in some bytes."""
    return {name for name, value in needles if value in content}


def found_below(folder: Path, skip: tuple[Path, ...] = (), needles: Needles = NEEDLES) -> dict[str, set[str]]:
    """Files below a folder that hold canaries, and which; file names count too."""
    result = {}
    for path in sorted(folder.rglob("*")):
        if any(path.is_relative_to(part) for part in skip):
            continue
        names = found_in(path.name.encode(), needles)
        if path.is_file():
            names |= found_in(path.read_bytes(), needles)
        if names:
            result[str(path.relative_to(folder))] = names
    return result
