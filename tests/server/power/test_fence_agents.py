"""Real fence agents: the contract with `fence_dummy`, then real protocols: IPMI, Redfish, SNMP."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from durability.campaign.definition.settings import Power
from durability_lab.support.bmc import Bmc
from durability_server.power import fence_metadata
from durability_server.power.controller import Controller
from tests.server.power.devices import hung, power, redfish_bmc, secret_file, snmp_pdu
from tests.waiting import wait_for

pytestmark = [pytest.mark.usefixtures("fence_agents"), pytest.mark.slow]

PASSWORD = "correct-horse"
COMMUNITY = "very-private"

# What a BMC switches: a state in a file, unless it is told to lie (say yes, do nothing) or to hang.
CHASSIS = """#!/bin/sh
cd {directory}
echo "$@" >> calls
if [ -e hangs ]; then echo $$ > hanging; exec sleep 1000; fi
case $1 in
    get) echo power:$(cat state) ;;
    set) [ -e lies ] || echo $3 > state ;;
esac
"""


class Machine:
    """A machine behind a BMC."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.chassis = directory / "machine"
        self.chassis.write_text(CHASSIS.format(directory=directory))
        self.chassis.chmod(0o755)
        (directory / "state").write_text("1")

    @property
    def is_on(self) -> bool:
        return (self.directory / "state").read_text().strip() == "1"

    def has(self, vice: str) -> None:
        """From now on it `lies` or `hangs`."""
        (self.directory / vice).touch()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "bmc").mkdir()
    return Machine(tmp_path / "bmc")


@pytest.fixture
def bmc(machine: Machine) -> Iterator[Bmc]:
    with Bmc(machine.directory, chassis=machine.chassis, password=PASSWORD) as bmc:
        yield bmc
    hanging = machine.directory / "hanging"
    if hanging.exists():
        os.kill(int(hanging.read_text()), signal.SIGKILL)


@pytest.fixture
def ipmi(bmc: Bmc, tmp_path: Path) -> Power:
    """The switch that is the BMC."""
    password = secret_file(tmp_path, PASSWORD)
    return power("fence", "fence_ipmilan", **bmc.options, password_file=password, power_timeout="60")


async def outcomes(controller: Controller, switch: Power, *operations: str) -> list[str]:
    """Those of one request after the other."""
    answers = [await controller.ask(switch, operation) for operation in operations]  # type: ignore[arg-type]
    assert not any(PASSWORD in answer.text or COMMUNITY in answer.text for answer in answers), answers
    return [answer.outcome for answer in answers]


async def test_the_contract_of_fence_agents(controller: Controller, tmp_path: Path) -> None:
    """On and off are done, also where nothing is to do; status says which; what fails has failed."""
    switch = power("fence", "fence_dummy", status_file=str(tmp_path / "state"))
    asked = ("check", "on", "on", "status", "off", "off", "status", "check")
    assert await outcomes(controller, switch, *asked) == [
        *("off", "done", "done", "on"),
        *("done", "done", "off", "off"),
    ]
    (tmp_path / "state").write_text("neither")
    assert await outcomes(controller, switch, "status", "off") == ["failed", "failed"]


@pytest.mark.parametrize("name", [" spaces ", '"quoted"', "a=b", "#", "ä€"])
async def test_values_reach_an_agent_as_they_are(controller: Controller, tmp_path: Path, name: str) -> None:
    """Spaces and quotes at the ends of a value survive what agents do to their lines."""
    switch = power("fence", "fence_dummy", status_file=f"{tmp_path}/{name}")
    assert await outcomes(controller, switch, "on") == ["done"]
    assert (tmp_path / name).read_text() == "on"


@pytest.mark.parametrize(
    ("agent", "options", "text"),
    [
        ("fence_dummy", {"statusfile": "x"}, "no option statusfile: did you mean status_file?"),
        ("fence_dummy", {"random_sleep_range": "1", "delay": "soon"}, "delay is 'soon', expected a number"),
        ("fence_ipmilan", {"ip": "a", "lanplus": "perhaps"}, "lanplus is 'perhaps', expected true or false"),
        ("fence_ipmilan", {"ip": "a", "auth": "md6"}, "auth is 'md6', expected one of md5, password, none"),
        ("fence_apc_snmp", {}, "needs the option ip; the agent needs the option plug"),
        ("fence_apc_snmp", {"ipaddr": "a", "port": "1", "debug_file": "/x"}, "write secrets into a log"),
        ("fence_ovh", {}, "the agent cannot do status"),
        ("fence_ack_manual", {}, "fence_ack_manual does not say what its options are"),
        ("fence_nonsuch", {}, "install the package fence-agents (Debian 12), or where each agent has a"),
    ],
)
async def test_check_finds_what_does_not_fit(
    controller: Controller, agent: str, options: dict[str, str], text: str
) -> None:
    """Check says which option is unknown, missing or has no such value, and what is not installed."""
    answer = await controller.ask(power("fence", agent, **options), "check")
    assert answer.outcome == "failed"
    assert text in answer.text


async def test_check_of_many_wrong_options_is_short(controller: Controller) -> None:
    """Each wrong option may list all that the agent has, and a campaign's log takes no text of any length."""
    switch = power("fence", "fence_ipmilan", **{f"{number}zzzzzz": "x" for number in range(40)})
    answer = await controller.ask(switch, "check")
    assert answer.outcome == "failed"
    assert "no option 0zzzzzz" in answer.text
    assert len(answer.text) <= 2001


def test_metadata_of_all_agents_is_understood() -> None:
    """The metadata of every installed agent has parameters, and its actions are found."""
    agents = sorted(Path("/usr/sbin").glob("fence_*"))
    for agent in agents:
        if agent.name in {"fence_ack_manual", "fence_kdump_send", "fence_virtd"}:
            continue  # these are no agents
        document = subprocess.run(
            [agent], input="action=metadata\n", capture_output=True, text=True, check=True
        ).stdout
        metadata = fence_metadata.parse(document)
        assert metadata.parameters and "metadata" in metadata.actions, agent


async def test_a_bmc_switches(controller: Controller, ipmi: Power, machine: Machine) -> None:
    """Through fence_ipmilan and ipmitool, IPMI turns the machine off and on."""
    assert await outcomes(controller, ipmi, "check", "off") == ["on", "done"]
    assert not machine.is_on
    assert await outcomes(controller, ipmi, "status", "on", "status") == ["off", "done", "on"]
    assert machine.is_on


async def test_a_bmc_that_does_nothing_has_failed(
    controller: Controller, ipmi: Power, machine: Machine
) -> None:
    """A BMC that takes `off` and leaves the power on is found out by the agent."""
    machine.has("lies")
    switch = replace(ipmi, options={**ipmi.options, "power_timeout": "5"})
    answer = await controller.ask(switch, "off")
    assert (answer.outcome, machine.is_on) == ("failed", True)
    assert "Timed out waiting to power OFF" in answer.text
    assert await outcomes(controller, ipmi, "status") == ["on"]


async def test_a_bmc_that_hangs_fails_in_time(
    controller: Controller, ipmi: Power, bmc: Bmc, machine: Machine, tmp_path: Path
) -> None:
    """A BMC that hangs fails the request in its time, and the ipmitool that asked it is gone then."""
    machine.has("hangs")
    password = ipmi.options["password_file"]
    switch = power("fence", "fence_ipmilan", **bmc.options, password_file=password)
    text = await hung(controller, switch, "off", (machine.directory / "hanging").exists)
    assert "no answer within 5 s" in text
    assert not ipmitools(bmc)


async def test_a_bmc_that_is_gone_and_comes_back(controller: Controller, ipmi: Power, bmc: Bmc) -> None:
    """A BMC that does not answer fails the request; once it answers, it can be asked again."""
    bmc.kill()
    assert await outcomes(controller, ipmi, "status") == ["failed"]
    bmc.start()
    assert await outcomes(controller, ipmi, "status") == ["on"]


async def test_a_wrong_password_of_a_bmc(
    controller: Controller, bmc: Bmc, machine: Machine, tmp_path: Path
) -> None:
    """With a wrong password nothing is switched, and check says so."""
    wrong = secret_file(tmp_path, "wrong horse")
    switch = power("fence", "fence_ipmilan", **bmc.options, password_file=wrong)
    for operation in ("check", "off"):
        answer = await controller.ask(switch, operation)
        assert answer.outcome == "failed"
        assert "wrong horse" not in answer.text
    assert machine.is_on


async def test_a_controller_killed_while_a_bmc_is_asked(
    controller: Controller, ipmi: Power, bmc: Bmc, machine: Machine
) -> None:
    """SIGKILL of the controller while ipmitool waits for the BMC: agent and ipmitool are gone before the
    next request begins."""
    machine.has("hangs")
    asked = asyncio.create_task(controller.ask(ipmi, "off"))
    await asyncio.to_thread(wait_for, lambda: bool(ipmitools(bmc)))
    begun = ipmitools(bmc)
    assert controller.process is not None
    os.kill(controller.process, signal.SIGKILL)
    assert (await asked).outcome == "failed"
    next_one = power("fence", "fence_ipmilan", **bmc.options, password_file="/does/not/exist")
    assert "cannot be read" in (await controller.ask(next_one, "on")).text  # it had its turn
    assert begun.isdisjoint(ipmitools(bmc))


async def test_redfish(controller: Controller, tmp_path: Path) -> None:
    """Through fence_redfish, sushy's emulator of a BMC goes on and off; a wrong password fails."""
    with redfish_bmc(tmp_path, username="admin", password=PASSWORD) as options:
        password = secret_file(tmp_path, PASSWORD)
        switch = power("fence", "fence_redfish", **options, password_file=password, power_timeout="60")
        assert await outcomes(controller, switch, "on", "check", "off", "status") == [
            *("done", "on"),
            *("done", "off"),
        ]
        wrong = secret_file(tmp_path, "wrong")
        refused = power("fence", "fence_redfish", **options, password_file=wrong)
        assert await outcomes(controller, refused, "check", "on") == ["failed", "failed"]


async def test_an_snmp_pdu(controller: Controller, tmp_path: Path) -> None:
    """Through fence_apc_snmp, one outlet of snmpsim's PDU goes off and on, and the other stays."""
    with snmp_pdu(tmp_path, community=COMMUNITY, outlets=2) as options:
        community = secret_file(tmp_path, COMMUNITY)
        one, two = (
            power("fence", "fence_apc_snmp", **options, plug=plug, community_file=community) for plug in "12"
        )
        assert await outcomes(controller, one, "check", "off", "status") == ["on", "done", "off"]
        assert await outcomes(controller, two, "status") == ["on"]
        assert await outcomes(controller, one, "on", "status") == ["done", "on"]
        wrong = secret_file(tmp_path, "public")
        refused = power("fence", "fence_apc_snmp", **options, plug="1", community_file=wrong)
        assert await outcomes(controller, refused, "check") == ["failed"]


def ipmitools(bmc: Bmc) -> set[int]:
    """The processes of ipmitool that ask this BMC."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"ipmitool") and str(bmc.port).encode() in words:
                found.add(int(entry.name))
    return found
