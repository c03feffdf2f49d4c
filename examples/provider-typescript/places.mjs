// Where a machine can be written to: each place is a directory of the instance at a
// path of the machine. What lies there is staged, read and captured from outside.

export const OUTPUTS = "/mnt/session/outputs";
const HOME = "/home/checkfu", CONTROL = "/workspace/.checkfu";
/** These are in no snapshot. */
const VOLATILE = ["/tmp", "/dev/shm"];
/** No mount may overlap these. */
export const RESERVED = ["/dev", "/proc", "/run", "/sys", "/tmp", HOME, CONTROL, OUTPUTS];

/**
 * A place. path is text of the wire; name is that of its directory. Files can be
 * staged in and read from one that is open, a snapshot has those that are kept.
 * @typedef {{ path: string, name: string, readOnly: boolean, open: boolean, kept: boolean }} Place
 */

/** Text of the wire has one form, so that equal text is equal bytes. @param {string} path @param {string} root */
export const within = (path, root) => path === root || path.startsWith(root + "/");

/**
 * Every place of an instance, an outer one before an inner. It depends on the mounts
 * alone: a snapshot finds its directories by their names.
 * @param {Wire.Mount[]} mounts
 * @returns {Place[]}
 */
export function plan(mounts) {
  const all = [
    ...mounts.map((m) => ({ path: m.mount_path, readOnly: m.access === "read_only", open: true, kept: true })),
    { path: OUTPUTS, readOnly: false, open: true, kept: true },
    { path: HOME, readOnly: false, open: false, kept: true },
    { path: CONTROL, readOnly: true, open: false, kept: true },
    ...VOLATILE.map((path) => ({ path, readOnly: false, open: false, kept: false })),
  ];
  return all.sort((a, b) => (a.path < b.path ? -1 : 1)).map((place, i) => ({ ...place, name: "place-" + i }));
}

/** The deepest of places around a path. @param {Place[]} places @param {string} path */
export function around(places, path) {
  return places.filter((place) => within(path, place.path)).reduce((a, b) => (a && a.path.length > b.path.length ? a : b), /** @type {Place | undefined} */ (undefined));
}

/** The components of a path. @param {Buffer} raw */
export const parts = (raw) => raw.toString("latin1").split("/").filter(Boolean).map((part) => Buffer.from(part, "latin1"));
