// The root that every machine of this provider sees: the host's own programs,
// read-only, and nothing else of the host. It is made once, in the mounts of this
// provider, and copied with them into the namespaces of each command.
import { execFile } from "node:child_process";
import { chownSync, chmodSync, existsSync, lstatSync, mkdirSync, readlinkSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";

import { ROOTLESS } from "./settings.mjs";

export const OUTPUTS = "/mnt/session/outputs";
/** Of the command, inside. */
export const USER = 1000;
/** Who the workload is, outside. Nobody else has this number. */
export const OWNER = ROOTLESS ? 0 : 102000;
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

/** A path as mount(8) reads it in a table. @param {string} path */
const word = (path) => path.replace(/[^\w/.-]/g, (c) => [...Buffer.from(c)].map((b) => "\\" + b.toString(8).padStart(3, "0")).join(""));

/** One line of a table. @param {string} source @param {string} target @param {string} options @param {string} [type] */
const line = (source, target, options, type = "none") => `${word(source)} ${word(target)} ${type} ${options} 0 0\n`;

/**
 * Makes the root.
 * @param {string} root
 * @param {string} table where to write what is mounted
 */
export async function makeRoot(root, table) {
  mkdirSync(root);
  await host("mount", "-t", "tmpfs", "-o", "nosuid,nodev,size=4m,mode=755", "tmpfs", root);
  for (const name of ["proc", "sys", "run", "dev", "dev/shm", "etc", "var", "tmp", "mnt/session/outputs", "home/checkfu", "workspace/.checkfu"]) {
    mkdirSync(`${root}/${name}`, { recursive: true });
  }
  let mounts = "";
  /** @param {string} from @param {string} options */
  const bind = (from, options) => {
    if (statSync(from).isDirectory()) mkdirSync(root + from);
    else writeFileSync(root + from, "");
    mounts += line(from, root + from, options);
  };
  for (const name of ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"]) {
    const found = lstatSync(name, { throwIfNoEntry: false });
    if (found?.isSymbolicLink()) symlinkSync(readlinkSync(name), root + name);
    else if (found) bind(name, "rbind,ro,nosuid,nodev");
  }
  for (const name of ["/etc/alternatives", "/etc/ld.so.cache"]) {
    if (existsSync(name)) bind(name, "bind,ro,nosuid,nodev");
  }
  for (const name of ["null", "zero", "full", "random", "urandom", "tty"]) bind("/dev/" + name, "bind,nosuid,noexec");
  for (const [name, target] of [["fd", ""], ["stdin", "/0"], ["stdout", "/1"], ["stderr", "/2"]]) symlinkSync("/proc/self/fd" + target, `${root}/dev/${name}`);
  writeFileSync(`${root}/etc/passwd`, `root:x:0:0::/:/bin/sh\ncheckfu:x:${USER}:${USER}::/home/checkfu:/bin/sh\n`);
  writeFileSync(`${root}/etc/group`, `root:x:0:\ncheckfu:x:${USER}:\n`);
  writeFileSync(`${root}/etc/hosts`, "127.0.0.1 localhost machine\n");
  writeFileSync(table, mounts);
  await host("mount", "--all", "--fstab", table);
  await host("mount", "-o", "remount,bind,ro,nosuid,nodev", root);
}

/** What a workload can write to, and the directories of an instance that are there. */
const OWN = { outputs: OUTPUTS, tmp: "/tmp", home: "/home/checkfu", shm: "/dev/shm" };

/**
 * Makes the disk of an instance. Its size is the disk limit; it is memory, and
 * gone with this program.
 * @param {string} disk
 * @param {number} size in bytes
 * @param {string} root
 * @param {string} table where to write what its machines mount
 */
export async function makeDisk(disk, size, root, table) {
  mkdirSync(disk);
  await host("mount", "-t", "tmpfs", "-o", `nosuid,nodev,size=${size},mode=711`, "tmpfs", disk);
  let mounts = "";
  for (const [name, path] of Object.entries(OWN)) {
    mkdirSync(`${disk}/${name}`);
    chownSync(`${disk}/${name}`, OWNER, OWNER);
    chmodSync(`${disk}/${name}`, 0o755);
    mounts += line(`${disk}/${name}`, root + path, "bind,nosuid,nodev");
  }
  mounts += line("proc", `${root}/proc`, "nosuid,nodev,noexec", "proc");
  mounts += line("sysfs", `${root}/sys`, "nosuid,nodev,noexec", "sysfs");
  writeFileSync(table, mounts);
}

/** Takes a file system away, and the place where it was. @param {string} path */
export async function unmake(path) {
  if (!existsSync(path)) return;
  await host("umount", "--lazy", path).catch(() => {}); // it was never mounted
  rmSync(path, { recursive: true, force: true });
}
