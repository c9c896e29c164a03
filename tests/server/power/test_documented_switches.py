"""Each example of the page on power switches is a table that works."""

from __future__ import annotations

import re
import subprocess

import pytest

from durability.campaign.definition.campaign_file import read_campaign
from durability.campaign.definition.settings import Power
from durability_server.power import exchange, fence_metadata, switches
from tests.places import REFERENCE

EXAMPLES = re.findall(r"```toml\n(.*?)```", (REFERENCE / "power-switches.md").read_text(), re.DOTALL)
FENCE = [example for example in EXAMPLES if "fence =" in example]


def _power(example: str) -> Power:
    drive = '[[drive]]\ndevice = "/dev/disk/by-id/x"\nfile_system = "ext4"'
    text = f'[campaign]\nmachine = "b"\n{example}\n{drive}\n'
    (power,) = read_campaign(text, name="example", seed=1).power
    return power


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_taken(example: str) -> None:
    """A campaign file with the example is read, and its options make a command."""
    switch = exchange.SwitchAccess.of(_power(example))
    assert switches.identity(switch)
    if switch.kind != "fence":
        without_secrets = {key: text for key, text in switch.options.items() if key != "password_file"}
        plain = exchange.SwitchAccess(
            kind=switch.kind, agent=switch.agent, options=without_secrets, timeout_s=switch.timeout_s
        )
        for action in ("on", "off", "status"):
            assert switches.command(plain, action, _no_metadata).argv


@pytest.mark.usefixtures("fence_agents")
@pytest.mark.parametrize("example", FENCE)
def test_an_example_of_a_fence_agent_fits_its_metadata(example: str) -> None:
    """The options of the example are those that the agent has."""
    power = _power(example)
    said = subprocess.run(
        [switches.agent_path(power.agent)],
        input="action=metadata\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert fence_metadata.problems(power.options, fence_metadata.parse(said)) == []


def test_all_kinds_have_an_example() -> None:
    """There is an example for each kind, and for IPMI, Redfish and SNMP."""
    powers = [_power(example) for example in EXAMPLES]
    assert {power.kind for power in powers} == {"fence", "tasmota", "shelly", "commands"}
    assert [power.agent for power in powers][:3] == ["fence_ipmilan", "fence_redfish", "fence_apc_snmp"]


def _no_metadata() -> fence_metadata.Metadata:
    raise AssertionError
