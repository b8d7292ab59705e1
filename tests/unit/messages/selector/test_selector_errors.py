"""Tests of invalid selectors.

They are refused at once, and the error says where the mistake is and what was expected.
"""

import pytest

from fjm2.jms.selector import Selector
from fjm2.messages.errors import InvalidSelectorError, JMSError


def refusal(text: str) -> InvalidSelectorError:
    with pytest.raises(InvalidSelectorError) as caught:
        Selector(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        # S3: comparisons do not chain
        ("a = b = c", 6, "conditions cannot be compared"),
        ("a = 1 = TRUE", 6, "conditions cannot be compared"),
        ("a < b < c", 0, "expected a number, found a condition"),
        ("a = b IS NULL", 0, "expected the name of a property"),
        ("a = NOT b", 4, "NOT applies to conditions"),
        ("1 + NOT a", 4, "NOT applies to conditions"),
        ("-NOT a", 1, "NOT applies to conditions"),
        ("a BETWEEN 1 AND NOT b", 16, "NOT applies to conditions"),
        ("a AND", 5, "the selector ends where a name, a literal or an opening bracket is expected"),
        ("AND a", 0, "expected a name.*, found AND"),
        ("a OR OR b", 5, ", found OR"),
        ("a b", 2, "expected an operator, found a name"),
        ("a == 1", 3, "equality is written =, not =="),
        ("a = = 1", 4, "equality is written =, not =="),
        ("a <> = 1", 5, "expected a name.*, found ="),
        ("a NOT b", 6, "expected BETWEEN, IN or LIKE, found a name"),
        ("a NOT = 1", 6, "expected BETWEEN, IN or LIKE, found ="),
        ("a NOT", 5, "the selector ends where BETWEEN, IN or LIKE is expected"),
        ("a NOT IS NULL", 6, ", found IS"),
        ("a NOT NOT IN ('x')", 6, ", found NOT"),
        ("NOT", 3, "the selector ends"),
        ("(a", 0, "this bracket is not closed"),
        ("a = 1 AND ((b)", 10, "this bracket is not closed"),
        ("a)", 1, "this bracket was not opened"),
        ("()", 1, r"expected a name.*, found \)"),
        ("(a AND)", 6, r", found \)"),
        ("a (b)", 2, r"expected an operator, found \("),
        # S4: names
        ("a.b = 1", 1, "names cannot contain dots"),
        ("a.5 = 1", 1, "expected an operator, found a number"),
        ('"a" = 1', 0, "single quotes"),
        ("`a` = 1", 0, "names are written without quotes"),
        ("[a] = 1", 0, r"U\+005B \(LEFT SQUARE BRACKET\) is not allowed here"),
        ("order-id = between", 11, "expected a name.*, found BETWEEN"),
        ("a = Null", 4, "NULL is not a value"),
        ("like = 1", 0, ", found LIKE"),
        ("escape", 0, ", found ESCAPE"),
        ("a ESCAPE 'x'", 2, "expected an operator, found ESCAPE"),
        ("1a = 1", 0, "1a is not a number"),
        ("٣a = 1", 0, "ARABIC-INDIC DIGIT THREE"),
        ("a = ٣", 4, "ARABIC-INDIC DIGIT THREE"),
        ("\u0301a = 1", 0, "COMBINING ACUTE ACCENT"),
        ("a·b = 1", 1, "MIDDLE DOT"),
        ("℘ = 1", 0, "SCRIPT CAPITAL P"),
        ("a² = 1", 1, "SUPERSCRIPT TWO"),
        ("a① = 1", 1, "CIRCLED DIGIT ONE"),
        ("😀 = 1", 0, "GRINNING FACE"),
        ("a\u200db = 1", 1, "ZERO WIDTH JOINER"),
        ("a\0 = 1", 1, r"U\+0000"),
        ("a\ud83d = 1", 1, r"U\+D83D"),
        ("@a = 1", 0, "COMMERCIAL AT"),
        # S5: strings
        ("a = 'x", 4, "this string is not closed"),
        ("a = 'it's'", 8, ", found a name"),
        ("a = 'x''", 4, "this string is not closed"),
        ("a = 'x' 'y'", 8, "expected an operator, found a string"),
        (r"a = 'x\'y'", 8, ", found a name"),
        ('a = "x"', 4, "strings are written in single quotes"),
        # S6: exact numbers
        ("a = 9223372036854775808", 4, "out of range for a long"),
        ("a = +9223372036854775808", 5, "out of range for a long"),
        ("a = -9223372036854775809", 5, "out of range for a long"),
        ("a = -(9223372036854775808)", 6, "out of range for a long"),
        ("a = -+9223372036854775808", 6, "out of range for a long"),
        ("a = b -9223372036854775808", 7, "out of range for a long"),
        ("a = 0x8000000000000000", 4, "out of range for a long"),
        ("a = 0xFFFFFFFFFFFFFFFF", 4, "out of range for a long"),
        ("a = 01000000000000000000000", 4, "out of range for a long"),
        ("a = 99999999999999999999", 4, "out of range for a long"),
        ("a = 08", 4, "08 begins with 0 but is not an octal number"),
        ("a = 019L", 4, "not an octal number"),
        ("a = 0b11", 4, "0b11 is not a number"),
        ("a = 1_000", 4, "1_000 is not a number"),
        ("a = 0x", 4, "0x is not a number"),
        ("a = 0xg", 4, "0xg is not a number"),
        ("a = 0x1_0", 4, "0x1_0 is not a number"),
        ("a = 1LL", 4, "1LL is not a number"),
        # S7: approximate numbers
        ("a = 7f", 4, "7f is not a number"),
        ("a = 7d", 4, "7d is not a number"),
        ("a = 09d", 4, "09d is not a number"),
        ("a = 1e", 4, "1e is not a number"),
        ("a = 1e+", 4, "1e is not a number"),
        ("a = 1.5L", 4, r"1\.5L is not a number"),
        ("a = 1.5.2", 4, r"1\.5\. is not a number"),
        ("a = 7..5", 4, r"7\.\. is not a number"),
        ("a = .", 4, "names cannot contain dots"),
        ("a = .e5", 4, "names cannot contain dots"),
        ("a = 0x1.8p3", 4, r"0x1\. is not a number"),
        ("a = 0x1p3", 4, "0x1p3 is not a number"),
        ("a = 1e309", 4, "1e309 is out of range for its type"),
        ("a = 1e39f", 4, "out of range for its type"),
        ("a = 3.40282357e38f", 4, "out of range for its type"),
        ("a = 1e-400", 4, "out of range for its type"),
        ("a = 1e-46f", 4, "out of range for its type"),
        ("a = 1,5", 5, "expected an operator, found ,"),
        # S8: white space
        ("a\u000b= 1", 1, r"U\+000B"),
        ("a\u00a0= 1", 1, "NO-BREAK SPACE"),
        ("a =\u20031", 3, "EM SPACE"),
        ("a\u3000= 1", 1, "IDEOGRAPHIC SPACE"),
        ("a\u2028= 1", 1, "LINE SEPARATOR"),
        ("a\u0085= 1", 1, r"U\+0085"),
        ("a\u001f= 1", 1, r"U\+001F"),
        ("\ufeffa = 1", 0, "ZERO WIDTH NO-BREAK SPACE"),
        ("\u000b", 0, r"U\+000B"),
        ("a = 1 /* b */", 7, r", found \*"),
        ("a = 1 // b", 7, ", found /"),
        ("a = 1 # b", 6, "selectors have no comments"),
        # S9: headers
        ("JMSRedelivered = TRUE", 0, "selectors cannot use this header"),
        ("a AND JMSReplyTo IS NULL", 6, "selectors cannot use this header"),
        ("JMSRedelivered", 0, "selectors cannot use this header"),
        ("JMSExpiration > 0", 0, "selectors cannot use this header"),
        ("JMSDeliveryTime > 0", 0, "selectors cannot use this header"),
        ("JMSpriority = 1", 0, "selectors cannot use this header"),
        ("JMS", 0, "selectors cannot use this header"),
        ("JMSFoo LIKE 'x'", 0, "selectors cannot use this header"),
        # S13, S14: literals of no order, and NULL
        ("TRUE = 0", 5, "cannot compare a boolean with a number"),
        ("1 <> 'x'", 2, "cannot compare a number with a string"),
        ("'x' = FALSE", 4, "cannot compare a string with a boolean"),
        ("a + 1 = 'x'", 6, "cannot compare a number with a string"),
        ("TRUE <> -a", 5, "cannot compare a boolean with a number"),
        ("a < 'x'", 4, "expected a number, found a string"),
        ("'x' >= a", 0, "expected a number, found a string"),
        ("a > TRUE", 4, "expected a number, found a boolean"),
        ("a <= FALSE", 5, ", found a boolean"),
        ("'a' < 'b'", 0, ", found a string"),
        ("a BETWEEN 'x' AND 'y'", 10, ", found a string"),
        ("a BETWEEN 1 AND 'y'", 16, ", found a string"),
        ("'x' BETWEEN 1 AND 2", 0, ", found a string"),
        ("a NOT BETWEEN FALSE AND TRUE", 14, ", found a boolean"),
        ("a = NULL", 4, "NULL is not a value: use IS NULL"),
        ("a <> NULL", 5, "NULL is not a value"),
        ("NULL IS NULL", 0, "NULL is not a value"),
        ("a IN (NULL)", 6, "expected a string, found NULL"),
        ("a BETWEEN NULL AND 5", 10, "NULL is not a value"),
        ("NULL", 0, "NULL is not a value"),
        ("a IS", 4, "the selector ends where NULL is expected"),
        ("a IS TRUE", 5, "expected NULL, found TRUE"),
        ("a IS NOT 1", 9, "expected NULL, found a number"),
        ("1 IS NULL", 0, "expected the name of a property, found a number"),
        ("'x' IS NULL", 0, ", found a string"),
        ("TRUE IS NULL", 0, ", found a boolean"),
        ("-a IS NULL", 1, ", found a number"),
        ("(a = 1) IS NULL", 1, ", found a condition"),
        # S16: BETWEEN
        ("a BETWEEN 1", 2, "this BETWEEN has no AND"),
        ("a BETWEEN 1 OR b", 2, "this BETWEEN has no AND"),
        ("a BETWEEN 1 = 2 AND 3", 2, "this BETWEEN has no AND"),
        ("(a BETWEEN 1) AND 2", 3, "this BETWEEN has no AND"),
        ("a BETWEEN (1 AND 2)", 11, "expected a condition, found a number"),
        ("a BETWEEN 1, 2", 11, "expected an operator, found ,"),
        ("a BETWEEN 1 AND 2 AND 3", 22, "expected a condition, found a number"),
        ("a BETWEEN 1 AND 2 BETWEEN 3 AND 4", 0, ", found a condition"),
        ("(a = 1) BETWEEN 1 AND 2", 1, ", found a condition"),
        # S17: IN
        ("a IN ()", 6, r"expected a string, found \)"),
        ("a IN (1, 2)", 6, "expected a string, found a number"),
        ("a IN ('x', 2)", 11, ", found a number"),
        ("a IN (TRUE)", 6, ", found TRUE"),
        ("a IN ('x',)", 10, r"expected a string, found \)"),
        ("a IN ('x' 'y')", 10, "expected a comma or a closing bracket, found a string"),
        ("a IN ('x'", 9, "the selector ends where a comma or a closing bracket is expected"),
        ("a IN 'x'", 5, "expected a list of strings in brackets, found a string"),
        ("a IN (('x'))", 6, r", found \("),
        ("a IN (b)", 6, ", found a name"),
        ("'x' IN ('x')", 0, "expected the name of a property, found a string"),
        ("a + 1 IN ('x')", 0, ", found a number"),
        ("+a IN ('x')", 1, ", found a number"),
        # S17, S18: LIKE
        ("a LIKE b", 7, "expected a pattern in quotes, found a name"),
        ("a LIKE 5", 7, ", found a number"),
        ("a LIKE ('x')", 7, r", found \("),
        ("'x' LIKE 'x'", 0, ", found a string"),
        ("5 NOT LIKE 'x'", 0, ", found a number"),
        ("a LIKE 'x' ESCAPE", 17, "the selector ends where a character in quotes is expected"),
        ("a LIKE 'x' ESCAPE ''", 18, "ESCAPE expects one character"),
        ("a LIKE 'x' ESCAPE '!!'", 18, "ESCAPE expects one character"),
        ("a LIKE 'x' ESCAPE 'e\u0301'", 18, "ESCAPE expects one character"),
        ("a LIKE 'x' ESCAPE b", 18, ", found a name"),
        ("a LIKE 'x' ESCAPE '!' ESCAPE '!'", 22, ", found ESCAPE"),
        # S19: arithmetic
        ("a + 'x' = b", 4, "expected a number, found a string"),
        ("'x' + 'y' = a", 0, ", found a string"),
        ("TRUE + 1 = 2", 0, ", found a boolean"),
        ("-'x' = a", 1, ", found a string"),
        ("-TRUE", 1, ", found a boolean"),
        ("-(a = 1)", 2, ", found a condition"),
        ("(a = 1) + 1 = 2", 1, ", found a condition"),
        ("a % 2 = 1", 2, "selectors have no modulo operator"),
        ("upper(a) = 'X'", 5, r"expected an operator, found \("),
        ("a * = 2", 4, ", found ="),
        ("a + ", 4, "the selector ends"),
        # S20: a selector is a condition
        ("3+5", 0, "expected a condition, found a number"),
        ("'a'", 0, "expected a condition, found a string"),
        ("('a')", 1, ", found a string"),
        ("5", 0, ", found a number"),
        ("-a", 1, ", found a number"),
        ("NOT 1", 4, ", found a number"),
        ("a AND 5", 6, ", found a number"),
        ("'x' OR a", 0, ", found a string"),
        ("a OR b + 1", 5, ", found a number"),
        # Operators of other languages
        ("a != 1", 2, "use <> for unequal"),
        ("a => 1", 3, ", found >"),
        ("a =< 1", 3, ", found <"),
        ("a < > 1", 4, ", found >"),
        ("a && b", 2, "use AND"),
        ("a || b", 2, "use OR"),
        ("!a", 0, "NOT for negation"),
        ("a = 1;", 5, "semicolon"),
        ("(a = 1) = TRUE", 8, "conditions cannot be compared"),
        ("TRUE = (a OR b)", 5, "conditions cannot be compared"),
    ],
)
def test_refused(text: str, position: int, reason: str) -> None:
    error = refusal(text)
    assert error.position == position
    with pytest.raises(InvalidSelectorError, match=reason):
        Selector(text)


def test_refused_again_the_second_time() -> None:
    assert str(refusal("a = ")) == str(refusal("a = "))


def test_the_error_is_one_of_jms_and_a_value_error() -> None:
    error = refusal("a =")
    assert isinstance(error, JMSError)
    assert isinstance(error, ValueError)
    reason = "the selector ends where a name, a literal or an opening bracket is expected"
    assert str(error) == f"{reason} at position 3\n  a =\n     ^"
    assert (error.reason, error.position, error.selector) == (reason, 3, "a =")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("price > > 3", ["  price > > 3", "          ^"]),
        ("a = 1\nAND b == 2", ["  AND b == 2", "         ^"]),
        ("\ta\t= =", ["   a = =", "       ^"]),
        ("x" * 100 + " = = " + "y" * 100, ["  " + "x" * 17 + " = = " + "y" * 18, " " * 22 + "^"]),
    ],
)
def test_the_error_shows_the_place(text: str, shown: list[str]) -> None:
    assert str(refusal(text)).splitlines()[1:] == shown


def test_long_words_are_not_repeated() -> None:
    assert len(str(refusal("a = " + "9" * 100_000))) < 200
    assert len(str(refusal("a = 1" + "x" * 100_000))) < 200
    assert len(str(refusal("x" * 100_000 + " y"))) < 200
