"""Options that fit a fence agent's metadata, and still do not mean what they say."""

from __future__ import annotations

import pytest

from durability_server.power import fence_metadata

METADATA = fence_metadata.parse(
    """<resource-agent name="fence_x"><parameters>
<parameter name="ip" required="1"><content type="string"/></parameter>
<parameter name="plug"><content type="string"/></parameter>
<parameter name="ssl_insecure"><content type="boolean"/></parameter>
<parameter name="lanplus"><content type="boolean" default="1"/></parameter>
</parameters><actions><action name="on"/><action name="off"/><action name="status"/></actions>
</resource-agent>"""
)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"ssl_insecure": "true"}, ""),
        ({"ssl_insecure": "false"}, "ssl_insecure is 'false', and agents take it for true: leave it out"),
        ({"ssl_insecure": "0"}, "ssl_insecure is '0', and agents take it for true: leave it out"),
        ({"lanplus": "false"}, ""),
        ({"lanplus": "maybe"}, "lanplus is 'maybe', expected true or false"),
        ({"plug": "4"}, ""),
        ({"plug": "4,5"}, "plug is '4,5': write a table [[power]] for each outlet"),
    ],
)
def test_a_value_is_refused_that_agents_take_otherwise(options: dict[str, str], problem: str) -> None:
    """A value is refused if a fence agent would read it in another way: agents look only for the presence of
    some options, and split outlets at commas."""
    found = fence_metadata.problems({"ip": "192.0.2.9", **options}, METADATA)
    assert found == ([problem] if problem else [])
