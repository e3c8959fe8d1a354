"""The small values that release.yaml is made of: exact numbers, slugs, names, time zones."""

from __future__ import annotations

import math
import re
import sys
import unicodedata
import zoneinfo
from collections.abc import Hashable, Sequence
from decimal import Decimal, InvalidOperation, localcontext
from fractions import Fraction
from functools import cache
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from tasks.spec.refusals import nearest, refuse, shown, suggestion

MOST_NAME_CHARACTERS = 1000
"""A longer name or category makes tables and pages unreadable."""

MOST_WHOLE = 2**53 - 1
"""Largest whole number up to which every one has a float of its own."""

_BREAKING = {"Cc", "Zl", "Zp"}  # Unicode's control characters and line separators
_MOST_DIGITS = 400  # a decimal of 1e999999999 would fill the memory as a fraction
MOST_SLUG = 64  # slugs become folder names
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]*")
_RATIO = re.compile(r"([0-9]{1,9})\s*/\s*([1-9][0-9]{0,8})")


class Section(BaseModel):
    """A mapping of release.yaml: immutable, and without keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, value: Any) -> Any:
        # Before the fields, so that a misspelt key is named rather than reported as missing.
        unknown = [key for key in value if key not in cls.model_fields] if isinstance(value, dict) else []
        for key in unknown:
            refuse("unknown-key", f"there is no key `{key}` here", suggestion(key, cls.model_fields), str(key))
        return value

    @model_serializer(mode="wrap")
    def _exact_numbers_twice(self, handler: SerializerFunctionWrapHandler) -> Any:
        """The section with each exact number as a float, and as a ratio under `<key>_exact`."""
        plain = handler(self)
        for key, value in self:
            if isinstance(value, Fraction):
                plain |= {key: float(value), f"{key}_exact": str(value)}
        return plain


def exact_decimal(value: object) -> Fraction:
    """A decimal number, exactly as written; it is 0 or in the range of ordinary floats."""
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        refuse("not-a-number", f"this must be a number, got {shown(value)}", "write a number such as 0.5")
    try:
        number = Decimal(value)
    except InvalidOperation:
        refuse("not-a-number", f"this must be a number, got {shown(value)}", "write a number such as 0.5")
    if not number.is_finite():
        refuse("not-finite", f"this must be a finite number, got {shown(value)}", "write a finite number")
    _, digits, exponent = number.as_tuple()
    if len(digits) > _MOST_DIGITS or abs(int(exponent)) > _MOST_DIGITS:
        refuse("number-range", "this number is out of any sensible range", "write a number of ordinary size")
    if math.isinf(float(number)):
        refuse("not-finite", "this number is too large for a float", "write a number below 1e308")
    if number and abs(float(number)) < sys.float_info.min:
        refuse("number-range", "this number is too close to 0 for a float", "write 0, or a number of ordinary size")
    return Fraction(number)


def exact_text(ratio: str) -> str:
    """A ratio as a decimal number, if it has one, so that every key for exact numbers takes it."""
    number = Fraction(ratio)
    with localcontext(prec=2 * _MOST_DIGITS):
        decimal = Decimal(number.numerator) / number.denominator
    return str(decimal) if Fraction(decimal) == number else ratio


def exact_fraction(value: object) -> Fraction:
    """A decimal number or a ratio such as 1/3, exactly as written."""
    ratio = _RATIO.fullmatch(value.strip()) if isinstance(value, str) else None
    return Fraction(int(ratio[1]), int(ratio[2])) if ratio else exact_decimal(value)


def positive_whole(value: object) -> int:
    """A whole number of at least 1 that a float can hold."""
    number = exact_decimal(value)
    if number.denominator != 1:
        refuse("not-whole", f"this must be a whole number, got {shown(value)}", "write a whole number")
    if not 1 <= number <= MOST_WHOLE:
        refuse("not-positive", f"this must be between 1 and 2**53 - 1, got {shown(value)}", "write a number above 0")
    return int(number)


def positive_float(value: object) -> float:
    """A positive number as the nearest float."""
    number = exact_decimal(value)
    if number <= 0:
        refuse("not-positive", f"this must be above 0, got {shown(value)}", "write a number above 0")
    return float(number)


def first_repeated(values: Sequence[Hashable]) -> int | None:
    """The index of the first value that was there before; None if each is there once."""
    seen: set[Hashable] = set()
    for index, value in enumerate(values):
        if value in seen:
            return index
        seen.add(value)
    return None


def auto_or_whole(value: object) -> Any:
    """`auto`, or a whole number of at least 1."""
    return value if value == "auto" else positive_whole(value)


def slug(text: str) -> str:
    """Lower-case letters, digits and hyphens, at most 64."""
    if len(text) > MOST_SLUG or not _SLUG.fullmatch(text):
        hint = "use lower-case letters, digits and hyphens, a letter or digit first, 64 characters at most"
        refuse("slug", f"{shown(text)} cannot be used as a name", hint)
    return text


def filled(text: str) -> str:
    """Text that is not blank."""
    if not text.strip():
        refuse("empty-text", "this must not be empty", "write a name")
    return text


def one_line(text: str) -> str:
    """A name or category that files, tables and pages can show."""
    if len(text) > MOST_NAME_CHARACTERS:
        refuse("text-too-long", f"this has more than {MOST_NAME_CHARACTERS} characters", "use a shorter word")
    if any(unicodedata.category(character) in _BREAKING for character in text):
        refuse("text-unprintable", "this holds a control character or a line break", "write one line of plain text")
    return text


def timezone_name(text: str) -> str:
    """A time zone of the IANA database."""
    if text not in _timezones():
        near = nearest(text, _timezones()) or "Europe/Berlin"
        refuse("timezone", f"{shown(text)} is not a time zone", f"use an IANA name such as UTC or {near}")
    return text


@cache
def _timezones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones()) - {"Factory", "localtime"}  # other readers know no such places


ColumnName = Annotated[str, AfterValidator(filled), AfterValidator(one_line)]
ExactDecimal = Annotated[Fraction, PlainValidator(exact_decimal), PlainSerializer(str)]
ExactFraction = Annotated[Fraction, PlainValidator(exact_fraction), PlainSerializer(str)]
PositiveWhole = Annotated[int, PlainValidator(positive_whole)]
PositiveFloat = Annotated[float, PlainValidator(positive_float)]
Slug = Annotated[str, AfterValidator(slug)]
FilledText = Annotated[str, AfterValidator(filled)]
TimezoneName = Annotated[str, AfterValidator(timezone_name)]
