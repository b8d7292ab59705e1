"""Quantized fields of NORM: round-trip times, group sizes, rates and losses (RFC 5740, 4).

Names of codes end in `_q`. For each quantity, one function returns the code of a value, and another the value of a
code. A value that goes through both is rounded as peers see it.
"""

import math

RTT_MIN_S = 1e-6
"""Shortest round-trip time that has a code (RFC 5740, 4.2)."""
RTT_MAX_S = 1000.0
"""Longest round-trip time that has a code (RFC 5740, 4.2)."""
_RTT_LINEAR_BELOW_S = 33e-6
"""Round-trip time below which codes are linear. Longer times have logarithmic codes (RFC 5740, 4.2)."""
_RTT_LINEAR_CODES = 31
"""Number of linear codes, one for each microsecond."""

GROUP_SIZE_CODES = 16
"""Number of group sizes: their field has 4 bits."""
RATE_TINY_Q = 0x0001
"""Code of rates below one byte per second."""


def _rtt_of(code: int) -> float:
    if code < _RTT_LINEAR_CODES:
        return (code + 1) * RTT_MIN_S
    return RTT_MAX_S / math.exp((255 - code) / 13.0)


_RTT_OF_CODE = tuple(_rtt_of(code) for code in range(256))
_GROUP_SIZES: tuple[int, ...] = tuple(
    (5 if code & 8 else 1) * 10 ** ((code & 7) + 1) for code in range(GROUP_SIZE_CODES)
)


def quantize_rtt(rtt_s: float) -> int:
    """Return the code of a round-trip time, clamped to 1 us .. 1000 s. Times below 33 us round down, others up."""
    rtt_s = min(max(rtt_s, RTT_MIN_S), RTT_MAX_S)
    if rtt_s < _RTT_LINEAR_BELOW_S:
        return int(rtt_s / RTT_MIN_S) - 1
    # Subtract a trifle, so that a rounding error of the logarithm cannot lead to the next code.
    return math.ceil(255.0 - 13.0 * math.log(RTT_MAX_S / rtt_s) - 1e-9)


def rtt_of(code: int) -> float:
    """Return the round-trip time in seconds that a code stands for."""
    return _RTT_OF_CODE[code]


def quantize_group_size(size: int) -> int:
    """Return the code of the smallest group size that is at least `size`; 15 if no group size is that large."""
    if size <= 10:
        return 0
    exponent = len(str(size)) - 1
    mantissa = -(-size // 10**exponent)
    if mantissa == 1:
        code = exponent - 1
    elif mantissa <= 5:
        code = exponent + 7
    else:
        code = exponent
    return code if size <= _GROUP_SIZES[-1] else GROUP_SIZE_CODES - 1


def group_size_of(code: int) -> int:
    """Return the number of receivers that a code stands for."""
    return _GROUP_SIZES[code]


def quantize_rate(bytes_per_s: float) -> int:
    """Return the 16-bit code of a rate: 12 bits of mantissa, in units of 10/4096, and 4 bits of decimal exponent."""
    if bytes_per_s < 1.0:
        return RATE_TINY_Q
    exponent = min(int(math.log10(bytes_per_s)), 15)
    mantissa = int(bytes_per_s * 409.6 / 10.0**exponent + 0.5)
    if mantissa > 4095:  # just below a power of ten: libnorm wraps to a rate of 0 here
        exponent, mantissa = (exponent + 1, 410) if exponent < 15 else (15, 4095)
    return mantissa << 4 | exponent


def rate_of(code: int) -> float:
    """Return the rate in bytes per second that a code stands for.

    A mantissa of 0 means "tiny"; libnorm also sends it for powers of ten.
    """
    return (code >> 4) * (10.0 / 4096.0) * 10.0 ** (code & 15)


def quantize_loss(fraction: float) -> int:
    """Return the 32-bit code of a loss fraction: the RFC's 16-bit `cc_loss`, then 16 bits that libnorm adds."""
    return int(min(max(fraction, 0.0), 1.0) * 0xFFFFFFFF + 0.5)


def loss_of(code: int) -> float:
    """Return the loss fraction that a 32-bit code stands for."""
    return code / 0xFFFFFFFF
