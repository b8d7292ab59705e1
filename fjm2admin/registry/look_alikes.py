"""Names that people cannot tell apart: "paris" and "Paris", in full-width letters, or with a Cyrillic a."""

import unicodedata
from typing import Final

_CYRILLIC: Final = ("АВЕКМНОРСТУХЅІЈаеорсухѕіјԁһԛԝѵкӏ", "ABEKMHOPCTYXSIJaeopcyxsijdhqwvkl")
_GREEK: Final = ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧανορικ", "ABEZHIKMNOPTYXavopik")
_OTHERS: Final = ("օսհıɡɑ", "ouhiga")
"""Armenian letters, and letters of other languages in the Latin alphabet."""
_LATIN: Final = str.maketrans(*("".join(parts) for parts in zip(_CYRILLIC, _GREEK, _OTHERS, strict=True)))
"""Latin letters by the letters of other scripts that look the same in most fonts (Unicode TS 39, confusables)."""


def looks_of(name: str) -> frozenset[str]:
    """Return the keys of a name. Names look alike if they share one.

    One key ignores case and width. The other also takes letters of other scripts for Latin ones.
    """
    plain = unicodedata.normalize("NFKC", name)
    return frozenset((_folded(plain), _folded(plain.translate(_LATIN))))


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text.casefold())
