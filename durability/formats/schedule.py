"""Which slot each operation of a writer uses, and the inverse: both in constant time and memory.

A writer with S slots visits them in passes. Pass p holds the sequence numbers p*S+1 ... (p+1)*S and visits
every slot exactly once. The order is sequential (`sequential`) or the pass's own (`random`). The random order
is a keyed Feistel permutation of the smallest power of two that holds S. A value outside S is permuted again
until it falls inside S. Nothing is stored per slot, so a 4 TB target needs no more memory than a 4 MB one.

All arrays are uint64; `slots` lie in [0, S), `seqs` start at 1, and seq 0 stands for the prefill.
"""

from __future__ import annotations

import numpy as np

from durability.formats.mixing import U64, Words, combine, fold

_ROUNDS = 4
_ONE = np.uint64(1)


class Schedule:
    """The order in which one writer visits its slots. `shuffled` False means sequential."""

    __slots__ = ("_half_bits", "_keys", "_left_mask", "_right_mask", "_shift", "shuffled", "slots")

    def __init__(self, *, seed: int, writer: int, slots: int, shuffled: bool) -> None:
        self.slots = slots
        self.shuffled = shuffled
        bits = max(2, (slots - 1).bit_length())
        right_bits = bits - bits // 2
        self._shift = U64(right_bits)
        self._right_mask = U64((1 << right_bits) - 1)
        self._left_mask = U64((1 << (bits // 2)) - 1)
        self._half_bits = U64(32)
        self._keys = [U64(combine(seed, writer, number)) for number in range(_ROUNDS)]

    def slot_of(self, seqs: Words) -> Words:
        """The slot to which each of `seqs` (all >= 1) is written."""
        zero_based = seqs - _ONE
        passes, index = np.divmod(zero_based, U64(self.slots))
        return self._walk(index, passes, inverse=False) if self.shuffled else index

    def seq_in_pass(self, slots: Words, passes: Words) -> Words:
        """The seq that visits each of `slots` in the pass at the same position of `passes`. Passes count from
        0."""
        index = self._walk(slots, passes, inverse=True) if self.shuffled else slots
        return passes * U64(self.slots) + index + _ONE

    def newest_at(self, slots: Words, frontier: int) -> Words:
        """For each slot, the newest seq <= `frontier` that was written there; 0 if only the prefill was
        written."""
        last_pass, done = divmod(frontier, self.slots)
        current = np.full(len(slots), last_pass, dtype=U64)
        if done == 0:
            if last_pass == 0:
                return np.zeros(len(slots), dtype=U64)
            return self.seq_in_pass(slots, current - _ONE)
        newest = self.seq_in_pass(slots, current)
        late = np.flatnonzero(newest > U64(frontier))
        if len(late):
            newest[late] = self.seq_in_pass(slots[late], current[late] - _ONE) if last_pass else 0
        return newest

    def _walk(self, start: Words, passes: Words, *, inverse: bool) -> Words:
        """Permute `start` within [0, slots). Values that fall outside are permuted again until they fall
        inside."""
        keys = [fold(passes, key) for key in self._keys]
        value = self._step(start, keys, inverse=inverse)
        outside = np.flatnonzero(value >= U64(self.slots))
        while len(outside):
            value[outside] = self._step(value[outside], [key[outside] for key in keys], inverse=inverse)
            outside = outside[value[outside] >= U64(self.slots)]
        return value

    def _step(self, value: Words, keys: list[Words], *, inverse: bool) -> Words:
        left, right = value >> self._shift, value & self._right_mask
        for number in reversed(range(_ROUNDS)) if inverse else range(_ROUNDS):
            if number % 2:
                left = left ^ ((fold(keys[number], right) >> self._half_bits) & self._left_mask)
            else:
                right = right ^ ((fold(keys[number], left) >> self._half_bits) & self._right_mask)
        return (left << self._shift) | right
