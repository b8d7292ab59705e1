"""The types of JMS values, and the conversions between them.

The JMS type of a value is the class of the Python value: `bool` is boolean, `Byte`, `Short` and `Long` (ints) are byte,
short and long, `int` is int, `Float` (a float) is float, `float` is double, `str` is String, `Char` (a str) is char and
`bytes` is byte[]. `Int` and `Double` force a type; they are stored as plain `int` and `float`.

Properties share the conversion table of MapMessage and StreamMessage bodies, restricted to the eight types of
properties.
"""

import math
import re
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from .errors import MessageFormatError, NullValueError, NumberFormatError

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

_FLOAT = struct.Struct("!f")
_EXACT = re.compile(r"[+-]?\d+")
_APPROXIMATE = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?", re.ASCII)
_HEXADECIMAL = re.compile(
    r"([+-]?)0[xX](?=\.?[0-9a-fA-F])([0-9a-fA-F]*)(?:\.([0-9a-fA-F]*))?[pP]([+-]?\d+)[fFdD]?", re.ASCII
)
_NOT_FINITE = {
    sign + name: value
    for sign, factor in (("", 1.0), ("+", 1.0), ("-", -1.0))
    for name, value in (("Infinity", factor * math.inf), ("NaN", math.nan))
}
# Java's String.trim removes everything up to the blank.
_TRIMMED = "".join(map(chr, range(0x21)))
# A number with more digits is out of every range. Python's int() refuses texts of thousands of digits.
_DIGITS_MAX = 40
# Hexadecimal digits that decide to which double or float a number is rounded, if one more tells whether others follow.
_HEX_DIGITS_MAX = 64
# Powers of two between which a double lies. The lower bound leaves room for rounding.
_DOUBLE_POWER_MIN, _DOUBLE_POWER_MAX = -1080, 1024
_T = TypeVar("_T")
_Exact = TypeVar("_Exact", Decimal, Fraction)


_SHOWN_CHARACTERS_MAX = 60
"""Length of a value in an error message. A body may have megabytes."""
_SHOWN_BITS_MAX = 256
"""Size of the largest integer that an error message shows. Python refuses to write those of more than 4300 digits."""


def shown(value: object) -> str:
    """Return a value as an error message shows it: the beginning, if it is long."""
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS_MAX:
        return f"an int of {value.bit_length()} bits"
    if isinstance(value, str | bytes | bytearray) and len(value) > _SHOWN_CHARACTERS_MAX:
        return f"{value[:_SHOWN_CHARACTERS_MAX]!r}..."
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}..."


class _Whole(int):
    """A signed integer of a fixed number of bits. Raises MessageFormatError if the value does not fit."""

    __slots__ = ()
    BITS: ClassVar[int]

    def __new__(cls, value: int = 0) -> Self:
        if isinstance(value, bool) or not isinstance(value, int):
            raise MessageFormatError(f"{shown(value)} is not a whole number: expected an int")
        if not -(1 << cls.BITS - 1) <= value < 1 << cls.BITS - 1:
            raise MessageFormatError(f"{shown(value)} does not fit into the {cls.BITS} bits of {cls.__name__}")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    def __str__(self) -> str:
        return int.__repr__(self)


class Byte(_Whole):
    """A signed integer of 8 bits."""

    __slots__ = ()
    BITS = 8
    """Number of bits."""


class Short(_Whole):
    """A signed integer of 16 bits."""

    __slots__ = ()
    BITS = 16
    """Number of bits."""


class Int(_Whole):
    """A signed integer of 32 bits. Stored as a plain `int`."""

    __slots__ = ()
    BITS = 32
    """Number of bits."""


class Long(_Whole):
    """A signed integer of 64 bits."""

    __slots__ = ()
    BITS = 64
    """Number of bits."""


class Float(float):
    """A float of 32 bits. Values are rounded to the nearest such float, and values that are too large to infinity."""

    __slots__ = ()

    def __new__(cls, value: float = 0.0) -> Self:
        return super().__new__(cls, round_to_float(_number(value)))

    def __repr__(self) -> str:
        return f"Float({float(self)!r})"

    def __str__(self) -> str:
        return float.__repr__(self)


class Double(float):
    """A float of 64 bits. Stored as a plain `float`."""

    __slots__ = ()

    def __new__(cls, value: float = 0.0) -> Self:
        return super().__new__(cls, _number(value))

    def __repr__(self) -> str:
        return f"Double({float(self)!r})"

    def __str__(self) -> str:
        return float.__repr__(self)


class Char(str):
    """A UTF-16 code unit."""

    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        if not isinstance(value, str) or len(value) != 1 or value > "\uffff":
            raise MessageFormatError(f"{shown(value)} is not a single character up to U+FFFF")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"Char({str.__repr__(self)})"

    def __str__(self) -> str:
        return str.__str__(self)


PropertyValue: TypeAlias = bool | int | float | str | None
"""Types that a property's value may have."""
Value: TypeAlias = PropertyValue | bytes


# Conversion of the values that setters get into the values that messages store.


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MessageFormatError(f"{shown(value)} is not a number: expected an int or a float")
    try:
        return float(value)
    except OverflowError:
        raise MessageFormatError(f"{shown(value)} is too large for a double") from None


def to_stored_boolean(value: bool) -> bool:
    if not isinstance(value, bool):
        raise MessageFormatError(f"{shown(value)} is neither True nor False")
    return value


def to_stored_int(value: int) -> int:
    return int(Int(value))


def to_stored_double(value: float) -> float:
    return _number(value)


def to_stored_string(value: str | None) -> str | None:
    """Return a plain str that UTF-8 can encode, or None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise MessageFormatError(f"{shown(value)} is not a text: expected a str")
    if not value.isascii():
        encode_text(value)
    return value if type(value) is str else str.__str__(value)


def to_stored_bytes(value: bytes | bytearray | memoryview | None, offset: int = 0, length: int | None = None) -> bytes:
    """Return a copy of a byte array, or of a part of it."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise MessageFormatError(f"a {type(value).__name__} is not a byte array")
    if not offset and length is None:
        return value if type(value) is bytes else bytes(value)
    view = memoryview(value).cast("B")
    end = view.nbytes if length is None else offset + length
    if not 0 <= offset <= end <= view.nbytes:
        raise ValueError(f"offset {offset}, length {length}: not within {view.nbytes} bytes")
    return bytes(view[offset:end])


def encode_text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise MessageFormatError("a text contains a lone surrogate, which UTF-8 cannot encode") from error


def decode_text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise MessageFormatError("a text is not UTF-8") from error


def _int_or_long(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    return Long(value)


_PROPERTY_OBJECTS: dict[type, Callable[[Any], PropertyValue]] = {
    type(None): lambda value: value,
    bool: lambda value: value,
    Byte: lambda value: value,
    Short: lambda value: value,
    int: _int_or_long,
    Int: int,
    Long: lambda value: value,
    Float: lambda value: value,
    float: lambda value: value,
    Double: float,
    str: to_stored_string,
}
_BODY_OBJECTS: dict[type, Callable[[Any], Value]] = {
    **_PROPERTY_OBJECTS,
    Char: lambda value: value,
    bytes: lambda value: value,
    bytearray: bytes,
    memoryview: bytes,
}


def to_stored_property(value: object) -> PropertyValue:
    """Return a value as properties store it. Raise MessageFormatError if its type is not one of the eight of
    properties."""
    convert = _PROPERTY_OBJECTS.get(type(value))
    if convert is None:
        is_bytes = isinstance(value, bytes | bytearray | memoryview)
        how = "send bytes as the body, or as text: value.hex()" if is_bytes else conversion_of(value)
        raise MessageFormatError(
            f"{type(value).__name__} cannot be sent: expected None, bool, int, float or str; {how}"
        )
    return convert(value)


def to_stored_object(value: object) -> Value:
    """Return a value as maps and streams store it.

    Raise MessageFormatError if it is not a primitive, a string or a byte array.
    """
    convert = _BODY_OBJECTS.get(type(value))
    if convert is None:
        raise MessageFormatError(
            f"{type(value).__name__} cannot be sent: expected None, bool, int, float, str or bytes; "
            f"{conversion_of(value)}"
        )
    return convert(value)


def conversion_of(value: object) -> str:
    """Return how to convert a value that cannot be sent, for error messages. Subclasses of the types that can be sent
    are refused, too: they would arrive as something else."""
    if isinstance(value, Enum):
        return "send its value: .value"
    if isinstance(value, int | float | str | bytes):
        kind = next(kind for kind in (int, float, str, bytes) if isinstance(value, kind))
        return f"convert it: {kind.__name__}(...)"
    if callable(getattr(value, "tolist", None)):  # of numpy
        return "convert it: .tolist()"
    return "convert it, as with str(...)"


# Conversion of text to numbers, as Java's valueOf, and of numbers to text, as its toString.


def round_to_float(value: float) -> float:
    try:
        rounded: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def _parse_whole(text: str, bits: int) -> int:
    if _EXACT.fullmatch(text) and max(text) <= "\uffff":
        digits = text.lstrip("+-").lstrip("0")
        if len(digits) <= _DIGITS_MAX:
            value = int(digits or "0") * (-1 if text[0] == "-" else 1)
            if -(1 << bits - 1) <= value < 1 << bits - 1:
                return value
    raise NumberFormatError(f"{text[:60]!r} is not an integer of {bits} bits")


def _parse_approximate(text: str) -> tuple[float, Callable[[float], int]]:
    """Return the double nearest to a text, and a function that compares the exact number with a double: it returns 1 if
    the number is greater, -1 if it is less, and 0 if they are equal."""
    text = text.strip(_TRIMMED)
    if text in _NOT_FINITE:
        return _NOT_FINITE[text], lambda _: 0
    match = _APPROXIMATE.fullmatch(text)
    if match is not None:
        digits = match[1]
        return float(digits), lambda value: _sign(Decimal(digits), Decimal(value))
    match = _HEXADECIMAL.fullmatch(text)
    if match is None:
        raise NumberFormatError(f"{text[:60]!r} is not a number")
    return _parse_hexadecimal(*match.groups(""))


def _sign(one: _Exact, other: _Exact) -> int:
    return (one > other) - (one < other)


def _parse_hexadecimal(sign: str, whole: str, fraction: str, power: str) -> tuple[float, Callable[[float], int]]:
    """Do the same as `_parse_approximate` for a number in Java's hexadecimal form, such as `0x1.8p-3`."""
    factor = -1 if sign == "-" else 1
    digits = (whole + fraction).lstrip("0")
    exponent = int(power.lstrip("+-").lstrip("0")[:_DIGITS_MAX] or "0") * (-1 if power[0] == "-" else 1)
    exponent -= 4 * len(fraction)
    if len(digits) > _HEX_DIGITS_MAX:
        rest = digits[_HEX_DIGITS_MAX:]
        digits = digits[:_HEX_DIGITS_MAX] + ("1" if rest.strip("0") else "0")
        exponent += 4 * (len(rest) - 1)
    significand = int(digits or "0", 16)
    magnitude = significand.bit_length() + exponent
    if not significand or magnitude < _DOUBLE_POWER_MIN:
        return factor * 0.0, lambda _: 0
    if magnitude > _DOUBLE_POWER_MAX:
        return factor * math.inf, lambda _: 0
    exact = Fraction(factor * significand) * Fraction(2) ** exponent
    try:
        return float(exact), lambda value: _sign(exact, Fraction(value))
    except OverflowError:
        return factor * math.inf, lambda _: 0


def parse_double(text: str) -> float:
    return _parse_approximate(text)[0]


def parse_float(text: str) -> float:
    """Return the float nearest to the text.

    Rounding to a double first would go wrong if the double lies half-way between two floats and the text does not. In
    this case, the neighbouring double on the text's side is rounded instead.
    """
    value, compare = _parse_approximate(text)
    if value and math.isfinite(value) and abs(value) < 1e39 and _is_half_way(value):
        value = math.nextafter(value, compare(value) * math.inf) if compare(value) else value
    return round_to_float(value)


def _is_half_way(value: float) -> bool:
    below = round_to_float(math.nextafter(value, -math.inf))
    return below != round_to_float(math.nextafter(value, math.inf))


def _parse_boolean(text: str) -> bool:
    return text.lower() == "true"


def double_text(value: float) -> str:
    """Return a double as the text that Java's Double.toString gives: `0.1`, `1.0E10`, `NaN`."""
    return _java_text(value, repr(value))


def float_text(value: float) -> str:
    """Return a float as the text that Java's Float.toString gives: the fewest digits that stand for the same 32
    bits."""
    if not math.isfinite(value):
        return _java_text(value, "")
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if round_to_float(float(text)) == value:
            break
    return _java_text(value, text)


def _java_text(value: float, shortest: str) -> str:
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    assert isinstance(exponent, int)
    if len(digits) == 1 and value:
        # If one digit suffices, Java chooses the nearest decimal of two digits instead.
        sign, digits, exponent = Decimal(f"{value:.1e}").as_tuple()
        assert isinstance(exponent, int)
    figures = "".join(map(str, digits))
    point = len(figures) + exponent
    if value == 0:
        text = "0.0"
    elif 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            text = f"0.{'0' * -point}{figures.rstrip('0')}"
        else:
            figures = figures.ljust(point, "0")
            text = f"{figures[:point]}.{figures[point:].rstrip('0') or '0'}"
    else:
        text = f"{figures[0]}.{figures[1:].rstrip('0') or '0'}E{point - 1}"
    return f"-{text}" if sign else text


# The conversion table: for each type to read, the types that a value may have been set as.


def _null_number(_: None) -> Any:
    raise NumberFormatError("null is not a number: read it with read_object, which returns None")


def _null_value(_: None) -> Any:
    raise NullValueError("a value is null: expected another; read it with read_object, which returns None")


_NULL = type(None)
_WHOLE_TEXT: Callable[[Any], str] = int.__repr__

_BOOLEANS: dict[type, Callable[[Any], bool]] = {bool: bool, str: _parse_boolean, _NULL: bool}
_BYTES8: dict[type, Callable[[Any], int]] = {Byte: int, str: lambda text: _parse_whole(text, 8), _NULL: _null_number}
_SHORTS: dict[type, Callable[[Any], int]] = {
    Byte: int,
    Short: int,
    str: lambda text: _parse_whole(text, 16),
    _NULL: _null_number,
}
_INTS: dict[type, Callable[[Any], int]] = {
    Byte: int,
    Short: int,
    int: int,
    str: lambda text: _parse_whole(text, 32),
    _NULL: _null_number,
}
_LONGS: dict[type, Callable[[Any], int]] = {
    Byte: int,
    Short: int,
    int: int,
    Long: int,
    str: lambda text: _parse_whole(text, 64),
    _NULL: _null_number,
}
_FLOATS: dict[type, Callable[[Any], float]] = {Float: float, str: parse_float, _NULL: _null_value}
_DOUBLES: dict[type, Callable[[Any], float]] = {Float: float, float: float, str: parse_double, _NULL: _null_value}
_STRINGS: dict[type, Callable[[Any], str | None]] = {
    bool: lambda value: "true" if value else "false",
    Byte: _WHOLE_TEXT,
    Short: _WHOLE_TEXT,
    int: _WHOLE_TEXT,
    Long: _WHOLE_TEXT,
    Float: float_text,
    float: double_text,
    Char: str.__str__,
    str: str,
    _NULL: lambda value: value,
}
_CHARS: dict[type, Callable[[Any], str]] = {Char: str.__str__, _NULL: _null_value}
_ARRAYS: dict[type, Callable[[Any], bytes | None]] = {bytes: bytes, _NULL: lambda value: value}
_READERS: dict[str, Mapping[type, object]] = {
    "boolean": _BOOLEANS,
    "byte": _BYTES8,
    "short": _SHORTS,
    "int": _INTS,
    "long": _LONGS,
    "float": _FLOATS,
    "double": _DOUBLES,
    "char": _CHARS,
    "String": _STRINGS,
    "byte[]": _ARRAYS,
}


def _read(readers: dict[type, Callable[[Any], _T]], value: Value, wanted: str) -> _T:
    reader = readers.get(type(value))
    if reader is None:
        others = " or ".join([name for name, readers in _READERS.items() if type(value) in readers])
        raise MessageFormatError(
            f"{shown(value)} is of type {type_name(value)} and cannot be read as "
            f"{wanted}: send {_sent_as(value, wanted)}, or read it as {others}"
        )
    return reader(value)


def _sent_as(value: Value, wanted: str) -> str:
    """Return what to send so that a value can be read as a type."""
    if wanted == "double" and isinstance(value, int) and not isinstance(value, bool):
        return f"{int(value)}.0"
    return f"{'an' if wanted == 'int' else 'a'} {wanted}"


def _read_named(read: Callable[[Value], _T], values: Mapping[str, Value], name: str, noun: str, getter: str) -> _T:
    value = values.get(name)
    try:
        return read(value)
    except (MessageFormatError, NumberFormatError, NullValueError) as error:
        what = f"{noun} {shown(name)}"
        if value is not None:
            raise type(error)(f"{what}: {error}") from None
        state = "null" if name in values else "not set"
        raise type(error)(f"{what} is {state}: expected a value, or {getter}, which returns None") from None


def read_property(read: Callable[[Value], _T], properties: Mapping[str, Value], name: str) -> _T:
    """Return a property as `read` converts it. Errors name the property."""
    return _read_named(read, properties, name, "property", "get_object_property")


def read_item(read: Callable[[Value], _T], items: Mapping[str, Value], name: str) -> _T:
    """Return an item of a map as `read` converts it. Errors name the item."""
    return _read_named(read, items, name, "item", "get_object")


_NAMES = {
    bool: "boolean",
    Byte: "byte",
    Short: "short",
    int: "int",
    Long: "long",
    Float: "float",
    float: "double",
    Char: "char",
    str: "String",
    bytes: "byte[]",
    _NULL: "null",
}


def type_name(value: Value) -> str:
    """Return the JMS name of the type of a stored value."""
    return _NAMES.get(type(value), type(value).__name__)


def read_boolean(value: Value) -> bool:
    return _read(_BOOLEANS, value, "boolean")


def read_byte(value: Value) -> int:
    return _read(_BYTES8, value, "byte")


def read_short(value: Value) -> int:
    return _read(_SHORTS, value, "short")


def read_char(value: Value) -> str:
    return _read(_CHARS, value, "char")


def read_int(value: Value) -> int:
    return _read(_INTS, value, "int")


def read_long(value: Value) -> int:
    return _read(_LONGS, value, "long")


def read_float(value: Value) -> float:
    return _read(_FLOATS, value, "float")


def read_double(value: Value) -> float:
    return _read(_DOUBLES, value, "double")


def read_string(value: Value) -> str | None:
    return _read(_STRINGS, value, "String")


def read_bytes(value: Value) -> bytes | None:
    return _read(_ARRAYS, value, "byte[]")
