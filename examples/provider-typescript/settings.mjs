// What this provider says of itself. Everything else follows from it.
import { createHash } from "node:crypto";
import { arch } from "node:process";

// TIER is "minimum": no mounts, no reads, no optional members; "day-one", which has
// them; or "durable", which has snapshots too.
export const NAME = "example-typescript";
export const TIER = "day-one";

/** @type {string} */
const tier = TIER;
export const DAY_ONE = tier !== "minimum", DURABLE = tier === "durable";

/** The mode that run gives. Who is not root has other claims to make. */
export const ROOTLESS = process.argv[2] === "rootless";
/** Of the command, inside. */
export const USER = 1000;
/** Who the workload is, outside. Nobody else has this number. */
export const OWNER = ROOTLESS ? 0 : 102000;
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
  retention_modes: ["ephemeral_zdr", ...(DURABLE ? ["durable"] : [])],
  snapshots: DURABLE,
  enforcement: {
    sandbox_isolation: ATTESTED, // namespaces
    root_read_only: ATTESTED,
    non_root: ATTESTED, // uid 1000 in a user namespace of its own
    no_new_privileges: ATTESTED,
    capabilities_dropped: ATTESTED,
    mounts_sealed: ATTESTED, // read-only binds
    disk_limit: ATTESTED, // a tmpfs of that size
    network_policy: ATTESTED, // a network namespace with loopback alone
    resource_limits: NOT, // limits of each process, not of the machine
  },
  egress_certification: "unsupported",
  minimum_resources: { cpu_millis: 1, memory_bytes: 1 << 20, disk_bytes: 1 << 20, max_processes: 1, max_duration_seconds: 1 },
  maximum_resources: { cpu_millis: 64000, memory_bytes: 2 ** 36, disk_bytes: 2 ** 36, max_processes: 32768, max_duration_seconds: 86400 },
  max_mounts: DAY_ONE ? 64 : 0,
  // What is not offered is left out: the digest is of the shortest envelope. Snapshots
  // lie on the disk of this host, which is as safe as the Runner's own.
  ...(DAY_ONE ? { list_dir: true } : {}),
  ...(DURABLE ? { snapshot_clone: true } : {}),
};

/** What is kept of the output of a live process, and of its input on the way, in bytes. */
export const OUTPUT_WINDOW = 16 << 20, INPUT_BUFFER = 256 << 10;
/** How long a request may ask to be held, in milliseconds. */
export const MAX_WAIT_MS = 20000;

// Without snapshots none of their members is named; they refuse in the contract's words.
/** @type {Wire.Info} */
export const WIRE = {
  revision: "checkfu.sandbox-wire.v1",
  members: [
    "capabilities", "provision", "write_file", "activate", "execute", "read_file", "release", "destroy", "destroy_snapshot", "cleanup",
    ...(DAY_ONE ? ["read_files", "list_dir", "list_project_dir", "open_process"] : []),
    ...(DURABLE ? ["snapshot", "clone_snapshot", "resume"] : []),
  ],
  limits: { max_wait_ms: MAX_WAIT_MS, ...(DAY_ONE ? { output_window_bytes: OUTPUT_WINDOW, input_buffer_bytes: INPUT_BUFFER } : {}) },
  async_operations: false,
};
