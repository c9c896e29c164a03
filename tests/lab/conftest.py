"""What tests of all rooms of the lab share."""

from __future__ import annotations

import random

import pytest


@pytest.fixture
def seed() -> int:
    """Another seed in every test, printed when it fails."""
    value = random.SystemRandom().getrandbits(32)
    print(f"seed {value}")
    return value
