// The members of the contract, as this provider serves them. Each takes a Call and
// returns its answer.
import { randomBytes } from "node:crypto";

import { canonical, digest, frame, output, unescape } from "./codec.mjs";
import * as contained from "./contained.mjs";
import { Failure, conflict, failed, invalid, unavailable } from "./failure.mjs";
import { Instance } from "./instance.mjs";
import { Pace, list } from "./listing.mjs";
import { now } from "./machine.mjs";
import { OUTPUTS, RESERVED, parts, within } from "./places.mjs";
import { Process } from "./process.mjs";
import { CAPABILITIES, DAY_ONE, IMAGE, MAX_WAIT_MS, WIRE } from "./settings.mjs";

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
 * @property {() => boolean} left says whether its caller went
 * @property {Operation} [operation] where it changes something
 */

/** An answer of frames. */
export class Framed {
  /** @param {Buffer[]} frames */
  constructor(...frames) {
    this.body = Buffer.concat(frames);
  }
}

/** An answer of frames that is made while it is sent. Up to its first frame it can still be a refusal. */
export class Streamed {
  /** @param {AsyncIterable<Buffer>} frames @param {() => void} [leave] is told when the connection is gone */
  constructor(frames, leave = () => {}) {
    this.frames = frames;
    this.leave = leave;
  }
}

const MAX_FRAME_DATA = (1 << 20) - 8;
/** The most that a page and all pages of a listing may take, in bytes. */
const PAGE = 512 << 10, LISTING = 60 << 20;

/** @param {Buffer} content */
function* data(content) {
  for (let at = 0; at < content.length; at += 1 << 20) yield frame(2, content.subarray(at, at + (1 << 20)));
}

/** @param {number} type @param {unknown} value */
const say = (type, value) => frame(type, Buffer.from(canonical(value)));

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
  /** By instance and id; one that was destroyed before it was opened is not there. @type {Map<string, Process | undefined>} */
  processes = new Map();

  /**
   * @param {string} state its directory
   * @param {(leaseId: string) => number} epochOf the highest epoch of a lease
   */
  constructor(state, epochOf) {
    this.state = state;
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
    if (now() >= expires_at && !["release", "snapshot", "process_wait"].includes(call.endpoint)) throw conflict("before expires_at " + expires_at, "expired");
    instance.seen = now();
    return instance;
  }

  /** Destroys an instance, if there is one. @param {string} id */
  async take(id) {
    await this.instances.get(id)?.end();
    this.instances.delete(id);
    for (const of of this.processes.keys()) if (of.startsWith(id + " ")) this.processes.delete(of);
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
    const instance = new Instance(this.state, {
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
    const { path, symlink, executable = false } = call.request;
    clean("path", path);
    const instance = this.named(call);
    if (symlink !== undefined) throw invalid("symlink: symlink_staging is not offered");
    const place = instance.owner(path);
    if (!place || place.path === path || instance.gone) throw failed("outside_root", path);
    if (place.path !== OUTPUTS && instance.value.state === "active") throw conflict("provisioning", "active");
    const { base, names } = instance.below(place, path);
    contained.write(base, names, call.data, executable, path);
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
    return new Framed(streamed(0x11, stdout), streamed(0x12, stderr), say(1, result));
  }

  /** @param {Call<Wire.ReadFileRequest>} call */
  read_file(call) {
    const { path, allowed_root, maximum_bytes } = call.request;
    checkRead(path, allowed_root);
    const instance = this.named(call, "active");
    if (!DAY_ONE) throw unavailable("physically_contained_file_read", "a contained read", "none");
    try {
      const content = this.content(instance, path, allowed_root, maximum_bytes);
      return new Framed(...data(content), say(1, { size: content.length, digest: digest(content) }));
    } catch (why) {
      throw contained.reasonOf(why) === "too_large" ? new Failure("SandboxFileTooLarge", { path, maximum_bytes }) : why;
    }
  }

  /** A file that belongs to the same place as root. @param {Instance} instance @param {string} path @param {string} root @param {number} most */
  content(instance, path, root, most) {
    const place = instance.owner(root);
    if (!place || instance.owner(path) !== place) throw failed("outside_root", path);
    if (instance.gone) throw failed("instance_lost");
    const { base, names } = instance.below(place, path);
    return contained.read(base, names, most, path);
  }

  /** @param {Call<Wire.ReadFilesRequest>} call */
  read_files(call) {
    checkBatch(call.request);
    const instance = this.named(call, "active"), { files, allowed_root } = call.request;
    return new Streamed(this.batch(instance, files, allowed_root));
  }

  /** One file at a time is held. @param {Instance} instance @param {Wire.FileMember[]} files @param {string} root */
  async *batch(instance, files, root) {
    let total = 0;
    for (const [index, { path, maximum_bytes }] of files.entries()) {
      let item;
      try {
        const content = this.content(instance, path, root, maximum_bytes);
        yield* data(content);
        total += content.length;
        item = { index, status: "ok", size: content.length, digest: digest(content) };
      } catch (why) {
        const reason = contained.reasonOf(why);
        if (!reason || !REFUSALS.has(reason)) throw why;
        item = { index, status: "refused", reason };
      }
      yield say(3, item);
    }
    yield say(1, { count: files.length, total_bytes: total });
  }

  /** @param {Call<Wire.ListRequest>} call */
  list_dir(call) {
    return this.listing(call, false);
  }

  /** @param {Call<Wire.ListRequest>} call */
  list_project_dir(call) {
    return this.listing(call, true);
  }

  /** @param {Call<Wire.ListRequest>} call @param {boolean} project */
  async listing(call, project) {
    const { root, max_entries: most } = call.request;
    clean("root", root);
    const instance = this.named(call, "active"), place = instance.owner(root);
    if (!place) throw failed("outside_root", root);
    const pace = new Pace(() => {
      if (instance.gone || call.left()) throw failed("instance_lost");
    });
    const { base, names } = instance.below(place, root);
    const entries = await list(base, names, root, { most, project, skip: instance.inner(place), pace });
    return new Framed(...pages(entries, root), say(1, { count: entries.length, ...(project ? { complete: true } : {}) }));
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

  // --- live processes ---

  /** @param {Call<Wire.OpenProcessRequest>} call */
  async open_process(call) {
    const { instance_id, process_id, process: program } = call.request, id = `${instance_id} ${process_id}`;
    checkProgram(program);
    const instance = this.named(call, "active");
    if (this.processes.has(id)) throw new Failure(this.processes.get(id) ? "WireOperationMismatch" : "WireOperationRolledBack");
    for (const [of, other] of this.processes) {
      if (of.startsWith(instance_id + " ") && other?.live) throw conflict("no_process", "process_already_open");
    }
    const process = new Process(instance, process_id, program);
    this.processes.set(id, process); // the place is taken before it starts, so that of two one is refused
    if (call.operation) call.operation.undo = () => process.destroy();
    try {
      await process.begin();
    } catch (why) {
      if (this.processes.get(id) === process) this.processes.delete(id);
      throw why;
    }
    return process.opened();
  }

  /** @param {Call<Wire.ProcessRequest>} call */
  process(call) {
    const { instance_id, process_id } = call.request;
    this.named(call);
    const process = this.processes.get(`${instance_id} ${process_id}`);
    if (!process) throw new Failure("WireProcessNotFound");
    return process;
  }

  /** @param {Call<Wire.StreamRequest>} call */
  process_stream(call) {
    const process = this.process(call), reader = process.attach(call.leaseId, call.leaseEpoch, call.request);
    return new Streamed(process.follow(reader, call.request), () => process.leave(reader));
  }

  /** @param {Call<Wire.InputCall>} call */
  process_input(call) {
    return this.process(call).input(call.request.offset, call.data, call.request.end);
  }

  /** @param {Call<Wire.WaitRequest>} call */
  process_wait(call) {
    return this.process(call).wait(Math.min(call.request.wait_ms, MAX_WAIT_MS));
  }

  /** @param {Call<Wire.SignalRequest>} call */
  async process_signal(call) {
    const process = this.process(call), { signal } = call.request, delivered = process.signal(signal);
    if (delivered && signal === "SIGKILL") await process.destroy();
    return { delivered };
  }

  /** @param {Call<Wire.ProcessRequest>} call */
  async process_destroy(call) {
    this.named(call);
    const id = `${call.request.instance_id} ${call.request.process_id}`;
    if (!this.processes.has(id)) this.processes.set(id, undefined); // a tombstone
    await this.processes.get(id)?.destroy();
    return {};
  }

  /** Ends the streams of epochs that were overtaken. @param {string} leaseId @param {number} epoch */
  fence(leaseId, epoch) {
    for (const process of this.processes.values()) process?.fence(leaseId, epoch);
  }
}

// --- what a schema cannot see ---

/** What a batch says of a file; anything else is a failure of the batch. */
const REFUSALS = new Set(["outside_root", "not_found", "not_regular", "too_large"]);

/** Names can be long, and are longer when they are escaped. @param {unknown[]} entries @param {string} root */
function pages(entries, root) {
  /** @type {Buffer[]} */
  const frames = [];
  let page = "", count = 0, total = 0;
  const turn = () => {
    if (count > 0) frames.push(frame(3, Buffer.from(`{"entries":[${page}]}`)));
    page = "";
    count = 0;
  };
  for (const entry of entries) {
    const text = canonical(entry), size = Buffer.byteLength(text);
    total += size;
    if (total > LISTING) throw failed("too_many_entries", root, "the listing is too long");
    if (count === 1000 || page.length + text.length > PAGE / 2) turn();
    page += count++ > 0 ? "," + text : text;
  }
  turn();
  return frames;
}

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

/** @param {Wire.ReadFilesRequest} request */
export function checkBatch({ files, allowed_root, aggregate_maximum_bytes }) {
  for (const { path } of files) checkRead(path, allowed_root);
  if (files.reduce((sum, { maximum_bytes }) => sum + maximum_bytes, 0) !== aggregate_maximum_bytes) throw invalid("aggregate_maximum_bytes: expected the sum of the members");
}

/** Holds a request to the envelope, in the order of selection. @param {Wire.ProvisionRequest} request */
export function admit(request) {
  const { profile, target, platform } = request, limits = profile.resource_limits;
  request.mounts.forEach(({ mount_path: path }, i) => {
    try {
      clean("mount_path", path);
    } catch {
      throw unavailable("mounts", path, "a shorter path");
    }
    const again = request.mounts.slice(0, i).some((m) => m.mount_path === path);
    if (again || RESERVED.some((other) => within(path, other) || within(other, path))) throw unavailable("mounts", path, "no path twice, and no overlap with what is reserved");
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
