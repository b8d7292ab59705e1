"""What is no selector: it is refused at once, with the place where it went wrong and what was expected there."""

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
        ("a = b = c", 6, "conditions are not compared"),
        ("a = 1 = TRUE", 6, "conditions are not compared"),
        ("a < b < c", 0, "a condition stands here instead of a number"),
        ("a = b IS NULL", 0, "instead of the name of a property"),
        ("a = NOT b", 4, "NOT stands before conditions"),
        ("1 + NOT a", 4, "NOT stands before conditions"),
        ("-NOT a", 1, "NOT stands before conditions"),
        ("a BETWEEN 1 AND NOT b", 16, "NOT stands before conditions"),
        ("a AND", 5, "the selector ends where a name, a literal or an opening bracket is expected"),
        ("AND a", 0, "AND stands here instead of a name"),
        ("a OR OR b", 5, "OR stands here"),
        ("a b", 2, "a name stands here instead of an operator"),
        ("a NOT b", 6, "a name stands here instead of BETWEEN, IN or LIKE"),
        ("a NOT = 1", 6, "= stands here instead of BETWEEN, IN or LIKE"),
        ("a NOT", 5, "the selector ends where BETWEEN, IN or LIKE is expected"),
        ("a NOT IS NULL", 6, "IS stands here"),
        ("a NOT NOT IN ('x')", 6, "NOT stands here"),
        ("NOT", 3, "the selector ends"),
        ("(a", 0, "the bracket that opens here is never closed"),
        ("a = 1 AND ((b)", 10, "the bracket that opens here is never closed"),
        ("a)", 1, "the bracket that closes here was never opened"),
        ("()", 1, r"\) stands here instead of a name"),
        ("(a AND)", 6, r"\) stands here"),
        ("a (b)", 2, r"\( stands here instead of an operator"),
        # S4: names
        ("a.b = 1", 1, "names have no dots"),
        ("a.5 = 1", 1, "a number stands here instead of an operator"),
        ('"a" = 1', 0, "single quotes"),
        ("`a` = 1", 0, "names stand without quotes"),
        ("[a] = 1", 0, r"U\+005B \(LEFT SQUARE BRACKET\) has no meaning here"),
        ("order-id = between", 11, "BETWEEN stands here instead of a name"),
        ("a = Null", 4, "NULL is no value"),
        ("like = 1", 0, "LIKE stands here"),
        ("escape", 0, "ESCAPE stands here"),
        ("a ESCAPE 'x'", 2, "ESCAPE stands here instead of an operator"),
        ("1a = 1", 0, "1a is no number"),
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
        ("a = 'x", 4, "the string that begins here is never closed"),
        ("a = 'it's'", 8, "a name stands here"),
        ("a = 'x''", 4, "the string that begins here is never closed"),
        ("a = 'x' 'y'", 8, "a string stands here instead of an operator"),
        (r"a = 'x\'y'", 8, "a name stands here"),
        ('a = "x"', 4, "strings stand in single quotes"),
        # S6: exact numbers
        ("a = 9223372036854775808", 4, "out of the range of a long"),
        ("a = +9223372036854775808", 5, "out of the range of a long"),
        ("a = -9223372036854775809", 5, "out of the range of a long"),
        ("a = -(9223372036854775808)", 6, "out of the range of a long"),
        ("a = -+9223372036854775808", 6, "out of the range of a long"),
        ("a = b -9223372036854775808", 7, "out of the range of a long"),
        ("a = 0x8000000000000000", 4, "out of the range of a long"),
        ("a = 0xFFFFFFFFFFFFFFFF", 4, "out of the range of a long"),
        ("a = 01000000000000000000000", 4, "out of the range of a long"),
        ("a = 99999999999999999999", 4, "out of the range of a long"),
        ("a = 08", 4, "08 is no octal number, as its first 0 says"),
        ("a = 019L", 4, "no octal number"),
        ("a = 0b11", 4, "0b11 is no number"),
        ("a = 1_000", 4, "1_000 is no number"),
        ("a = 0x", 4, "0x is no number"),
        ("a = 0xg", 4, "0xg is no number"),
        ("a = 0x1_0", 4, "0x1_0 is no number"),
        ("a = 1LL", 4, "1LL is no number"),
        # S7: approximate numbers
        ("a = 7f", 4, "7f is no number"),
        ("a = 7d", 4, "7d is no number"),
        ("a = 09d", 4, "09d is no number"),
        ("a = 1e", 4, "1e is no number"),
        ("a = 1e+", 4, "1e is no number"),
        ("a = 1.5L", 4, r"1\.5L is no number"),
        ("a = 1.5.2", 4, r"1\.5\. is no number"),
        ("a = 7..5", 4, r"7\.\. is no number"),
        ("a = .", 4, "names have no dots"),
        ("a = .e5", 4, "names have no dots"),
        ("a = 0x1.8p3", 4, r"0x1\. is no number"),
        ("a = 0x1p3", 4, "0x1p3 is no number"),
        ("a = 1e309", 4, "1e309 is out of the range of its type"),
        ("a = 1e39f", 4, "out of the range of its type"),
        ("a = 3.40282357e38f", 4, "out of the range of its type"),
        ("a = 1e-400", 4, "out of the range of its type"),
        ("a = 1e-46f", 4, "out of the range of its type"),
        ("a = 1,5", 5, ", stands here instead of an operator"),
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
        ("a = 1 /* b */", 7, r"\* stands here"),
        ("a = 1 // b", 7, "/ stands here"),
        ("a = 1 # b", 6, "there are no comments"),
        # S9: headers
        ("JMSDestination = 'x'", 0, "not for selectors"),
        ("a AND JMSReplyTo IS NULL", 6, "not for selectors"),
        ("JMSRedelivered", 0, "not for selectors"),
        ("JMSExpiration > 0", 0, "not for selectors"),
        ("JMSDeliveryTime > 0", 0, "not for selectors"),
        ("JMSpriority = 1", 0, "not for selectors"),
        ("JMS", 0, "not for selectors"),
        ("JMSFoo LIKE 'x'", 0, "not for selectors"),
        # S13, S14: literals of no order, and NULL
        ("TRUE = 0", 5, "a boolean is not compared with a number"),
        ("1 <> 'x'", 2, "a number is not compared with a string"),
        ("'x' = FALSE", 4, "a string is not compared with a boolean"),
        ("a + 1 = 'x'", 6, "a number is not compared with a string"),
        ("TRUE <> -a", 5, "a boolean is not compared with a number"),
        ("a < 'x'", 4, "a string stands here instead of a number"),
        ("'x' >= a", 0, "a string stands here instead of a number"),
        ("a > TRUE", 4, "a boolean stands here instead of a number"),
        ("a <= FALSE", 5, "a boolean stands here"),
        ("'a' < 'b'", 0, "a string stands here"),
        ("a BETWEEN 'x' AND 'y'", 10, "a string stands here"),
        ("a BETWEEN 1 AND 'y'", 16, "a string stands here"),
        ("'x' BETWEEN 1 AND 2", 0, "a string stands here"),
        ("a NOT BETWEEN FALSE AND TRUE", 14, "a boolean stands here"),
        ("a = NULL", 4, "NULL is no value: ask for it by IS NULL"),
        ("a <> NULL", 5, "NULL is no value"),
        ("NULL IS NULL", 0, "NULL is no value"),
        ("a IN (NULL)", 6, "NULL stands here instead of a string"),
        ("a BETWEEN NULL AND 5", 10, "NULL is no value"),
        ("NULL", 0, "NULL is no value"),
        ("a IS", 4, "the selector ends where NULL is expected"),
        ("a IS TRUE", 5, "TRUE stands here instead of NULL"),
        ("a IS NOT 1", 9, "a number stands here instead of NULL"),
        ("1 IS NULL", 0, "a number stands here instead of the name of a property"),
        ("'x' IS NULL", 0, "a string stands here"),
        ("TRUE IS NULL", 0, "a boolean stands here"),
        ("-a IS NULL", 1, "a number stands here"),
        ("(a = 1) IS NULL", 1, "a condition stands here"),
        # S16: BETWEEN
        ("a BETWEEN 1", 2, "this BETWEEN has no AND"),
        ("a BETWEEN 1 OR b", 2, "this BETWEEN has no AND"),
        ("a BETWEEN 1 = 2 AND 3", 2, "this BETWEEN has no AND"),
        ("(a BETWEEN 1) AND 2", 3, "this BETWEEN has no AND"),
        ("a BETWEEN (1 AND 2)", 11, "a number stands here instead of a condition"),
        ("a BETWEEN 1, 2", 11, ", stands here instead of an operator"),
        ("a BETWEEN 1 AND 2 AND 3", 22, "a number stands here instead of a condition"),
        ("a BETWEEN 1 AND 2 BETWEEN 3 AND 4", 0, "a condition stands here"),
        ("(a = 1) BETWEEN 1 AND 2", 1, "a condition stands here"),
        # S17: IN
        ("a IN ()", 6, r"\) stands here instead of a string"),
        ("a IN (1, 2)", 6, "a number stands here instead of a string"),
        ("a IN ('x', 2)", 11, "a number stands here"),
        ("a IN (TRUE)", 6, "TRUE stands here"),
        ("a IN ('x',)", 10, r"\) stands here instead of a string"),
        ("a IN ('x' 'y')", 10, "a string stands here instead of a comma or a closing bracket"),
        ("a IN ('x'", 9, "the selector ends where a comma or a closing bracket is expected"),
        ("a IN 'x'", 5, "a string stands here instead of a list of strings in brackets"),
        ("a IN (('x'))", 6, r"\( stands here"),
        ("a IN (b)", 6, "a name stands here"),
        ("'x' IN ('x')", 0, "a string stands here instead of the name of a property"),
        ("a + 1 IN ('x')", 0, "a number stands here"),
        ("+a IN ('x')", 1, "a number stands here"),
        # S17, S18: LIKE
        ("a LIKE b", 7, "a name stands here instead of a pattern in quotes"),
        ("a LIKE 5", 7, "a number stands here"),
        ("a LIKE ('x')", 7, r"\( stands here"),
        ("'x' LIKE 'x'", 0, "a string stands here"),
        ("5 NOT LIKE 'x'", 0, "a number stands here"),
        ("a LIKE 'x' ESCAPE", 17, "the selector ends where a character in quotes is expected"),
        ("a LIKE 'x' ESCAPE ''", 18, "ESCAPE takes one character"),
        ("a LIKE 'x' ESCAPE '!!'", 18, "ESCAPE takes one character"),
        ("a LIKE 'x' ESCAPE 'e\u0301'", 18, "ESCAPE takes one character"),
        ("a LIKE 'x' ESCAPE b", 18, "a name stands here"),
        ("a LIKE 'x' ESCAPE '!' ESCAPE '!'", 22, "ESCAPE stands here"),
        # S19: arithmetic
        ("a + 'x' = b", 4, "a string stands here instead of a number"),
        ("'x' + 'y' = a", 0, "a string stands here"),
        ("TRUE + 1 = 2", 0, "a boolean stands here"),
        ("-'x' = a", 1, "a string stands here"),
        ("-TRUE", 1, "a boolean stands here"),
        ("-(a = 1)", 2, "a condition stands here"),
        ("(a = 1) + 1 = 2", 1, "a condition stands here"),
        ("a % 2 = 1", 2, "there is no modulo"),
        ("upper(a) = 'X'", 5, r"\( stands here instead of an operator"),
        ("a * = 2", 4, "= stands here"),
        ("a + ", 4, "the selector ends"),
        # S20: a selector is a condition
        ("3+5", 0, "a number stands here instead of a condition"),
        ("'a'", 0, "a string stands here instead of a condition"),
        ("('a')", 1, "a string stands here"),
        ("5", 0, "a number stands here"),
        ("-a", 1, "a number stands here"),
        ("NOT 1", 4, "a number stands here"),
        ("a AND 5", 6, "a number stands here"),
        ("'x' OR a", 0, "a string stands here"),
        ("a OR b + 1", 5, "a number stands here"),
        # Operators of other languages
        ("a == 1", 3, "= stands here"),
        ("a != 1", 2, "unequal is written <>"),
        ("a => 1", 3, "> stands here"),
        ("a =< 1", 3, "< stands here"),
        ("a < > 1", 4, "> stands here"),
        ("a && b", 2, "and is written AND"),
        ("a || b", 2, "or is written OR"),
        ("!a", 0, "not is written NOT"),
        ("a = 1;", 5, "semicolon"),
        ("(a = 1) = TRUE", 8, "conditions are not compared"),
        ("TRUE = (a OR b)", 5, "conditions are not compared"),
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
