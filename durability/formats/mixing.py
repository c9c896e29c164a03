"""A fixed 64-bit integer hash that is the same on every machine, as scalar and numpy functions.

The formats need a keyed permutation and a check that numpy can compute for thousands of sectors at once.
Neither numpy's nor Python's `random` guarantees the same numbers in the next version, so they are not used.
The constants are those of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). Do not use this for secrets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

U64: type[np.uint64] = np.uint64
Words = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S32 = (np.uint64(n) for n in (30, 27, 31, 32))


def fold(state: Words, word: Words | np.uint64) -> Words:
    """Absorb `word` into `state`, elementwise. For a fixed state this is a bijection of the word, and for a
    fixed word of the state. So two inputs that differ in one word, by any number of bits, always leave
    different states."""
    mixed = state ^ word
    mixed *= _M1
    mixed ^= mixed >> _S32
    return mixed


def finish(state: Words) -> Words:
    """Spread the absorbed words over all 64 bits; a bijection."""
    mixed = (state ^ (state >> _S30)) * _M1
    mixed ^= mixed >> _S27
    mixed *= _M2
    mixed ^= mixed >> _S31
    return mixed


def stream(seed: int, count: int) -> Words:
    """The first `count` words of SplitMix64 from `seed`."""
    steps = np.arange(1, count + 1, dtype=U64) * _GOLDEN + U64(seed)
    return finish(steps)


def combine(*words: int) -> int:
    """One 64-bit word made from several words; their order matters."""
    state = np.zeros(1, dtype=U64)
    for word in words:
        state = fold(state + _GOLDEN, U64(word))
    return int(finish(state)[0])
