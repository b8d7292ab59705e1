"""Tests of the summary that `fjm2 pub` prints at its end."""

import re

from commanding import starting

GROUP = "239.192.57.99"


def test_the_rate_told_is_that_of_sending_not_of_buffering(port: int) -> None:
    count, size, rate_mbit = 400, 1000, 2.0
    with starting(f"fjm2://{GROUP}:{port}?interface=127.0.0.1&ttl=0&rate={rate_mbit:g}mbit") as start:
        code, _, err = start("pub", "k", "--count", count, "--size", size, "--non-persistent").end()
    assert code == 0
    told = re.search(r" in (\d+\.\d+) s, .* ([\d.,]+) Mbit/s; ", err)
    assert told, err
    assert float(told[2].replace(",", "")) <= 1.1 * rate_mbit
    assert float(told[1]) >= 0.9 * count * size * 8e-6 / rate_mbit
