// The root of a machine: the host's own programs, read-only, the places of its
// instance, and nothing else of the host. It is made once for an instance, in the
// mounts of this provider and before anything of a workload runs, and copied with
// them into the namespaces of each command.
import { execFile } from "node:child_process";
import { chownSync, closeSync, existsSync, lstatSync, mkdirSync, readlinkSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";

import { unescape } from "./codec.mjs";
import { descend } from "./contained.mjs";
import { unavailable } from "./failure.mjs";
import { around, parts, within } from "./places.mjs";
import { OWNER, USER } from "./settings.mjs";

/** @typedef {import("./places.mjs").Place} Place */

/** For programs of the host; the words of a command never see it. */
export const ENVIRONMENT = { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" };

/**
 * Runs a program of the host; its message is that of the error.
 * @param {string} program
 * @param {string[]} args
 */
export async function host(program, ...args) {
  try {
    await promisify(execFile)(program, args, { env: ENVIRONMENT, cwd: "/" });
  } catch (why) {
    throw new Error(String(/** @type {{ stderr?: string }} */ (why).stderr || why).trim());
  }
}

/** A path as mount(8) reads it in a table. @param {Buffer} path */
const word = (path) => path.toString("latin1").replace(/[^\w/.-]/g, (c) => "\\" + c.charCodeAt(0).toString(8).padStart(3, "0"));

/** One line of a table. @param {string | Buffer} source @param {string | Buffer} target @param {string} options @param {string} [type] */
const line = (source, target, options, type = "none") => `${word(Buffer.from(source))} ${word(Buffer.from(target))} ${type} ${options} 0 0\n`;

/** What of the host a machine sees, where the host has it. */
const SYSTEM = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives", "/etc/ld.so.cache"];
const DEVICES = ["null", "zero", "full", "random", "urandom", "tty"].map((name) => "/dev/" + name);
/** The kernel's own, which belong to the namespaces of a command. */
const KERNEL = /** @type {const} */ ({ "/proc": "proc", "/sys": "sysfs" });

/**
 * Makes the directories of a root, and the files that are its own.
 * @param {string} bare where
 * @returns {{ path: string, options: string }[]} what is to be bound there, from the same path
 */
function skeleton(bare) {
  for (const name of ["", ...Object.keys(KERNEL), "/run", "/dev", "/etc", "/var", "/mnt"]) mkdirSync(bare + name);
  const binds = [];
  for (const path of [...SYSTEM, ...DEVICES]) {
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (!found) continue;
    if (found.isSymbolicLink()) {
      symlinkSync(readlinkSync(path), bare + path);
      continue;
    }
    if (found.isDirectory()) mkdirSync(bare + path);
    else writeFileSync(bare + path, "");
    binds.push({ path, options: DEVICES.includes(path) ? "bind,nosuid,noexec" : found.isDirectory() ? "rbind,ro,nosuid,nodev" : "bind,ro,nosuid,nodev" });
  }
  for (const [name, target] of [["fd", ""], ["stdin", "/0"], ["stdout", "/1"], ["stderr", "/2"]]) symlinkSync("/proc/self/fd" + target, `${bare}/dev/${name}`);
  writeFileSync(`${bare}/etc/passwd`, `root:x:0:0::/:/bin/sh\ncheckfu:x:${USER}:${USER}::/home/checkfu:/bin/sh\n`);
  writeFileSync(`${bare}/etc/group`, `root:x:0:\ncheckfu:x:${USER}:\n`);
  writeFileSync(`${bare}/etc/hosts`, "127.0.0.1 localhost machine\n");
  return binds;
}

/**
 * Makes the disk of an instance, with a directory for each place. Its size is the
 * disk limit; it is memory, and gone with this program.
 * @param {string} disk
 * @param {number} size in bytes
 * @param {Place[]} places
 */
export async function makeDisk(disk, size, places) {
  mkdirSync(disk);
  await host("mount", "-t", "tmpfs", "-o", `nosuid,nodev,size=${size},mode=711`, "tmpfs", disk);
  mkdirSync(disk + "/root");
  for (const { name } of places) {
    mkdirSync(`${disk}/${name}`);
    chownSync(`${disk}/${name}`, OWNER, OWNER);
  }
}

/**
 * Makes the root of an instance below its disk, and the table of what each of its
 * commands mounts itself.
 * @param {string} disk
 * @param {Place[]} places
 */
export async function makeRoot(disk, places) {
  const bare = disk + ".root", root = disk + "/root";
  const binds = skeleton(bare);
  let mounts = line(bare, root, "bind,ro,nosuid,nodev");
  for (const { path, options } of binds) mounts += line(path, root + path, options);
  for (const place of places) {
    const raw = unescape(place.path), target = Buffer.concat([Buffer.from(root), raw]);
    // What is mounted over these is the host's, in which there may be links to anywhere.
    if (SYSTEM.some((path) => within(place.path, path)) || target.length > 4000) throw unavailable("mounts", place.path, "a shorter path, not of the system");
    const outer = around(places.filter((p) => p !== place), place.path);
    const below = outer ? parts(raw).slice(parts(unescape(outer.path)).length) : parts(raw);
    closeSync(descend(outer ? `${disk}/${outer.name}` : bare, below, place.path, outer ? OWNER : 0)); // it has to be there, and stays
    mounts += line(`${disk}/${place.name}`, target, (place.readOnly ? "ro," : "") + "bind,nosuid,nodev");
  }
  writeFileSync(disk + ".table", mounts);
  await host("mount", "--all", "--fstab", disk + ".table");
  writeFileSync(disk + ".mounts", Object.entries(KERNEL).map(([path, type]) => line(type, root + path, "nosuid,nodev,noexec", type)).join(""));
}

/** Takes away the disk of an instance and its root. @param {string} disk */
export async function unmake(disk) {
  if (existsSync(disk)) {
    if (isMount(disk)) await host("umount", "--lazy", disk);
    rmSync(disk, { recursive: true, force: true });
  }
  for (const end of [".root", ".table", ".mounts"]) rmSync(disk + end, { recursive: true, force: true });
}

/** @param {string} path */
const isMount = (path) => statSync(path).dev !== statSync(path + "/..").dev;
