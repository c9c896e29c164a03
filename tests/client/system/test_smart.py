"""What is taken from the documents of smartctl and nvme-cli."""

from __future__ import annotations

from typing import Any

import pytest

from durability_client.system.smart import SmartReport, counter_in, report_in

NVME = {
    "power_cycle_count": 41,
    "smart_status": {"passed": True, "nvme": {"value": 0}},
    "nvme_smart_health_information_log": {
        "critical_warning": 0,
        "available_spare": 97,
        "percentage_used": 3,
        "power_cycles": 41,
        "unsafe_shutdowns": 17,
        "media_errors": 2,
    },
}


def attribute(number: int, name: str, *, value: int, raw: int = 0, failed: str = "") -> dict[str, Any]:
    """A row of the table of ATA attributes."""
    return {"id": number, "name": name, "value": value, "when_failed": failed, "raw": {"value": raw}}


def ata(*rows: dict[str, Any], **beside: Any) -> dict[str, Any]:
    """A document of smartctl for a SATA drive."""
    return {"power_cycle_count": 5, "ata_smart_attributes": {"table": list(rows)}, **beside}


def test_an_nvme_drive_says_it_all() -> None:
    """Counters and health come from the health log, capacitors from the C0h log."""
    assert report_in(NVME, {"Capacitor health": 98, "PLP start count": 3}) == SmartReport(
        power_cycles=41,
        unsafe_shutdowns=17,
        media_errors=2,
        spare_percent=97,
        used_percent=3,
        backup_failed=False,
        capacitor_percent=98,
    )


@pytest.mark.parametrize(
    ("warning", "ocp", "failed"),
    [
        (0, {"Capacitor health": 98}, False),
        (0x0F, {"Capacitor health": 98}, False),
        (0x10, {"Capacitor health": 98}, True),
        (0x1C, None, True),
        (0, None, None),
        (0, {}, None),
        (0, {"Capacitor health": 0xFFFF}, None),
        (0, {"Capacitor health": 0}, None),
    ],
)
def test_a_broken_backup_is_the_drives_own_word(warning: int, ocp: Any, failed: bool | None) -> None:
    """A bit of the critical warning reports broken power-loss protection. If it is clear, that means
    something only for a drive that shows that it has such protection."""
    log = {**NVME["nvme_smart_health_information_log"], "critical_warning": warning}  # type: ignore[dict-item]
    assert report_in({**NVME, "nvme_smart_health_information_log": log}, ocp).backup_failed is failed


@pytest.mark.parametrize(
    ("ocp", "percent"),
    [
        ({"Capacitor health": 100}, 100),
        ({"capacitor_health": 250}, 250),
        ({"Capacitor Health": 0xFFFF}, 0),
        ({"Capacitor health": "98"}, None),
        ({}, None),
        (None, None),
        ([1], None),
    ],
)
def test_health_of_the_capacitors(ocp: Any, percent: int | None) -> None:
    """Each spelling of the field is known; FFFFh means that there are none."""
    assert report_in(NVME, ocp).capacitor_percent == percent


def test_a_sata_drive_says_what_its_attributes_mean() -> None:
    """Only attributes in their place and under their name are taken."""
    report = report_in(
        ata(
            attribute(174, "Unexpect_Power_Loss_Ct", value=100, raw=9),
            attribute(187, "Reported_Uncorrect", value=100, raw=1),
            attribute(202, "Percent_Lifetime_Remain", value=88, raw=12),
            attribute(232, "Available_Reservd_Space", value=99),
            attribute(175, "Power_Loss_Cap_Test", value=100, raw=650),
        ),
        None,
    )
    assert report == SmartReport(
        power_cycles=5,
        unsafe_shutdowns=9,
        media_errors=1,
        spare_percent=99,
        used_percent=12,
        backup_failed=False,
    )
    failed = report_in(ata(attribute(175, "Power_Loss_Cap_Test", value=1, failed="now")), None)
    assert failed.backup_failed is True
    other = report_in(ata(attribute(187, "Unknown_Attribute", value=1, raw=1)), None)
    assert other == SmartReport(power_cycles=5)


def test_newer_smartctl_says_endurance_itself() -> None:
    """Endurance and spare values computed by smartctl are preferred to raw attributes."""
    rows = (attribute(202, "Percent_Lifetime_Remain", value=1),)
    document = ata(*rows, endurance_used={"current_percent": 4}, spare_available={"current_percent": 90})
    report = report_in(document, None)
    assert (report.used_percent, report.spare_percent) == (4, 90)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "x",
        {"nvme_smart_health_information_log": []},
        {"power_cycle_count": -1, "ata_smart_attributes": {"table": [None, 3, {"id": 187}]}},
        {"power_cycle_count": True, "ata_smart_attributes": {"table": {}}},
        {"ata_smart_attributes": {"table": [{"id": 174, "name": "Unexpect_Power_Loss_Ct", "raw": 3}]}},
        {"power_cycle_count": 1 << 70, "nvme_smart_health_information_log": {"media_errors": "many"}},
    ],
)
def test_nonsense_is_nothing(document: Any) -> None:
    """A document of another shape says nothing, and is no error."""
    assert report_in(document, None) == SmartReport()
    assert counter_in(document) is None


@pytest.mark.parametrize("count", [-1, 1 << 64, True, 3.5, "3", None])
def test_a_count_that_no_drive_can_have_is_none(count: object) -> None:
    """A number that no count can be would end the command that sends it."""
    assert counter_in({"nvme_smart_health_information_log": {"unsafe_shutdowns": count}}) is None
    row = {**attribute(174, "Unexpect_Power_Loss_Ct", value=100), "raw": {"value": count}}
    assert counter_in(ata(row)) is None


@pytest.mark.parametrize(("power_cycles", "count"), [(0, None), (1, 0), (None, 0)])
def test_a_program_that_counts_no_power_cycles_has_no_counter(
    power_cycles: int | None, count: int | None
) -> None:
    """A drive that a program makes up (nvmet, SPDK, bhyve) has only zeros. A real drive was on once."""
    log = {"power_cycles": power_cycles, "unsafe_shutdowns": 0}
    assert counter_in({"nvme_smart_health_information_log": log}) == count
