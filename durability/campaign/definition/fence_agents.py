"""Fence agents by what they switch: a physical machine, a guest, or no power.

The drives of a guest or a rented machine may keep their power when it is off, so its cuts prove less. An
agent that is in none of these lists, such as one of a newer release of fence-agents, may be of any kind.
`settings` refuses settings that contradict these lists, and class "power" for an unknown agent.
"""

from __future__ import annotations

# These agents switch the power of a physical machine: BMCs, blade chassis, power distribution units, relays.
METAL_AGENTS = frozenset(
    {
        "fence_alom",
        "fence_amt",
        "fence_amt_ws",
        "fence_apc",
        "fence_apc_snmp",
        "fence_bladecenter",
        "fence_cdu",
        "fence_cisco_ucs",
        "fence_cyberpower_ssh",
        "fence_drac",
        "fence_drac5",
        "fence_eaton_snmp",
        "fence_eaton_ssh",
        "fence_emerson",
        "fence_eps",
        "fence_epsr2",
        "fence_hds_cb",
        "fence_hpblade",
        "fence_ibmblade",
        "fence_idrac",
        "fence_ilo",
        "fence_ilo2",
        "fence_ilo3",
        "fence_ilo3_ssh",
        "fence_ilo4",
        "fence_ilo4_ssh",
        "fence_ilo5",
        "fence_ilo5_ssh",
        "fence_ilo_moonshot",
        "fence_ilo_mp",
        "fence_ilo_ssh",
        "fence_imm",
        "fence_intelmodular",
        "fence_ipdu",
        "fence_ipmilan",
        "fence_ipmilanplus",
        "fence_ironic",
        "fence_lindypdu",
        "fence_netio",
        "fence_powerman",
        "fence_rackswitch",
        "fence_raritan",
        "fence_raritan_px3",
        "fence_rcd_serial",
        "fence_redfish",
        "fence_rsa",
        "fence_rsb",
        "fence_shelly_gen2",
        "fence_tripplite_snmp",
        "fence_wti",
    }
)

# These agents switch a guest, a partition of a larger machine, or a machine in a cloud.
GUEST_AGENTS = frozenset(
    {
        "fence_ahv",
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
        "fence_nova",
        "fence_nutanix_ahv",
        "fence_openstack",
        "fence_ovh",
        "fence_ovh_cloud_rest",
        "fence_ovm",
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
        "fence_aws_vpc",
        "fence_aws_vpc_net",
        "fence_azure_arm_network",
        "fence_brocade",
        "fence_cisco_mds",
        "fence_crosslink",
        "fence_dummy",
        "fence_heuristics_ping",
        "fence_heuristics_resource",
        "fence_ifmib",
        "fence_kdump",
        "fence_mpath",
        "fence_sanbox2",
        "fence_sbd",
        "fence_scsi",
    }
)
