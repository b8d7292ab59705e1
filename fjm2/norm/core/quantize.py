"""Numbers that NORM squeezes into a byte or two: round-trip times, group sizes, rates, losses (RFC 5740, 4).

Codes are written `*_q`. Every pair of functions is a rounding: `value_of(code(v))` is the value that peers see.
"""

import math

RTT_MIN_S = 1e-6
RTT_MAX_S = 1000.0
_RTT_LINEAR_BELOW_S = 33e-6
_RTT_LINEAR_CODES = 31

GROUP_SIZE_CODES = 16
RATE_TINY_Q = 0x0001


def _rtt_of(code: int) -> float:
    if code < _RTT_LINEAR_CODES:
        return (code + 1) * RTT_MIN_S
    return RTT_MAX_S / math.exp((255 - code) / 13.0)


_RTT_OF_CODE = tuple(_rtt_of(code) for code in range(256))
_GROUP_SIZES: tuple[int, ...] = tuple(
    (5 if code & 8 else 1) * 10 ** ((code & 7) + 1) for code in range(GROUP_SIZE_CODES)
)


def quantize_rtt(rtt_s: float) -> int:
    """The code of a round-trip time, clamped to 1 us .. 1000 s; rounds up from 33 us on, below it to whole us down."""
    rtt_s = min(max(rtt_s, RTT_MIN_S), RTT_MAX_S)
    if rtt_s < _RTT_LINEAR_BELOW_S:
        return int(rtt_s / RTT_MIN_S) - 1
    # Less a trifle: the logarithm's own rounding must not lift the value of a code to the next code.
    return math.ceil(255.0 - 13.0 * math.log(RTT_MAX_S / rtt_s) - 1e-9)


def rtt_of(code: int) -> float:
    """Seconds."""
    return _RTT_OF_CODE[code]


def quantize_group_size(size: int) -> int:
    """The code of the smallest representable group that is no smaller than `size`; 15 when none is."""
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
    """Receivers."""
    return _GROUP_SIZES[code]


def quantize_rate(bytes_per_s: float) -> int:
    """The 16-bit code of a rate: a mantissa of 12 bits over 4096 tenths, a decimal exponent of 4."""
    if bytes_per_s < 1.0:
        return RATE_TINY_Q
    exponent = min(int(math.log10(bytes_per_s)), 15)
    mantissa = int(bytes_per_s * 409.6 / 10.0**exponent + 0.5)
    if mantissa > 4095:  # just below a power of ten: libnorm wraps to a rate of 0 here
        exponent, mantissa = (exponent + 1, 410) if exponent < 15 else (15, 4095)
    return mantissa << 4 | exponent


def rate_of(code: int) -> float:
    """Bytes per second. A mantissa of 0 is what libnorm sends in place of a power of ten, or means "tiny"."""
    return (code >> 4) * (10.0 / 4096.0) * 10.0 ** (code & 15)


def quantize_loss(fraction: float) -> int:
    """The 32-bit code of a loss fraction: the RFC's 16-bit `cc_loss` high, libnorm's extra precision low."""
    return int(min(max(fraction, 0.0), 1.0) * 0xFFFFFFFF + 0.5)


def loss_of(code: int) -> float:
    """The fraction of packets lost, from the 32-bit code."""
    return code / 0xFFFFFFFF
