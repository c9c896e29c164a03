"""How many places each address holds, and which address holds the most.

Each call takes constant time for any number of addresses, because strangers decide how many there are and how
often it is called.
"""

from __future__ import annotations


class AddressPlaces:
    """Places held by addresses, none at first."""

    def __init__(self) -> None:
        self.taken = 0
        self._held: dict[str, int] = {}
        self._holders: dict[int, dict[str, None]] = {}  # addresses by number of places, in order of time
        self._most = 0

    def held(self, address: str) -> int:
        """How many places `address` holds."""
        return self._held.get(address, 0)

    def take(self, address: str) -> None:
        """`address` takes one more place."""
        self._move(address, self.held(address) + 1)
        self.taken += 1

    def give_back(self, address: str) -> None:
        """`address` gives back one place. It must hold one."""
        self._move(address, self._held[address] - 1)
        self.taken -= 1

    def most(self) -> str:
        """The address with the most places. Of several, the one that has held that many for longest. At least
        one place must be held."""
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
            self._most -= 1  # the last address with that many places now holds one less, or none
