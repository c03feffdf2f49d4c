"""What this provider says of itself. Everything else follows from it."""
import hashlib
import os
import platform

# TIER is "minimum": no mounts, no reads, no optional members; "day-one", which has
# them; or "durable", which has snapshots too.
NAME = "example-python"
TIER = "day-one"

DAY_ONE, DURABLE = TIER != "minimum", TIER == "durable"
ROOTLESS = os.geteuid() != 0
# A revision has one envelope: what root can do and others cannot is another.
REVISION = "1-" + TIER + ("-rootless" if ROOTLESS else "")
# The one image is the host's own system. It has no bytes of its own to digest;
# the constant stands for "whatever this host has", and the README says so.
IMAGE = "host@sha256:" + hashlib.sha256(b"the system of the host, as it is").hexdigest()

ATTESTED, NOT = "provider_attested", "not_enforced"
CAPABILITIES = {
    "provider": NAME,
    "provider_revision": REVISION,
    "materialization_revision": "host-1",
    "placement": "local",
    "tiers": ["container"],
    "platforms": [{"os": "linux", "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "unknown")}],
    "image_mode": "fixed",
    "fixed_base_images": [IMAGE],
    "package_managers": [],
    "network_modes": ["none"],
    "retention_modes": ["ephemeral_zdr"],
    "snapshots": False,
    "enforcement": {
        "sandbox_isolation": ATTESTED,  # namespaces
        "root_read_only": ATTESTED,
        "non_root": ATTESTED,  # uid 1000 in a user namespace of its own
        "no_new_privileges": ATTESTED,
        "capabilities_dropped": ATTESTED,
        "mounts_sealed": ATTESTED,  # read-only binds
        "disk_limit": NOT if ROOTLESS else ATTESTED,  # a tmpfs of that size
        "network_policy": ATTESTED,  # a network namespace with loopback alone
        "resource_limits": NOT,  # limits of each process, not of the machine
    },
    "egress_certification": "unsupported",
    "minimum_resources": {"cpu_millis": 1, "memory_bytes": 1 << 20, "disk_bytes": 1 << 20, "max_processes": 1, "max_duration_seconds": 1},
    "maximum_resources": {
        "cpu_millis": 64000, "memory_bytes": 1 << 36, "disk_bytes": 1 << 36, "max_processes": 32768, "max_duration_seconds": 86400,
    },
    "max_mounts": 64 if DAY_ONE else 0,
}
if DURABLE:  # on the disk of this host, so they are as safe as the Runner's own
    CAPABILITIES["retention_modes"].append("durable")
    CAPABILITIES.update(snapshots=True, snapshot_clone=True)
# Without snapshots none of their members is named; they refuse in the contract's words.
MEMBERS = [
    "capabilities", "provision", "write_file", "activate", "execute", "read_file", "release", "destroy", "destroy_snapshot", "cleanup",
]
MEMBERS += ["read_files", "list_dir", "open_process"] if DAY_ONE else []
MEMBERS += ["snapshot", "clone_snapshot", "resume"] if DURABLE else []
if DAY_ONE:  # what is not offered is left out: the digest is of the shortest envelope
    CAPABILITIES["list_dir"] = True
MAX_WAIT_MS, OUTPUT_WINDOW, INPUT_BUFFER = 20000, 8 << 20, 256 << 10
WIRE = {
    "revision": "checkfu.sandbox-wire.v1",
    "members": MEMBERS,
    "limits": {"max_wait_ms": MAX_WAIT_MS},
    "async_operations": False,
}
if DAY_ONE:
    WIRE["limits"].update(output_window_bytes=OUTPUT_WINDOW, input_buffer_bytes=INPUT_BUFFER)
