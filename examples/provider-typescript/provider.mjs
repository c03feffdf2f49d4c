// The members of the contract, as this provider serves them. Each takes a Call and
// returns its answer.
import { randomBytes } from "node:crypto";

import { canonical, digest, frame, output, unescape } from "./codec.mjs";
import * as contained from "./contained.mjs";
import { Failure, conflict, failed, invalid, unavailable } from "./failure.mjs";
import { Instance } from "./instance.mjs";
import { now } from "./machine.mjs";
import { OUTPUTS } from "./root.mjs";
import { CAPABILITIES, IMAGE, WIRE } from "./settings.mjs";

/** @typedef {import("./journal.mjs").Operation} Operation */

/**
 * One request, after everything about its form was checked.
 * @template T
 * @typedef {object} Call
 * @property {string} endpoint
 * @property {string} leaseId
 * @property {number} leaseEpoch
 * @property {T} request
 * @property {Buffer} data of a framed one
 * @property {Operation} [operation] where it changes something
 */

/** An answer of frames. */
export class Framed {
  /** @param {Buffer[]} frames */
  constructor(...frames) {
    this.body = Buffer.concat(frames);
  }
}

const MAX_FRAME_DATA = (1 << 20) - 8;

/** @param {number} type @param {Buffer} content */
function streamed(type, content) {
  const frames = [];
  for (let at = 0; at < content.length; at += MAX_FRAME_DATA) frames.push(output(type, at, content.subarray(at, at + MAX_FRAME_DATA)));
  return Buffer.concat(frames);
}

const { provider, provider_revision, materialization_revision, placement } = CAPABILITIES;
const TARGET = { provider, provider_revision, materialization_revision, placement };

/** All instances. */
export class Provider {
  /** @type {Map<string, Instance>} */
  instances = new Map();

  /**
   * @param {string} state its directory
   * @param {string} root of its machines
   * @param {(leaseId: string) => number} epochOf the highest epoch of a lease
   */
  constructor(state, root, epochOf) {
    this.state = state;
    this.root = root;
    this.epochOf = epochOf;
  }

  // --- what calls have in common ---

  /**
   * The instance that a call names, which proves that its caller has it.
   * @param {Call<{ instance_id: string }>} call
   * @param {Wire.State} [state] that it has to be in
   */
  named(call, state) {
    const { instance_id } = call.request, instance = this.instances.get(instance_id);
    if (!instance) throw new Failure("SandboxInstanceNotFound", { instance_id });
    const { lease_id, expires_at, state: has } = instance.value;
    if (lease_id !== call.leaseId) throw new Failure("WireLeaseFenced", { lease_epoch: this.epochOf(lease_id) });
    for (const operation of instance.handoffs.splice(0)) operation.owned = true;
    if (state && has !== state) throw conflict(state, has);
    if (now() >= expires_at && call.endpoint !== "release" && call.endpoint !== "snapshot") throw conflict("before expires_at " + expires_at, "expired");
    instance.seen = now();
    return instance;
  }

  /** Destroys an instance, if there is one. @param {string} id */
  async take(id) {
    await this.instances.get(id)?.end();
    this.instances.delete(id);
  }

  async close() {
    await Promise.all([...this.instances.keys()].map((id) => this.take(id)));
  }

  /**
   * An allocation that is the caller's once it names it.
   * @template T
   * @param {Call<unknown>} call
   * @param {T} value
   * @param {Instance} [instance]
   */
  handoff(call, value, instance) {
    const { operation } = call;
    if (!operation) throw failed("provider_error"); // each of these endpoints is journaled
    if (instance) {
      instance.handoffs.push(operation);
      operation.instance = instance.id;
      operation.undo = () => this.take(instance.id);
    }
    return { value, rollback: { operation_id: operation.id } };
  }

  // --- the members ---

  capabilities() {
    return { capabilities: CAPABILITIES, wire: WIRE };
  }

  /** @param {Call<Wire.ProvisionRequest>} call */
  async provision(call) {
    const { request } = call;
    if (request.lease_id !== call.leaseId) throw new Failure("WireMalformed", { pointer: "lease_id" });
    if (request.lease_epoch !== call.leaseEpoch) throw new Failure("WireMalformed", { pointer: "lease_epoch" });
    admit(request);
    const { base_image, packages } = request.profile;
    const instance = new Instance(this.state, this.root, {
      ...request, instance_id: "inst-" + randomBytes(16).toString("hex"), provider, placement, state: "provisioning", output_path: OUTPUTS,
      materialization: {
        profile_digest: digest(canonical({ base_image, packages })), image_reference: request.root_image,
        image_digest: request.root_image.slice(request.root_image.lastIndexOf("@") + 1), provider_revision, materialization_revision,
      },
    });
    await instance.begin();
    this.instances.set(instance.id, instance);
    return this.handoff(call, instance.value, instance);
  }

  /** @param {Call<Wire.FileCall>} call */
  write_file(call) {
    const { path, symlink, executable = false } = call.request, raw = clean("path", path), instance = this.named(call);
    if (symlink !== undefined) throw invalid("symlink: symlink_staging is not offered");
    if (!path.startsWith(OUTPUTS + "/")) throw failed("outside_root", path); // there are no mounts
    if (instance.gone) throw failed("instance_lost");
    contained.write(`${instance.disk}/outputs`, parts(raw).slice(parts(Buffer.from(OUTPUTS)).length), call.data, executable, path);
    return {};
  }

  /** @param {Call<Wire.InstanceRequest>} call */
  activate(call) {
    const instance = this.named(call, "provisioning");
    instance.value = { ...instance.value, state: "active" };
    return this.handoff(call, instance.value, instance);
  }

  /** @param {Call<Wire.ExecuteCall>} call */
  async execute(call) {
    const { command } = call.request;
    checkProgram(command);
    const instance = this.named(call, "active"), longest = instance.value.profile.resource_limits.max_duration_seconds;
    if (command.timeout_seconds > longest) throw unavailable("resources", `timeout_seconds ${command.timeout_seconds}`, `max_duration_seconds ${longest}`);
    const { stdout, stderr, result } = await instance.execute(command, call.data);
    return new Framed(streamed(0x11, stdout), streamed(0x12, stderr), frame(1, Buffer.from(canonical(result))));
  }

  /** @param {Call<Wire.ReadFileRequest>} call */
  read_file(call) {
    checkRead(call.request.path, call.request.allowed_root);
    this.named(call, "active");
    throw unavailable("physically_contained_file_read", "a contained read", "none");
  }

  /** @param {Call<Wire.InstanceRequest>} call */
  snapshot(call) {
    this.named(call, "active");
    throw new Failure("SandboxSnapshotForbidden", { instance_id: call.request.instance_id }); // all is zero retention here
  }

  clone_snapshot() {
    throw unavailable("snapshot_clone");
  }

  resume() {
    throw unavailable("snapshots");
  }

  /** @param {Call<Wire.ReleaseRequest>} call */
  async release(call) {
    const instance = this.named(call, "active");
    if (call.request.expires_at !== undefined) throw invalid("expires_at: expected none with zero retention");
    await this.take(instance.id);
    return this.handoff(call, { disposition: "destroyed" });
  }

  /** @param {Call<Wire.InstanceRequest>} call */
  async destroy(call) {
    await this.take(call.request.instance_id);
    return {};
  }

  destroy_snapshot() {
    return {};
  }

  /** @param {Call<Wire.CleanupRequest>} call */
  async cleanup(call) {
    const { request } = call;
    checkCutoff(request);
    const gone = [...this.instances.values()].filter((instance) => {
      const { expires_at, lease_id, lease_epoch } = instance.value;
      return request.now >= expires_at || (this.epochOf(lease_id) > lease_epoch && instance.seen < request.orphaned_before);
    }).map((instance) => instance.id).sort();
    await Promise.all(gone.map((id) => this.take(id)));
    return { instance_ids: gone, snapshot_ids: [] };
  }
}

// --- what a schema cannot see ---

/** The components of a path. @param {Buffer} raw */
const parts = (raw) => raw.toString("latin1").split("/").filter(Boolean).map((part) => Buffer.from(part, "latin1"));

/** The bytes of a path. @param {string} name of the field @param {string} path */
function clean(name, path) {
  const raw = unescape(path);
  if (raw.length > 4096 || raw.includes(0) || parts(raw).some((p) => p.length > 255)) {
    throw invalid(name + ": expected at most 4096 bytes without NUL, each component at most 255");
  }
  return raw;
}

/** @param {string} path @param {string} root */
export function checkRead(path, root) {
  clean("path", path);
  clean("allowed_root", root);
  if (!path.startsWith(root + "/")) throw invalid("path: expected a path below allowed_root");
}

/** @param {Wire.CleanupRequest} request */
export function checkCutoff(request) {
  if (request.orphaned_before > request.now) throw invalid("orphaned_before: expected no later than now");
}

/** @param {Pick<Wire.Command, "executable" | "arguments" | "working_directory" | "environment">} program */
export function checkProgram(program) {
  /** @param {string} name @param {string} text @param {number} most */
  const bound = (name, text, most) => {
    const raw = unescape(text);
    if (raw.length > most || raw.includes(0)) throw invalid(`${name}: expected at most ${most} bytes without NUL`);
  };
  bound("executable", program.executable, 4096);
  bound("working_directory", program.working_directory, 4096);
  for (const word of program.arguments) bound("arguments", word, 65536);
  for (const value of Object.values(program.environment)) bound("environment", value, 131072);
}

const RESERVED = ["/dev", "/proc", "/run", "/sys", "/tmp", "/home/checkfu", "/workspace/.checkfu", OUTPUTS];

/** @param {string} path @param {string} root */
const within = (path, root) => path === root || path.startsWith(root + "/");

/** Holds a request to the envelope, in the order of selection. @param {Wire.ProvisionRequest} request */
export function admit(request) {
  const { profile, target, platform } = request, limits = profile.resource_limits;
  request.mounts.forEach(({ mount_path: path }, i) => {
    const others = [...RESERVED, ...request.mounts.slice(0, i).map((m) => m.mount_path)];
    if (others.some((other) => within(path, other) || within(other, path))) throw unavailable("mounts", path, "no path twice, and no overlap with what is reserved");
  });
  const keys = profile.packages.map((p) => [p.manager, p.name, p.version ?? ""].join("\0"));
  if (canonical(keys) !== canonical([...new Set(keys)].sort())) throw invalid("profile.packages: expected ascending order");
  if (canonical(target) !== canonical(TARGET)) throw conflict(Object.values(TARGET).join(" "), Object.values(target).join(" "));
  const { minimum_resources: low, maximum_resources: high } = CAPABILITIES;
  const outside = RESOURCES.filter((k) => limits[k] < low[k] || limits[k] > high[k]);
  /** @type {[string, boolean, string][]} */
  const lacks = [
    ["tier", !CAPABILITIES.tiers.includes(profile.tier), profile.tier],
    ["platform", canonical(platform) !== canonical(CAPABILITIES.platforms[0]), platform.architecture],
    ["base_image", profile.base_image !== IMAGE || request.root_image !== IMAGE, profile.base_image],
    ["packages", profile.packages.length > 0, profile.packages[0]?.name ?? ""],
    ["network_policy", !CAPABILITIES.network_modes.includes(profile.network_policy.mode), profile.network_policy.mode],
    ["retention", !CAPABILITIES.retention_modes.includes(profile.retention_mode), profile.retention_mode],
    ["resources", outside.length > 0, outside.join(", ")],
    ["mounts", request.mounts.length > CAPABILITIES.max_mounts, `${request.mounts.length} mounts`],
  ];
  for (const [requirement, lacking, wanted] of lacks) if (lacking) throw unavailable(requirement, wanted);
  if (now() >= request.expires_at) throw conflict("before expires_at " + request.expires_at, "expired");
}

/** @type {(keyof Wire.Resources)[]} */
const RESOURCES = ["cpu_millis", "memory_bytes", "disk_bytes", "max_processes", "max_duration_seconds"];
