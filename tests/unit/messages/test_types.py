"""Tests of types of values: their limits, and conversions between text and numbers as in Java."""

import math
import struct
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.jms import Byte, Char, Double, Float, Int, Long, MessageFormatError, NumberFormatError, Short
from fjm2.messages.types import (
    double_text,
    float_text,
    parse_double,
    parse_float,
    read_boolean,
    read_byte,
    read_int,
    read_long,
    read_short,
    round_to_float,
    to_stored_object,
    to_stored_property,
    type_name,
)

WHOLE = {Byte: 8, Short: 16, Int: 32, Long: 64}


@pytest.mark.parametrize(("kind", "bits"), WHOLE.items())
def test_integers_are_range_checked(kind: type[int], bits: int) -> None:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    assert (kind(low), kind(high)) == (low, high)
    for value in (low - 1, high + 1, 10**400):
        with pytest.raises(MessageFormatError):
            kind(value)


@pytest.mark.parametrize("kind", [*WHOLE, Float, Double])
@pytest.mark.parametrize("value", [True, "1", None, b"1", 1j])
def test_only_numbers_become_numbers(kind: type, value: object) -> None:
    with pytest.raises(MessageFormatError):
        kind(value)


@pytest.mark.parametrize("value", ["", "ab", "\U0001f600", 65, None])
def test_a_char_is_one_character_of_16_bits(value: object) -> None:
    with pytest.raises(MessageFormatError):
        Char(value)  # type: ignore[arg-type]


def test_forced_types_have_a_repr_and_print_as_numbers() -> None:
    assert [repr(value) for value in (Byte(-3), Float(0.5), Double(0.5), Char("x"))] == [
        "Byte(-3)",
        "Float(0.5)",
        "Double(0.5)",
        "Char('x')",
    ]
    assert [str(value) for value in (Byte(-3), Float(0.5), Double(0.5), Char("x"))] == ["-3", "0.5", "0.5", "x"]


def test_untyped_ints_are_int_or_long() -> None:
    assert type_name(to_stored_property(2**31 - 1)) == "int"
    assert type_name(to_stored_property(-(2**31))) == "int"
    assert type_name(to_stored_property(2**31)) == "long"
    assert type_name(to_stored_object(-(2**63))) == "long"
    for value in (2**63, -(2**63) - 1):
        with pytest.raises(MessageFormatError):
            to_stored_property(value)


def test_int_and_double_are_stored_as_plain_numbers() -> None:
    assert type(to_stored_property(Int(5))) is int
    assert type(to_stored_property(Double(5))) is float


def test_p1_float_has_32_bits() -> None:
    assert Float(0.1) == 0.10000000149011612
    assert Float(1e39) == math.inf
    assert Float(-1e39) == -math.inf
    assert math.isnan(Float(math.nan))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("-128", -128),
        ("127", 127),
        ("007", 7),
        ("0" * 5000 + "7", 7),
        ("٣", 3),  # any decimal digit, as Character.digit
        ("７", 7),
    ],
)
def test_p3_whole_numbers_from_text(text: str, value: int) -> None:
    assert [read(text) for read in (read_byte, read_short, read_int, read_long)] == [value] * 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        " 5",
        "5 ",
        "5\n",
        "1_0",
        "0x10",
        "1.0",
        "1e3",
        "--1",
        "+-1",
        "+",
        "-",
        "5L",
        "½",
        "²",
        "𝟕",
        "null",
        "9" * 5000,
    ],
)
def test_p3_text_that_is_not_an_integer_is_refused(text: str) -> None:
    for read in (read_byte, read_short, read_int, read_long):
        with pytest.raises(NumberFormatError):
            read(text)


@pytest.mark.parametrize(("read", "bits"), [(read_byte, 8), (read_short, 16), (read_int, 32), (read_long, 64)])
def test_p3_the_range_is_checked(read: object, bits: int) -> None:
    assert callable(read)
    assert read(str(-(1 << bits - 1))) == -(1 << bits - 1)
    assert read(str((1 << bits - 1) - 1)) == (1 << bits - 1) - 1
    for value in (-(1 << bits - 1) - 1, 1 << bits - 1):
        with pytest.raises(NumberFormatError):
            read(str(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        (" \t\n1.5\r\x00", 1.5),
        ("1.5f", 1.5),
        ("1.5F", 1.5),
        ("1.5d", 1.5),
        ("1D", 1.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("+1e-3", 0.001),
        ("-1E+3", -1000.0),
        ("1e3f", 1000.0),
        ("Infinity", math.inf),
        ("+Infinity", math.inf),
        (" -Infinity ", -math.inf),
        ("1e999", math.inf),
        ("-1e999", -math.inf),
        ("1e-999", 0.0),
        ("0x1p3", 8.0),
        ("0X1P3", 8.0),
        (" -0x1.8p+1f ", -3.0),
        ("+0xA.p-1D", 5.0),
        ("0x.8p0", 0.5),
        ("0x0.0p9", 0.0),
        ("0x1.fffffffffffffp1023", 1.7976931348623157e308),
        ("0x1.fffffffffffff8p1023", math.inf),
        ("0x1p1024", math.inf),
        ("-0x1p99999999999999999999", -math.inf),
        ("0x1p-1074", 5e-324),
        ("0x1p-1075", 0.0),
        ("0x1.8p-1075", 5e-324),
        ("0x1p-99999999999999999999", 0.0),
        ("0x1p" + 9000 * "0" + "3", 8.0),
        ("0x" + 9000 * "0" + "1p3", 8.0),
        ("0x1" + 2000 * "0" + "p-8000", 1.0),
        ("0x." + 1999 * "0" + "1p8000", 1.0),
    ],
)
def test_p3_approximate_numbers_from_text(text: str, value: float) -> None:
    assert parse_double(text) == value
    assert parse_float(text) == round_to_float(value)


def test_p3_nan_from_text() -> None:
    assert all(math.isnan(parse(text)) for parse in (parse_double, parse_float) for text in ("NaN", "+NaN", " -NaN"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "nan",
        "NAN",
        "inf",
        "infinity",
        "INFINITY",
        "1_0",
        "0x10",
        "0x1.8",
        "0xp3",
        "0x.p3",
        "0x1p",
        "0x1p3.0",
        "0x1pA",
        "0x1_0p3",
        "x1p3",
        "0 x1p3",
        "1p3",
        "0x1p3fd",
        "0x1p٣",
        "1e",
        "e1",
        ".",
        "1.5fd",
        "1,5",
        "NaNf",
        "\u00a01",
        "1\u2003",
        "٣",
        "1 f",
    ],
)
def test_p3_text_that_is_not_a_float_is_refused(text: str) -> None:
    for parse in (parse_double, parse_float):
        with pytest.raises(NumberFormatError):
            parse(text)


def test_p3_a_float_is_rounded_once() -> None:
    # A little above half-way between 1 and the next float. The nearest double is exactly half-way.
    assert parse_float("1.00000005960464477540") == 1.00000011920928955078125
    assert parse_float("1.00000005960464477539") == 1.0
    assert parse_float("1.000000059604644775390625") == 1.0  # half-way itself: to even
    assert parse_float("0x1.000001p0") == 1.0
    assert parse_float("0x1.000001" + 100 * "0" + "1p0") == 1.00000011920928955078125
    assert parse_float("0x1.000002ffffffffffffffffp0") == 1.00000011920928955078125
    assert parse_float("0x1.000003p0") == 1.0000002384185791015625
    assert parse_float("-0x0.8p-149") == 0.0
    assert parse_float("-0x0.8" + 100 * "0" + "1p-149") == -1.401298464324817e-45
    assert parse_float(str(2**128 - 2**103)) == math.inf
    assert parse_float(str(2**128 - 2**103 - 1)) == 3.4028234663852886e38


@given(st.floats(allow_nan=False), st.integers(-40, 40))
def test_p3_hexadecimal_texts_are_what_python_reads(value: float, power: int) -> None:
    text = value.hex()
    assert text in ("inf", "-inf") or parse_double(text) == value
    digits = f"{struct.unpack('!Q', struct.pack('!d', value))[0]:x}"
    text = f"0x{digits[:3]}.{digits[3:]}p{power}"
    assert parse_double(text) == float.fromhex(text)


@given(st.fractions(min_value=Fraction(-(2**40)), max_value=Fraction(2**40)))
def test_p3_a_float_from_text_is_the_nearest(exact: Fraction) -> None:
    text = f"{exact.numerator * 10**25 // exact.denominator}e-25"
    value = Fraction(text)
    parsed = parse_float(text)
    bits = struct.unpack("!i", struct.pack("!f", parsed))[0]
    neighbours = (struct.unpack("!f", struct.pack("!i", bits + step))[0] for step in (-1, 1) if bits + step >= -(2**31))
    finite = [Fraction(other) for other in neighbours if math.isfinite(other)]
    assert all(abs(Fraction(parsed) - value) <= abs(other - value) for other in finite)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TrUe", True), ("1", False), ("yes", False), (" true", False)]
)
def test_p4_booleans_from_text(text: str, value: bool) -> None:
    assert read_boolean(text) is value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.1, "0.1"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (1234567.0, "1234567.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1e10, "1.0E10"),
        (1.2345e-5, "1.2345E-5"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (-12.5, "-12.5"),
        (123456789.125, "1.23456789125E8"),
        (5e-324, "4.9E-324"),
        (2e-323, "2.0E-323"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_doubles_are_written_as_java_does(value: float, text: str) -> None:
    assert double_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (16777216.0, "1.6777216E7"),
        (3.4028235e38, "3.4028235E38"),
        (1.4e-45, "1.4E-45"),
        (1.17549435e-38, "1.1754944E-38"),
        (0.3, "0.3"),
        (-2.5, "-2.5"),
        (0.0, "0.0"),
        (1e10, "1.0E10"),
        (1e39, "Infinity"),
        (math.nan, "NaN"),
    ],
)
def test_floats_are_written_as_java_does(value: float, text: str) -> None:
    assert float_text(Float(value)) == text


@given(st.floats())
def test_doubles_survive_as_text(value: float) -> None:
    assert struct.pack("!d", parse_double(double_text(value))) == struct.pack(
        "!d", math.nan if value != value else value
    )


@given(st.floats(width=32))
def test_floats_survive_as_text(value: float) -> None:
    assert struct.pack("!f", parse_float(float_text(value))) == struct.pack("!f", math.nan if value != value else value)
