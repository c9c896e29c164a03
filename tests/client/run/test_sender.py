"""How often the sender looks at the shared state."""

from __future__ import annotations

import pytest

from durability_client.run.sender import poll_s


@pytest.mark.parametrize(
    ("writers", "processors", "pause_s"),
    [
        (1, 2, 0.0001),
        (15, 16, 0.0001),
        (1, 1, 0.0004),
        (4, 2, 0.0004),
        (16, 16, 0.0004),
        (8, 2, 0.0008),
        (16, 2, 0.001),
        (256, 1, 0.001),
    ],
)
def test_the_pause_grows_with_the_writers_of_each_processor(
    writers: int, processors: int, pause_s: float
) -> None:
    """It is 0.1 ms with a processor to spare, and never above 1 ms."""
    assert poll_s(writers, processors) == pytest.approx(pause_s)
