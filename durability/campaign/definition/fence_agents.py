"""Fence agents that switch guests, and fence agents that switch no power.

The drives of a guest or a rented machine may keep their power when it is off, so its cuts prove less. An
agent that is not listed here is assumed to switch the power of a physical machine. `settings` refuses
settings that contradict these lists.
"""

from __future__ import annotations

# These agents switch a guest, a partition of a larger machine, or a machine in a cloud.
GUEST_AGENTS = frozenset(
    {
        "fence_aliyun",
        "fence_aws",
        "fence_azure_arm",
        "fence_compute",
        "fence_docker",
        "fence_ecloud",
        "fence_evacuate",
        "fence_gce",
        "fence_hetzner_cloud",
        "fence_ibm_powervs",
        "fence_ibm_vpc",
        "fence_ibmz",
        "fence_kubevirt",
        "fence_ldom",
        "fence_lpar",
        "fence_nutanix_ahv",
        "fence_openstack",
        "fence_ovh",
        "fence_pve",
        "fence_rhevm",
        "fence_skalar",
        "fence_vbox",
        "fence_virsh",
        "fence_virt",
        "fence_vmware",
        "fence_vmware_rest",
        "fence_vmware_soap",
        "fence_vmware_vcloud",
        "fence_xenapi",
        "fence_xvm",
        "fence_zvm",
        "fence_zvmip",
    }
)

# These agents take away storage or network, ask people, or do nothing.
POWERLESS_AGENTS = frozenset(
    {
        "fence_ack_manual",
        "fence_brocade",
        "fence_cisco_mds",
        "fence_crosslink",
        "fence_dummy",
        "fence_heuristics_ping",
        "fence_ifmib",
        "fence_kdump",
        "fence_mpath",
        "fence_sanbox2",
        "fence_sbd",
        "fence_scsi",
    }
)
