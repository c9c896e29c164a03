"""The campaign file: defaults, each refusal, and that nothing but a UsageError comes of any file."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.bench.decision.proof import BOUND_MAX
from durability.campaign.definition.campaign_file import CUTS, read_campaign
from durability.campaign.definition.settings import Settings
from durability.errors import UsageError
from durability.evidence.strength import upper_bound
from tests.core.campaign.campaign_world import settings_of

LEAST = """
[campaign]
machine = "b"
[power]
fence = "fence_ipmilan"
cut_class = "power"
[[drive]]
device = "/dev/disk/by-id/nvme-EXAMPLE"
"""
FILE_SYSTEM = LEAST + 'file_system = "ext4"\n'
EIGHT_MORE = "".join(f'[[drive]]\ndevice = "/dev/d{number}"\n' for number in range(8))


def read(text: str) -> Settings:
    """The settings of a file called ssd.toml, for which the seed 7 was drawn."""
    return read_campaign(text, name="ssd", seed=7)


def test_defaults_are_filled_in() -> None:
    """A file says machine, switch and drive; the rest is 59 cuts, until a loss, with the default arms."""
    settings = read(FILE_SYSTEM)
    assert (settings.name, settings.machines, settings.cuts, settings.stop_at) == ("ssd", ("b",), 59, "loss")
    assert (settings.seed, settings.cut_after_s, settings.off_s) == (7, (5.0, 90.0), (10.0, 40.0))
    assert (settings.subject, settings.cut_class, settings.notify) == ("machine", "power", "")
    assert [arm.name for arm in settings.arms] == [
        "one-writer",
        "four-writers",
        "direct-dsync",
        "append",
        "rename",
    ]
    (drive,) = settings.drives
    assert (drive.name, drive.machine, drive.is_raw) == ("nvme-EXAMPLE", "b", False)
    assert all(arm.cut_after_s == settings.cut_after_s for arm in settings.arms)


def test_the_default_cuts_prove_a_drive() -> None:
    """Without a loss they bound its probability as a proof takes, and one cut less does not."""
    assert upper_bound(0, CUTS) <= BOUND_MAX < upper_bound(0, CUTS - 1)


def test_raw_drive_has_no_arms_of_names() -> None:
    """Append and rename need a file system."""
    assert [arm.name for arm in read(LEAST).arms] == ["one-writer", "four-writers", "direct-dsync"]


def test_options_of_a_switch_are_kept_as_text() -> None:
    """They are for its agent, which knows them; a flag is said as fence agents say it."""
    settings = read(
        LEAST.replace(
            'cut_class = "power"', 'cut_class = "power"\nip = "192.0.2.9"\nipport = 9623\nlanplus = true'
        )
    )
    (power,) = settings.power
    assert power.options == {"ip": "192.0.2.9", "ipport": "9623", "lanplus": "true"}


def test_arms_inherit_the_times_of_the_campaign() -> None:
    """Times missing in an arm are taken from the campaign's table or the defaults."""
    settings = read(
        FILE_SYSTEM.replace('machine = "b"', 'machine = "b"\noff_s = [1, 2]') + "[[arm]]\nwriters = 4\n"
    )
    (arm,) = settings.arms
    assert (arm.name, arm.writers, arm.off_s, arm.cut_after_s) == ("arm-1", 4, (1.0, 2.0), (5.0, 90.0))


def changed(old: str, new: str, text: str = FILE_SYSTEM) -> str:
    """The file with a part replaced that it has."""
    assert old in text
    return text.replace(old, new)


def more(line: str) -> str:
    """The file with a line more in [campaign]."""
    return changed('machine = "b"', f'machine = "b"\n{line}')


WITHOUT_POWER = FILE_SYSTEM.replace('[power]\nfence = "fence_ipmilan"\ncut_class = "power"\n', "")
REFUSED = {
    "not TOML": ("[campaign", "is not TOML"),
    "unknown key": (more('cutts = 5'), "does not know cutts: is cuts meant?"),
    "unknown table": (FILE_SYSTEM + "[powers]\n", "does not know powers: is power meant?"),
    "unknown key of a drive": (FILE_SYSTEM + "sise = 4\n", "is size meant?"),
    "unknown key of an arm": (FILE_SYSTEM + "[[arm]]\nwriter = 4\n", "is writers meant?"),
    "cuts as text": (more('cuts = "5"'), "a whole number is needed"),
    "cuts as a flag": (more('cuts = true'), "a whole number"),
    "no cuts": (more('cuts = 0'), "cuts is 0"),
    "too many cuts": (more('cuts = 10001'), "cuts is 10001"),
    "seed below 0": (more('seed = -1'), "seed is -1"),
    "interval of one": (more('off_s = [1]'), "has 1 values"),
    "interval of texts": (more('off_s = ["a", "b"]'), "a number is needed"),
    "interval from below 0": (
        FILE_SYSTEM + "[[arm]]\ncut_after_s = [-5, 30]\n",
        "[[arm]] arm-1: cut_after_s is [-5, 30]: shortest, then longest, of 0 to 86400 s",
    ),
    "second off from below 0": (
        FILE_SYSTEM + "[[arm]]\nagain_after_s = [-5, 30]\n",
        "[[arm]] arm-1: again_after_s is [-5, 30]: shortest, then longest, of 0 to 3600 s",
    ),
    "no second off in figures": (FILE_SYSTEM + "[[arm]]\nagain_after_s = [-1, -1]\n", "is [-1, -1]"),
    "interval backwards": (more('off_s = [5, 1]'), "shortest, then longest"),
    "interval of nan": (more('off_s = [nan, 1]'), "a number is needed"),
    "boot_within_s infinite": (more('boot_within_s = inf'), "a number is"),
    "boot_within_s 0": (more('boot_within_s = 0'), "more than 0"),
    "stop_at": (more('stop_at = "never"'), "is not one of loss, end"),
    "machines as text": (changed('machine = "b"', 'machines = "b"'), "a list such as"),
    "machines of numbers": (changed('machine = "b"', "machines = [1]"), "not a list of texts"),
    "no machine": (changed('machine = "b"', ""), "the name '' has other than"),
    "machine twice": (changed('machine = "b"', 'machines = ["b", "b"]'), "two have the name 'b'"),
    "machine without a drive": (
        changed('machine = "b"', 'machines = ["b", "c"]') + 'machine = "b"\n',
        "machine 'c' has no [[drive]]",
    ),
    "drive on another machine": (FILE_SYSTEM + 'machine = "x"\n', "is not in [campaign] machines"),
    "drive of two machines": (changed('machine = "b"', 'machines = ["b", "c"]'), "machine '' is not in"),
    "no drive": (FILE_SYSTEM.partition("[[drive]]")[0], "[[drive]] names 0"),
    "drive twice": (
        FILE_SYSTEM + FILE_SYSTEM[FILE_SYSTEM.index("[[drive]]") :],
        "two have the name 'nvme-EXAMPLE'",
    ),
    "path of two drives": (
        FILE_SYSTEM
        + FILE_SYSTEM[FILE_SYSTEM.index("[[drive]]") :].replace("/dev/", '/dev/./').replace(
            "[[drive]]", '[[drive]]\nname = "again"'
        ),
        "is the path of [[drive]] nvme-EXAMPLE too",
    ),
    "drive and target": (FILE_SYSTEM + 'target = "/mnt/t"\n', "either device or target"),
    "neither": (changed('device = "/dev/disk/by-id/nvme-EXAMPLE"\n', ""), "either device or target"),
    "device elsewhere": (changed("/dev/disk", "/home/disk"), "not below /dev"),
    "relative path": (changed("/dev/disk", "dev/disk"), "not an absolute path"),
    "file system of a target": (
        changed('device = "/dev/disk/by-id/nvme-EXAMPLE"', 'target = "/mnt/t"'),
        "are for a device",
    ),
    "file system": (changed("ext4", "fat"), "is not one of ext4, xfs, btrfs"),
    "no power": (WITHOUT_POWER, "[power] is needed"),
    "two kinds of power": (changed("fence = ", 'tasmota = "x"\nfence = '), "needs one of"),
    "no kind of power": (changed('fence = "fence_ipmilan"', ""), "needs one of"),
    "not an agent": (changed("fence_ipmilan", "rm -rf"), "not a fence agent"),
    "action": (changed("fence = ", 'action = "reboot"\nfence = '), "cannot be set"),
    "password": (changed("fence = ", 'password = "x"\nfence = '), "password_file"),
    "nested option": (changed("fence = ", "ip = [1]\nfence = "), "neither a text"),
    "plain community": (changed("fence = ", 'community = "x"\nfence = '), "community_file"),
    "plain token": (changed("fence = ", 'api_token = "x"\nfence = '), "api_token_file"),
    "user in an option": (changed("fence = ", 'ip = "http://a:b@h"\nfence = '), "username and password_file"),
    "user of a plug": (changed('fence = "fence_ipmilan"', 'tasmota = "a:b@h"'), "password_file"),
    "password of a plug": (
        changed('fence = "fence_ipmilan"', 'shelly = "h"\npassword = "x"'),
        "password_file",
    ),
    "secret news": (
        changed("machine = ", 'notify = "curl -u a:b http://h"\nmachine = '),
        "notify has a secret",
    ),
    "news without an end": (
        changed("machine = ", "notify = \"mail 'x\"\nmachine = "),
        "notify cannot be split into words: No closing quotation",
    ),
    "news without a word": (changed("machine = ", 'notify = "  "\nmachine = '), "notify names no program"),
    "storage": (changed("fence_ipmilan", "fence_scsi"), "leaves it its power"),
    "class of a cloud": (changed("fence_ipmilan", "fence_hetzner_cloud"), '"vm" at most'),
    "class of a guest": (changed("fence_ipmilan", "fence_virsh"), '"vm" at most'),
    "class of an unknown agent": (changed("fence_ipmilan", "fence_unheard_of"), "give commands on, off"),
    "class of another cloud": (changed("fence_ipmilan", "fence_ovh_cloud_rest"), '"vm" at most'),
    "network of a cloud": (changed("fence_ipmilan", "fence_aws_vpc_net"), "leaves it its power"),
    "no class": (changed('cut_class = "power"', ""), "cut_class is missing"),
    "unknown class": (changed('cut_class = "power"', 'cut_class = "all"'), "is not one of power, vm, os"),
    "commands": (changed('fence = "fence_ipmilan"', 'on = "a"\noff = "b"'), "status is missing"),
    "power is a number": ("power = 4\n" + WITHOUT_POWER, "[[power]] is needed"),
    "workload": (FILE_SYSTEM + '[[arm]]\nworkload = "mix"\n', "workload 'mix' is not one of"),
    "names on a raw drive": (LEAST + '[[arm]]\nworkload = "rename"\n', "needs a file system"),
    "size": (FILE_SYSTEM + 'size = "4 pounds"\n', "size: '4 pounds' is not a size"),
    "record size": (FILE_SYSTEM + '[[arm]]\nrecord_size = "0"\n', "record_size is 0"),
    "record size of no sectors": (FILE_SYSTEM + '[[arm]]\nrecord_size = "1000"\n', "a multiple of 512"),
    "long records": (FILE_SYSTEM + '[[arm]]\nrecord_size = "2M"\n', "up to 1MiB"),
    "group of synced writes": (
        FILE_SYSTEM + '[[arm]]\nsync = "dsync"\ngroup = 8\n',
        "sync dsync syncs each write, so it allows no group 8",
    ),
    "no writers": (FILE_SYSTEM + "[[arm]]\nwriters = 0\n", "writers"),
    "no group": (FILE_SYSTEM + "[[arm]]\ngroup = 0\n", "group"),
    "arm twice": (FILE_SYSTEM + '[[arm]]\nname = "a"\n[[arm]]\nname = "a"\n', "two have the name 'a'"),
    "more writers than a machine may have": (
        FILE_SYSTEM + EIGHT_MORE + "[[arm]]\nwriters = 256\n",
        "writers at most 227",
    ),
    "shutdown of a drive": (
        changed("fence = ", 'cuts = "drive"\nfence = ') + '[[arm]]\nmoment = "shutdown"\n',
        "cuts the drive alone",
    ),
}  # fmt: skip


def test_an_unknown_fence_agent_may_switch_a_guest() -> None:
    """An agent that is in no list is accepted for a class that a guest can show."""
    settings = read(FILE_SYSTEM.replace("fence_ipmilan", "fence_unheard_of").replace('"power"', '"vm"'))
    assert (settings.power[0].agent, settings.cut_class) == ("fence_unheard_of", "vm")


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_name_the_key_and_what_is_needed(what: str) -> None:
    """A contradictory, unknown or wrongly typed value is refused with its key and the expected value."""
    text, said = REFUSED[what]
    with pytest.raises(UsageError) as refused:
        read(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "command",
    [
        "curl -u admin:HUSH http://h/off",
        "curl http://admin:HUSH@h/off",
        "curl 'http://h/cm?user=admin&password=HUSH'",
        "curl -H 'Authorization: Bearer HUSH' http://h/off",
        "sh -c \"sh -c 'ipmitool -H h -P HUSH power off'\"",
        "ipmitool -PHUSH power off",
        "snmpset -v1 -c HUSH h 1.3.6 i 1",
        "plug --password HUSH off",
        "plug --api-token=HUSH off",
        "env PLUG_PASSWORD=HUSH plug off",
        "sshpass -p HUSH ssh h off",
        "plug --pw HUSH off",
        "plug --pw=HUSH off",
        "mosquitto_pub -h h -u admin -P HUSH -t plug -m off",
        "mosquitto_pub -h h --pw HUSH -t plug -m off",
        "curl -H 'PRIVATE-TOKEN: HUSH' http://h/off",
        "curl --oauth2-bearer HUSH http://h/off",
        "curl -d 'auth_key=HUSH' http://h/off",
        'curl -d \'{"user": "a", "password": "HUSH"}\' http://h/off',
        "racadm -r h -u root -p HUSH serveraction powerdown",
        "redfishtool -r h -u root -p HUSH Systems reset ForceOff",
        "ipmitool -H h -f /etc/bmc -k HUSH power off",
        "ipmitool -H h -f /etc/bmc -y HUSH power off",
        "snmpset -v3 -u a -A HUSH -X HUSH h 1.3.6 i 1",
    ],
)
def test_a_secret_in_a_command_is_refused_and_not_repeated(command: str) -> None:
    """Settings are stored and exported, so the command must read its secret from a file."""
    with pytest.raises(UsageError) as refused:
        read_commands(command)
    assert "has a secret among its words" in str(refused.value) and "HUSH" not in str(refused.value)


@pytest.mark.parametrize(
    "command",
    [
        "curl --netrc-file /etc/plug http://h/off",
        "ipmitool -H h -f /etc/bmc power off",
        "plug --password-file /etc/plug off",
        "sh -c 'plug --password=$(cat /etc/plug) off'",
        "env PASSWORD_FILE=/etc/plug plug off",
        "curl -u admin http://h/off",
        "ssh root@192.0.2.1 poweroff",
        "sh -c 'grep -q on /run/power || exit 2'",
        "racadm -r h -u root -p $(cat /etc/drac) serveraction powerdown",
        'sh -c \'curl -d {\\"password\\":\\"$P\\"} http://h/off\'',
    ],
)
def test_commands_without_secrets_are_taken(command: str) -> None:
    """Names of files, variables and users are no secrets."""
    assert read_commands(command).power[0].options["off"] == command


def read_commands(off: str) -> Settings:
    """The settings of a file whose switch goes off with this command."""
    commands = f'on = "true"\noff = {json.dumps(off)}\nstatus = "true"'
    return read(FILE_SYSTEM.replace('fence = "fence_ipmilan"', commands))


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("/dev/disk/by-path/pci-0000:00:17.0-ata-1", "pci-0000-00-17.0-ata-1"),
        ("/dev/disk/by-id/usb-Maker_T7_0123-0:0", "usb-Maker_T7_0123-0-0"),
    ],
)
def test_a_drive_without_a_name_has_that_of_its_path(device: str, name: str) -> None:
    """With the characters that a name may have."""
    (drive,) = read(re.sub('device = "[^"]*"', f'device = "{device}"', FILE_SYSTEM)).drives
    assert (drive.name, drive.device) == (name, device)


def test_switches_must_agree() -> None:
    """All switches cut together, so they cut the same."""
    second = '[[power]]\ntasmota = "x"\ncut_class = "vm"\n'
    with pytest.raises(UsageError, match="differs: power, vm"):
        read(FILE_SYSTEM.replace("[power]", "[[power]]") + second)


WORDS = """campaign power drive arm machine machines cuts stop_at seed cut_after_s off_s boot_within_s name
fence tasmota on off status cut_class timeout_s device file_system target size workload writers sync direct
group pattern moment again_after_s idle_s notify x"""
KEYS = st.sampled_from(WORDS.split())
VALUES = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.sampled_from(["b", "power", "drive", "fence_ipmilan", "/dev/sda", "ext4", "load", "dsync", "end"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=6)),
    max_leaves=12,
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=8)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "campaign": st.one_of(TABLES, VALUES),
        "power": st.one_of(TABLES, st.lists(TABLES, max_size=2), VALUES),
        "drive": st.one_of(TABLES, st.lists(TABLES, max_size=2), VALUES),
        "arm": st.one_of(TABLES, st.lists(TABLES, max_size=2), VALUES),
        "x": VALUES,
    },
)


def as_toml(value: Any) -> str:
    """A value as TOML, tables inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {as_toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower()  # TOML has inf, nan and 1e+16 as Python has them


@pytest.mark.slow
@given(DOCUMENTS)
def test_any_file_is_a_campaign_or_a_usage_error(document: dict[str, Any]) -> None:
    """Any campaign file is either valid or gives a UsageError."""
    try:
        read("\n".join(f"{key} = {as_toml(value)}" for key, value in document.items()))
    except UsageError as error:
        assert str(error)


@given(st.text())
def test_any_text_is_a_usage_error(text: str) -> None:
    """A text that is not TOML, or says nothing, is refused."""
    with pytest.raises(UsageError):
        read(text)


def test_a_switch_names_one_machine_or_several() -> None:
    """One table has either key; machines that a switch shares are those it names, or all."""
    settings = settings_of(drives=("b", "c", "d"), own=True, group=True)
    assert [power.machines for power in settings.power] == [("b", "c"), ("d",)]
    assert [settings.power[0].has(machine) for machine in "bcd"] == [True, True, False]
    with pytest.raises(UsageError, match="has machine and machines"):
        read(FILE_SYSTEM.replace("[power]", '[power]\nmachine = "b"\nmachines = ["b"]'))
    with pytest.raises(UsageError, match="machine 'x', which is not in"):
        read(FILE_SYSTEM.replace("[power]", '[power]\nmachines = ["b", "x"]'))
