"""Tests of the syntax and types of selectors. Each case is evaluated as it is and under NOT.

Names of tests begin with the number of the case, S1 to S10.
"""

import pytest
from selector_table import LONG_MAX, LONG_MIN, Values, table, truth

from fjm2.jms.selector import Selector
from fjm2.messages.types import Byte, Double, Float, Int, Long, Short


@table(
    ("a", {"a": True}, True),
    ("a", {"a": False}, False),
    ("a", {}, None),
    ("a = 1", {"a": 1}, True),
    ("a = 1", {"a": 2}, False),
    ("a = 1", {}, None),
)
def test_s1_only_true_selects(text: str, values: Values, expected: bool | None) -> None:
    assert truth(text, values) is expected


@pytest.mark.parametrize("text", ["", " ", "\t\f\r\n "])
def test_blank_selects_everything(text: str) -> None:
    assert Selector(text).is_empty
    assert Selector(text).names == frozenset()
    assert Selector(text).matches({})
    assert Selector(text).matches({"a": False})


@table(
    ("NOT a = 1 AND b = 2", {"a": 2, "b": 2}, True),
    ("NOT a = 1 AND b = 2", {"a": 1, "b": 3}, False),
    ("NOT a = 1 AND b = 2", {"a": 2, "b": 3}, False),
    ("NOT (a = 1 AND b = 2)", {"a": 1, "b": 3}, True),
    ("a OR b AND c", {"a": True, "b": False, "c": False}, True),
    ("(a OR b) AND c", {"a": True, "b": False, "c": False}, False),
    ("a AND b OR c", {"a": False, "b": False, "c": True}, True),
    ("a AND (b OR c)", {"a": False, "b": False, "c": True}, False),
    ("NOT a OR b", {"a": True, "b": True}, True),
    ("NOT (a OR b)", {"a": True, "b": True}, False),
    ("NOT a AND NOT b", {"a": False, "b": False}, True),
    ("NOT NOT a", {"a": True}, True),
    ("NOT NOT NOT a", {"a": True}, False),
    ("NOT (NOT a)", {"a": False}, False),
    ("2 + 3 * 4 = 14", {}, True),
    ("(2 + 3) * 4 = 20", {}, True),
    ("10 - 4 - 3 = 3", {}, True),
    ("10 - (4 - 3) = 9", {}, True),
    ("100 / 10 / 2 = 5", {}, True),
    ("100 / (10 / 2) = 20", {}, True),
    ("8 / 4 * 2 = 4", {}, True),
    ("2 * -3 = -6", {}, True),
    ("-a * 2 = -6", {"a": 3}, True),
    ("-(a * 2) = -6", {"a": 3}, True),
    ("- 2 + 3 = 1", {}, True),
    ("a + 1 < b * 2", {"a": 1, "b": 2}, True),
    ("a BETWEEN 1 + 1 AND 2 * 3 AND b", {"a": 6, "b": True}, True),
    ("a BETWEEN 1 AND 3 OR b BETWEEN 1 AND 3", {"a": 9, "b": 2}, True),
    ("a BETWEEN 1 AND 3 AND b BETWEEN 1 AND 3", {"a": 9, "b": 2}, False),
    ("NOT a BETWEEN 1 AND 3 AND b", {"a": 9, "b": True}, True),
    ("NOT a IN ('x') AND b", {"a": "y", "b": True}, True),
    ("NOT a LIKE 'x' AND b", {"a": "y", "b": True}, True),
    ("NOT a IS NULL AND b", {"a": 1, "b": True}, True),
    ("a = 1 AND b = 2 OR c = 3 AND d = 4", {"c": 3, "d": 4, "a": 0}, True),
    ("a + 1 BETWEEN 2 AND 2", {"a": 1}, True),
    ("a - 1 NOT BETWEEN 2 AND 2", {"a": 3}, False),
)
def test_s3_precedence(text: str, values: Values, expected: bool | None) -> None:
    assert truth(text, values) is expected


@table(
    ("a AnD b", {"a": True, "b": True}, True),
    ("a oR b", {"a": False, "b": True}, True),
    ("not a", {"a": False}, True),
    ("a between 1 And 2", {"a": 1}, True),
    ("a in ('x')", {"a": "x"}, True),
    ("a Like '!_' escape '!'", {"a": "_"}, True),
    ("a is Not null", {"a": 1}, True),
    ("tRUE", {}, True),
    ("false OR True", {}, True),
    ("Price = 1", {"price": 1}, None),
    ("Price = 1", {"price": 1, "Price": 2}, False),
    ("ANDROID", {"ANDROID": True}, True),
    ("NOTa", {"NOTa": True}, True),
    ("aINb", {"aINb": True}, True),
    ("inn IN ('x')", {"inn": "x"}, True),
    ("nul IS NULL", {}, True),
    ("order_ = 1", {"order_": 1}, True),
    ("_ = 1", {"_": 1}, True),
    ("$ = 1", {"$": 1}, True),
    ("a$1_ = 1", {"a$1_": 1}, True),
    ("größe = 1", {"größe": 1}, True),
    ("цена = 1", {"цена": 1}, True),
    ("価格 = 1", {"価格": 1}, True),
    ("سعر = 1", {"سعر": 1}, True),
    ("€ = 1", {"€": 1}, True),
    ("a€ = 1", {"a€": 1}, True),
    ("£x = 1", {"£x": 1}, True),
    ("‿a = 1", {"‿a": 1}, True),
    ("a⁀b = 1", {"a⁀b": 1}, True),
    ("a\u0301 = 1", {"a\u0301": 1}, True),
    ("a\u0301 = 1", {"á": 1}, None),
    ("á = 1", {"a\u0301": 1}, None),
    ("\u212b = 1", {"\u00c5": 1}, None),
    ("a٣ = 1", {"a٣": 1}, True),
    ("क\u093f = 1", {"क\u093f": 1}, True),
    ("Ⅷ = 1", {"Ⅷ": 1}, True),
    ("ʰ = 1", {"ʰ": 1}, True),
    ("ǅ = 1", {"ǅ": 1}, True),
    ("ª = 1", {"ª": 1}, True),
    ("𝒜 = 1", {"𝒜": 1}, True),
    ("\u017f = 1", {"s": 1}, None),
    ("\u0131s = 1", {"\u0131s": 1}, True),
    ("li\u212ae = 1", {"li\u212ae": 1}, True),
    ("fal\u017fe", {"fal\u017fe": True}, True),
    ("NaN = 1", {"NaN": 1}, True),
    ("Infinity = 1", {"Infinity": 1}, True),
    ("get = 1 AND v0 = 2 AND evaluate = 3", {"get": 1, "v0": 2, "evaluate": 3}, True),
    ("def = 1 AND __class__ = 2 AND lambda = 3", {"def": 1, "__class__": 2, "lambda": 3}, True),
)
def test_s4_names_and_keywords(text: str, values: Values, expected: bool | None) -> None:
    assert truth(text, values) is expected


def test_s4_names_of_any_length() -> None:
    name = "a" * 100_000
    assert Selector(f"{name} = 1").matches({name: 1})


@table(
    ("a = 'x'", {"a": "x"}, True),
    ("a = 'x'", {"a": "X"}, False),
    ("a = 'x'", {"a": "x "}, False),
    ("a = 'x '", {"a": "x"}, False),
    ("a = ''", {"a": ""}, True),
    ("a = ''", {"a": " "}, False),
    ("a = ''", {}, None),
    ("a = ''''", {"a": "'"}, True),
    ("a = ''''''", {"a": "''"}, True),
    ("a = 'it''s'", {"a": "it's"}, True),
    (r"a = '\'", {"a": "\\"}, True),
    (r"a = '\n'", {"a": "\n"}, False),
    ("a = '\n'", {"a": "\n"}, True),
    ("a = '\"'", {"a": '"'}, True),
    ("a = 'a = 1'", {"a": "a = 1"}, True),
    ("a = 'AND'", {"a": "AND"}, True),
    ("a = 'é'", {"a": "e\u0301"}, False),
    ("a = '\ud83d'", {"a": "\ud83d"}, True),
    ("a = '\0'", {"a": "\0"}, True),
    ("a = '😀'", {"a": "😀"}, True),
    ("a = '\u00a0\u000b'", {"a": "\u00a0\u000b"}, True),
    ("a='x'AND b='y'", {"a": "x", "b": "y"}, True),
    ("'x' = a", {"a": "x"}, True),
    ("'x' <> a", {"a": "y"}, True),
    ("'x' = 'x'", {}, True),
    ("'x' = 'y'", {}, False),
)
def test_s5_strings(text: str, values: Values, expected: bool | None) -> None:
    assert truth(text, values) is expected


@table(
    ("a = 57", {"a": 57}, True),
    ("a = -957", {"a": -957}, True),
    ("a = +62", {"a": 62}, True),
    ("a = 0", {"a": 0}, True),
    ("a = 00", {"a": 0}, True),
    ("a = 017", {"a": 15}, True),
    ("a = -017", {"a": -15}, True),
    ("a = 0x1F", {"a": 31}, True),
    ("a = 0X1f", {"a": 31}, True),
    ("a = 0x1d", {"a": 29}, True),
    ("a = 0xFFFFFFFF", {"a": 4294967295}, True),
    ("a = -0xff", {"a": -255}, True),
    ("a = 12L", {"a": 12}, True),
    ("a = 12l", {"a": 12}, True),
    ("a = 0x1FL", {"a": 31}, True),
    ("a = 017L", {"a": 15}, True),
    ("a = 0L", {"a": 0}, True),
    ("a = 2147483648", {"a": 2147483648}, True),
    ("a = 9223372036854775807", {"a": LONG_MAX}, True),
    ("a = 9223372036854775807", {"a": LONG_MAX - 1}, False),
    ("a = 0x7fffffffffffffff", {"a": LONG_MAX}, True),
    ("a = 0777777777777777777777", {"a": LONG_MAX}, True),
    ("a = -9223372036854775808", {"a": LONG_MIN}, True),
    ("a = - 9223372036854775808", {"a": LONG_MIN}, True),
    ("a = -9223372036854775808L", {"a": LONG_MIN}, True),
    ("a = -0x8000000000000000", {"a": LONG_MIN}, True),
    ("a = --9223372036854775808", {"a": LONG_MIN}, True),
    ("1 - -9223372036854775808 = -9223372036854775807", {}, True),
    ("a > -9223372036854775808", {"a": LONG_MIN + 1}, True),
    ("a = 0x" + "0" * 10_000 + "1", {"a": 1}, True),
    ("a = " + "0" * 10_000 + "17", {"a": 15}, True),
    ("a BETWEEN 1AND 5", {"a": 5}, True),
    ("a=5OR b=6", {"a": 5}, True),
)
def test_s6_exact_numbers(text: str, values: Values, expected: bool | None) -> None:
    assert truth(text, values) is expected


@table(
    ("a = 7.", {"a": 7.0}, True),
    ("a = .5", {"a": 0.5}, True),
    ("a = 7E3", {"a": 7000.0}, True),
    ("a = 7e+3", {"a": 7000.0}, True),
    ("a = -57.9e-2", {"a": -0.579}, True),
    ("a = +6.2", {"a": 6.2}, True),
    ("a = 1.e2", {"a": 100.0}, True),
    ("a = .5E-1", {"a": 0.05}, True),
    ("a = 09.5", {"a": 9.5}, True),
    ("a = 09e1", {"a": 90.0}, True),
    ("a = 0e0", {"a": 0.0}, True),
    ("a = 1.5d", {"a": 1.5}, True),
    ("a = 1.5D", {"a": 1.5}, True),
    ("a = 1e1d", {"a": 10.0}, True),
    ("a = 1.f", {"a": 1.0}, True),
    ("a = .5F", {"a": 0.5}, True),
    ("a = 0.1f", {"a": 0.1}, False),
    ("a = 0.1f", {"a": 0.10000000149011612}, True),
    ("a = 0.1f", {"a": Float(0.1)}, True),
    ("a = 0.1", {"a": Float(0.1)}, False),
    ("a = 0.1", {"a": 0.1}, True),
    ("a = 0.1d", {"a": 0.1}, True),
    ("a = 16777217.0f", {"a": 16777216.0}, True),
    ("a = 1.00000005960464477540f", {"a": 1.0000001192092896}, True),
    ("a = 1.00000005960464477539f", {"a": 1.0}, True),
    ("a = 1.000000059604644775390625f", {"a": 1.0}, True),
    ("a = 1.000000178813934326171875f", {"a": 1.000000238418579}, True),
    ("a = 1.0000000596046447753906250000000001f", {"a": 1.0000001192092896}, True),
    ("a = 3.4028235e38f", {"a": 3.4028234663852886e38}, True),
    ("a = 1.4e-45f", {"a": 1.401298464324817e-45}, True),
    ("a = 1.7976931348623157e308", {"a": 1.7976931348623157e308}, True),
    ("a = 4.9e-324", {"a": 5e-324}, True),
    ("a = 0.0e99999", {"a": 0.0}, True),
    ("a = 0.0e99999999999999999999f", {"a": 0.0}, True),
    ("a = 0.3", {"a": 0.1 + 0.2}, False),
    ("a = 1." + "0" * 10_000 + "e0", {"a": 1.0}, True),
    ("a = 1.5AND b", {"a": 1.5, "b": True}, True),
)
def test_s7_approximate_numbers(text: str, values: Values, expected: bool | None) -> None:
    assert truth(text, values) is expected


@table(
    ("\ta\f=\r\n1 \r", {"a": 1}, True),
    ("a=1", {"a": 1}, True),
    ("a\n=\n1", {"a": 1}, True),
    ("a<b", {"a": 1, "b": 2}, True),
    ("a<-1", {"a": -2}, True),
    ("a<>-1", {"a": -2}, True),
    ("a>=-.5", {"a": -0.5}, True),
    ("(a)AND(b)", {"a": True, "b": True}, True),
    ("a IN('x','y')", {"a": "y"}, True),
    ("a IN ( 'x' , 'y' )", {"a": "y"}, True),
    ("a LIKE'x'ESCAPE'!'", {"a": "x"}, True),
    ("NOT(a)", {"a": False}, True),
    ("a\tIS\nNOT\fNULL", {"a": 1}, True),
)
def test_s8_white_space(text: str, values: Values, expected: bool | None) -> None:
    assert truth(text, values) is expected


@table(
    ("JMSDeliveryMode = 'PERSISTENT'", {"JMSDeliveryMode": "PERSISTENT"}, True),
    ("JMSDeliveryMode = 'NON_PERSISTENT'", {"JMSDeliveryMode": "PERSISTENT"}, False),
    ("JMSPriority >= 5", {"JMSPriority": 9}, True),
    ("JMSMessageID = 'ID:1'", {"JMSMessageID": "ID:1"}, True),
    ("JMSTimestamp > 1700000000000", {"JMSTimestamp": 1700000000001}, True),
    ("JMSCorrelationID IS NULL", {"JMSCorrelationID": None}, True),
    ("JMSType LIKE 'quote.%'", {"JMSType": "quote.eu"}, True),
    ("JMSXGroupID = 'g'", {"JMSXGroupID": "g"}, True),
    ("JMSXGroupSeq = 1", {"JMSXGroupSeq": 1}, True),
    ("JMSXAnything IS NULL", {}, True),
    ("JMS_FJM2_Gap", {"JMS_FJM2_Gap": True}, True),
    ("JMS_vendor = 1", {"JMS_vendor": 1}, True),
    ("jmsFoo = 1", {"jmsFoo": 1}, True),
    ("Jms = 1", {"Jms": 1}, True),
    ("xJMSDestination = 1", {"xJMSDestination": 1}, True),
)
def test_s9_headers(text: str, values: Values, expected: bool | None) -> None:
    assert truth(text, values) is expected


@table(
    ("a > 1", {"a": "2"}, False),
    ("a = 2", {"a": "2"}, False),
    ("a <> 2", {"a": "2"}, False),
    ("a = '2'", {"a": 2}, False),
    ("a = 'true'", {"a": True}, False),
    ("a = TRUE", {"a": "true"}, False),
    ("a = 5", {"a": Byte(5)}, True),
    ("a = 5", {"a": Short(5)}, True),
    ("a = 5", {"a": Int(5)}, True),
    ("a = 5", {"a": Long(5)}, True),
    ("a = 5", {"a": Float(5)}, True),
    ("a = 5", {"a": Double(5)}, True),
    ("a = 0.5", {"a": Float(0.5)}, True),
    ("a < b", {"a": Byte(5), "b": Float(5.5)}, True),
    ("a = b", {"a": Short(5), "b": Long(5)}, True),
    ("a + b = 8", {"a": Byte(127), "b": Short(-119)}, True),
    ("a + b > 127", {"a": Byte(127), "b": Byte(127)}, True),
    ("-a = 128", {"a": Byte(-128)}, True),
    ("a * b = 1", {"a": Float(0.5), "b": Long(2)}, True),
)
def test_s10_types_stay_as_they_were_set(text: str, values: Values, expected: bool | None) -> None:
    assert truth(text, values) is expected
