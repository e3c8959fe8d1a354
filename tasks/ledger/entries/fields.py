"""How an entry of the ledger spells times, exact numbers, texts and JSON: each in one way only."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from dpcore.accounting import LARGEST_FIGURE

TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"
EARLIEST_TIME = "2020-01-01T00:00:00.000000Z"
"""No ledger is older than the product."""

CLOCK_TOLERANCE = timedelta(days=1)
"""By so much the clocks of those who write and audit one ledger may differ."""

LONGEST_SILENCE = timedelta(days=1000)
"""A clock that is further ahead of the last entry is taken for wrong, unless a person speaks."""

_EXACT = re.compile(r"(?:0|[1-9][0-9]{0,3999})(?:/[1-9][0-9]{0,3999})?")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,199}")


def time_text(moment: datetime) -> str:
    """A moment as entries state it; texts of this form sort as their times do."""
    return moment.astimezone(UTC).strftime(TIME_FORMAT)


def time_of(text: str) -> datetime:
    """The moment that an entry states.

    Raises: ValueError for any other text than `time_text` gives.
    """
    moment = datetime.strptime(text, TIME_FORMAT).replace(tzinfo=UTC)
    if time_text(moment) != text:
        raise ValueError("this is another spelling of a time")
    return moment


def is_time(text: object) -> bool:
    """Whether this is the time of an entry, and no earlier than the product."""
    try:
        return isinstance(text, str) and text >= EARLIEST_TIME and bool(time_of(text))
    except ValueError:
        return False


def exact_number(text: object) -> Fraction:
    """The number that an entry states as exact text.

    Raises: ValueError unless it is in lowest terms, not negative and not beyond every sense.
    """
    if not isinstance(text, str) or not _EXACT.fullmatch(text):
        raise ValueError("this is no exact number")
    number = Fraction(text)
    if str(number) != text or number > LARGEST_FIGURE:
        raise ValueError("this is another spelling of a number, or a number beyond every cost")
    return number


def canonical(body: Any) -> str:
    """JSON with one spelling: sorted keys, no spaces."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def is_text(value: object) -> bool:
    """Text that can be written as UTF-8."""
    return isinstance(value, str) and not _LONE_SURROGATE.search(value)


def is_slug(value: object) -> bool:
    """A name that is safe as the name of a folder."""
    return isinstance(value, str) and _SLUG.fullmatch(value) is not None
