// The members of the contract, as this provider serves them. Each takes a Call and
// returns its answer.
import { randomBytes } from "node:crypto";

import { admit, checkBatch, checkClone, checkCutoff, checkProgram, checkRead, checkReference, clean, inTime } from "./admit.mjs";
import { Framed, Streamed, data, pages, say, streamed } from "./answer.mjs";
import { canonical, digest } from "./codec.mjs";
import * as contained from "./contained.mjs";
import { Failure, conflict, failed, invalid, unavailable } from "./failure.mjs";
import { Instance } from "./instance.mjs";
import { Pace, list } from "./listing.mjs";
import { now } from "./machine.mjs";
import { OUTPUTS } from "./places.mjs";
import { Process } from "./process.mjs";
import { CAPABILITIES, DAY_ONE, MAX_WAIT_MS, WIRE } from "./settings.mjs";

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

/** What a batch says of a file; anything else is a failure of the batch. */
const REFUSALS = new Set(["outside_root", "not_found", "not_regular", "too_large"]);

const { provider, provider_revision, materialization_revision, placement } = CAPABILITIES;

/** All instances. */
export class Provider {
  /** @type {Map<string, Instance>} */
  instances = new Map();
  /** By instance and id; one that was destroyed before it was opened is not there. @type {Map<string, Process | undefined>} */
  processes = new Map();

  /**
   * @param {string} state its directory
   * @param {import("./journal.mjs").Journal} journal
   * @param {import("./snapshots.mjs").Snapshots} [snapshots] where they are offered
   */
  constructor(state, journal, snapshots) {
    this.state = state;
    this.journal = journal;
    this.snapshots = snapshots;
    // What an earlier provider made can be undone by this one.
    for (const operation of journal.operations.values()) {
      operation.undo = () => this.undo(operation);
      if (!operation.owned && !operation.rolledBack) snapshots?.all.get(operation.snapshot ?? "")?.handoffs.push(operation);
    }
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
    if (lease_id !== call.leaseId) throw new Failure("WireLeaseFenced", { lease_epoch: this.journal.epochs.get(lease_id) ?? 0 });
    for (const operation of instance.handoffs.splice(0)) operation.own();
    if (state && has !== state) throw conflict(state, has);
    if (now() >= expires_at && !["release", "snapshot", "process_wait"].includes(call.endpoint)) throw conflict("before expires_at " + expires_at, "expired");
    instance.seen = now();
    return instance;
  }

  /** Destroys an instance, if there is one; that of an earlier provider is gone. @param {string} id */
  async take(id) {
    await this.instances.get(id)?.end();
    this.instances.delete(id);
    for (const of of this.processes.keys()) if (of.startsWith(id + " ")) this.processes.delete(of);
    this.journal.gone(id);
  }

  /** Ends all instances, and their owners will ask for them. */
  async close() {
    await Promise.all([...this.instances.values()].map((instance) => instance.end()));
  }

  /** Undoes what an operation made. @param {Operation} operation */
  async undo({ instance, snapshot }) {
    if (instance !== undefined) await this.take(instance);
    if (snapshot !== undefined) await this.snapshots?.destroy(snapshot);
  }

  /** Whether what an operation made is there. @param {Operation} operation */
  lives({ instance = "", snapshot = "" }) {
    return this.instances.has(instance) || this.snapshots?.all.has(snapshot) || false;
  }

  /**
   * The operation of a call, with what undoes it.
   * @param {Call<unknown>} call
   */
  operation({ operation }) {
    if (!operation) throw failed("provider_error"); // each of these endpoints is journaled
    operation.undo = () => this.undo(operation);
    return operation;
  }

  /**
   * An allocation that is the caller's once it names it.
   * @template T
   * @param {Call<unknown>} call
   * @param {T} value
   */
  handoff(call, value) {
    return { value, rollback: { operation_id: this.operation(call).id } };
  }

  /**
   * Makes an instance.
   * @param {Call<unknown>} call
   * @param {Wire.ProvisionRequest} request
   * @param {Wire.State} state
   * @param {(instance: Instance) => Promise<void>} [fill] puts something in its places
   */
  async allocate(call, request, state, fill) {
    const operation = this.operation(call);
    const instance = new Instance(this.state, {
      ...request, instance_id: "inst-" + randomBytes(16).toString("hex"), provider, placement, state, output_path: OUTPUTS,
      materialization: {
        profile_digest: profileDigest(request.profile), image_reference: request.root_image,
        image_digest: request.root_image.slice(request.root_image.lastIndexOf("@") + 1), provider_revision, materialization_revision,
      },
    });
    await operation.makes({ instance: instance.id }, request.expires_at);
    try {
      await instance.begin(() => fill?.(instance));
    } catch (why) {
      this.journal.gone(instance.id);
      throw contained.full(why);
    }
    this.instances.set(instance.id, instance);
    instance.handoffs.push(operation);
    return this.handoff(call, instance.value);
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
    return this.allocate(call, request, "provisioning");
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
    const operation = this.operation(call);
    instance.value = { ...instance.value, state: "active" };
    operation.instance = instance.id;
    instance.handoffs.push(operation);
    return this.handoff(call, instance.value);
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

  // --- snapshots, and the end ---

  /** What is captured of an instance. @param {Wire.Instance} value @param {string} expires_at @returns {import("./snapshots.mjs").Kept} */
  captured({ instance_id, provider, placement, workspace_id, session_id, profile, materialization, mounts }, expires_at) {
    return {
      mounts, disk_bytes: profile.resource_limits.disk_bytes,
      reference: {
        snapshot_id: "", provider, placement, source_instance_id: instance_id, workspace_id, session_id, profile_id: profile.profile_id,
        profile_version: profile.profile_version, profile_digest: materialization.profile_digest, created_at: now(), expires_at,
      },
    };
  }

  /** @param {Call<Wire.SnapshotRequest>} call */
  async snapshot(call) {
    const instance = this.named(call, "active"), { snapshots } = this, { expires_at } = call.request;
    if (!snapshots || !instance.durable) throw new Failure("SandboxSnapshotForbidden", { instance_id: instance.id });
    inTime(instance.value.expires_at);
    inTime(expires_at);
    const reference = await snapshots.capture(this.operation(call), this.captured(instance.value, expires_at), instance.disk, pace(instance));
    return this.handoff(call, reference);
  }

  /** @param {Call<Wire.CloneRequest>} call */
  async clone_snapshot(call) {
    const { snapshots } = this, { snapshot, target_session_id } = call.request;
    if (!snapshots) throw unavailable("snapshot_clone");
    checkClone(call.request);
    const source = snapshots.named(snapshot), { reference } = source.kept, created = now();
    const clone = { ...reference, session_id: target_session_id, created_at: created > reference.created_at ? created : reference.created_at };
    return this.handoff(call, await snapshots.clone(this.operation(call), source, clone));
  }

  /** @param {Call<Wire.ReleaseRequest>} call */
  async release(call) {
    const instance = this.named(call, "active"), { snapshots } = this, { expires_at } = call.request;
    if (instance.durable !== (expires_at !== undefined)) throw invalid("expires_at: expected a deadline exactly where a snapshot is settled");
    if (!snapshots || expires_at === undefined) {
      await this.take(instance.id);
      return this.handoff(call, { disposition: "destroyed" });
    }
    inTime(expires_at);
    if (instance.releasing) throw new Failure("SandboxInstanceNotFound", { instance_id: instance.id }); // of two one wins
    instance.releasing = true;
    try {
      await instance.stop();
      const snapshot = await snapshots.capture(this.operation(call), this.captured(instance.value, expires_at), instance.disk, pace(instance));
      await this.take(instance.id);
      return this.handoff(call, { disposition: "released", snapshot });
    } catch (why) { // it stays, for another release
      instance.releasing = false;
      instance.stopped = instance.gone || now() >= instance.value.expires_at;
      throw why;
    }
  }

  /** @param {Call<Wire.ResumeRequest>} call */
  async resume(call) {
    const { snapshots } = this, { request, snapshot } = call.request;
    if (!snapshots) throw unavailable("snapshots");
    checkReference(snapshot);
    admit(request);
    const from = snapshots.named(snapshot), { reference, mounts } = from.kept, { profile } = request;
    /** @type {[string, unknown, unknown][]} */
    const agree = [
      ["workspace_id", reference.workspace_id, request.workspace_id], ["session_id", reference.session_id, request.session_id],
      ["profile_id", reference.profile_id, profile.profile_id], ["profile_version", reference.profile_version, profile.profile_version],
      ["profile_digest", reference.profile_digest, profileDigest(profile)],
    ];
    for (const [field, want, got] of agree) if (want !== got) throw conflict(`snapshot.${field} ${want}`, String(got));
    if (profile.retention_mode !== "durable") throw unavailable("retention", profile.retention_mode, "durable");
    if (canonical(request.mounts) !== canonical(mounts)) throw unavailable("mounts", "another mount plan", "the plan of the snapshot");
    return this.allocate(call, request, "active", (instance) => snapshots.restore(from, instance.disk, pace(instance)));
  }

  /** @param {Call<Wire.InstanceRequest>} call */
  async destroy(call) {
    await this.take(call.request.instance_id);
    return {};
  }

  /** @param {Call<{ snapshot_id: string }>} call */
  async destroy_snapshot(call) {
    await this.snapshots?.destroy(call.request.snapshot_id);
    return {};
  }

  /** @param {Call<Wire.CleanupRequest>} call */
  async cleanup(call) {
    const { request } = call, { instances, journal, snapshots } = this;
    checkCutoff(request);
    const orphaned = [...instances.values()].filter(({ value: { expires_at, lease_id, lease_epoch }, seen }) =>
      request.now >= expires_at || ((journal.epochs.get(lease_id) ?? 0) > lease_epoch && seen < request.orphaned_before));
    const lost = [...journal.deadlines].filter(([id, deadline]) => !instances.has(id) && request.now >= deadline);
    const instance_ids = [...orphaned.map(({ id }) => id), ...lost.map(([id]) => id)].sort(), snapshot_ids = snapshots?.orphans(request) ?? [];
    await Promise.all([...instance_ids.map((id) => this.take(id)), ...snapshot_ids.map((id) => snapshots?.destroy(id))]);
    return { instance_ids, snapshot_ids };
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

/** Work on the files of an instance, as long as it is there. @param {Instance} instance */
const pace = (instance) => new Pace(() => {
  if (instance.gone) throw new Failure("SandboxInstanceNotFound", { instance_id: instance.id });
});

/** @param {Wire.Profile} profile */
const profileDigest = ({ base_image, packages }) => digest(canonical({ base_image, packages }));
