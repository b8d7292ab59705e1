"""Admission of unknown senders: names that are used once get little, and those that come back get in."""

from fjm2.norm.core.receive.admission import Admission

ADDRESS = ("10.0.0.1", 6003)
SECONDS = 10
PER_S = 3000


def test_a_flood_of_names_that_are_used_once_gets_few_in() -> None:
    admission = Admission()
    admitted = [admission.admits(1 + number, 7, ADDRESS, number / PER_S) for number in range(SECONDS * PER_S)]
    assert all(admitted[:500])  # a group that starts at once
    assert sum(admitted[PER_S:]) <= 16 * SECONDS


def test_during_a_flood_a_newcomer_gets_in_at_its_second_datagram() -> None:
    admission = Admission()
    late = []
    for number in range(SECONDS * PER_S):
        now = number / PER_S
        admission.admits(1 + number, 7, ADDRESS, now)
        if number % 300 == 299 and now > 1.0:
            name = (1 << 30) + number // 300
            admission.admits(name, 7, ADDRESS, now)
            late.append(admission.admits(name, 7, ADDRESS, now + 0.02))
    assert all(late)
    assert len(late) > 50
