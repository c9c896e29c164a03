"""How many places each address holds, and which address holds most: each answer takes constant time, however
many addresses there are, because a stranger decides how many that is and how often it is asked."""

from __future__ import annotations


class AddressPlaces:
    """Places that addresses hold; none to begin with."""

    def __init__(self) -> None:
        self.taken = 0
        self._held: dict[str, int] = {}
        self._holders: dict[int, dict[str, None]] = {}  # by how many they hold, longest so first
        self._most = 0

    def held(self, address: str) -> int:
        """How many places `address` holds."""
        return self._held.get(address, 0)

    def take(self, address: str) -> None:
        """`address` holds one more."""
        self._move(address, self.held(address) + 1)
        self.taken += 1

    def give_back(self, address: str) -> None:
        """`address` holds one less. It must hold one."""
        self._move(address, self._held[address] - 1)
        self.taken -= 1

    def most(self) -> str:
        """The address that holds most; of several, the one that has held so many for longest. One must be
        held."""
        return next(iter(self._holders[self._most]))

    def _move(self, address: str, count: int) -> None:
        before = self._held.pop(address, 0)
        if before:
            holders = self._holders[before]
            del holders[address]
            if not holders:
                del self._holders[before]
        if count:
            self._held[address] = count
            self._holders.setdefault(count, {})[address] = None
        self._most = max(self._most, count)
        if self._most not in self._holders:
            self._most -= 1  # the one that left it holds one less, or nobody holds any
