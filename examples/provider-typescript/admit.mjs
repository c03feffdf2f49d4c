// What of a request a schema cannot see.
import { canonical, unescape } from "./codec.mjs";
import { conflict, invalid, unavailable } from "./failure.mjs";
import { now } from "./machine.mjs";
import { RESERVED, parts, within } from "./places.mjs";
import { CAPABILITIES, IMAGE } from "./settings.mjs";

const { provider, provider_revision, materialization_revision, placement } = CAPABILITIES;
const TARGET = { provider, provider_revision, materialization_revision, placement };

/** The bytes of a path. @param {string} name of the field @param {string} path */
export function clean(name, path) {
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

/** @param {Wire.CloneRequest} request */
export function checkClone({ snapshot, target_session_id }) {
  if (target_session_id === snapshot.session_id) throw invalid("target_session_id: expected another Session");
  checkReference(snapshot);
}

/** @param {Wire.Snapshot} snapshot */
export function checkReference({ created_at, expires_at }) {
  if (created_at >= expires_at) throw invalid("expires_at: expected a time after created_at");
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

/** Refuses a deadline that has passed. @param {string} expires_at */
export function inTime(expires_at) {
  if (now() >= expires_at) throw conflict("before expires_at " + expires_at, "expired");
}
