// What this provider says of itself. Everything else follows from it.
import { createHash } from "node:crypto";
import { arch } from "node:process";

// TIER is "minimum": no mounts, no reads, no optional members. There is no other.
export const NAME = "example-typescript";
export const TIER = "minimum";

/** The mode that run gives. Who is not root has other claims to make. */
export const ROOTLESS = process.argv[2] === "rootless";
// The one image is the host's own system. It has no bytes of its own to digest;
// the constant stands for "whatever this host has", and the README says so.
export const IMAGE = "host@sha256:" + createHash("sha256").update("the system of the host, as it is").digest("hex");

const ATTESTED = "provider_attested", NOT = "not_enforced";

/** @type {Wire.Capabilities} */
export const CAPABILITIES = {
  provider: NAME,
  // A revision has one envelope: what root can do and others cannot is another.
  provider_revision: "1-" + TIER + (ROOTLESS ? "-rootless" : ""),
  materialization_revision: "host-1",
  placement: "local",
  tiers: ["container"],
  platforms: [{ os: "linux", architecture: arch === "x64" ? "amd64" : arch }],
  image_mode: "fixed",
  fixed_base_images: [IMAGE],
  package_managers: [],
  network_modes: ["none"],
  retention_modes: ["ephemeral_zdr"],
  snapshots: false,
  enforcement: {
    sandbox_isolation: ATTESTED, // namespaces
    root_read_only: ATTESTED,
    non_root: ATTESTED, // uid 1000 in a user namespace of its own
    no_new_privileges: ATTESTED,
    capabilities_dropped: ATTESTED,
    mounts_sealed: ATTESTED, // there are none
    disk_limit: ATTESTED, // a tmpfs of that size
    network_policy: ATTESTED, // a network namespace with loopback alone
    resource_limits: NOT, // limits of each process, not of the machine
  },
  egress_certification: "unsupported",
  minimum_resources: { cpu_millis: 1, memory_bytes: 1 << 20, disk_bytes: 1 << 20, max_processes: 1, max_duration_seconds: 1 },
  maximum_resources: { cpu_millis: 64000, memory_bytes: 2 ** 36, disk_bytes: 2 ** 36, max_processes: 32768, max_duration_seconds: 86400 },
  max_mounts: 0,
};

// Without snapshots none of their members is named; they refuse in the contract's words.
/** @type {Wire.Info} */
export const WIRE = {
  revision: "checkfu.sandbox-wire.v1",
  members: ["capabilities", "provision", "write_file", "activate", "execute", "read_file", "release", "destroy", "destroy_snapshot", "cleanup"],
  limits: { max_wait_ms: 20000 },
  async_operations: false,
};
