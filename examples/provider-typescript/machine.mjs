// Commands, each in a machine of its own.
//
// Two programs of the host make one. "unshare" holds the namespaces and ends when
// process 1 has, which is when everything in them has: its end is the proof that
// nothing lives. "nsenter" brings the command in from outside, so that how it ended
// is known to a parent that is no part of the machine.
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, constants, fchownSync, openSync, readFileSync, unlinkSync, writeFileSync } from "node:fs";
import { Socket } from "node:net";
import { constants as os } from "node:os";
import { setTimeout as after } from "node:timers/promises";

import { unescape } from "./codec.mjs";
import { Failure, failed } from "./failure.mjs";
import { ENVIRONMENT, host } from "./root.mjs";
import { OWNER, ROOTLESS, USER } from "./settings.mjs";

/** @typedef {import("node:child_process").ChildProcess} ChildProcess */
/** @typedef {import("./instance.mjs").Instance} Instance */

const TEXT = readFileSync(new URL("machine.sh", import.meta.url), "utf8");
/** Without startup files: bash with a socket for standard input takes itself for one that a remote shell started, and reads them. */
const SHELL = ["bash", "--norc", "-c", TEXT];
const NUL = Buffer.alloc(1);
/** How long reading what a dead command wrote may take, in milliseconds. */
const DRAIN = 5000;
/** How long the start of a machine may take, in milliseconds. */
const START = 30000;

export const now = () => new Date().toISOString();

/** @param {number} number */
function signalName(number) {
  const known = Object.entries(os.signals).find(([, n]) => n === number);
  return known ? known[0] : number === 34 ? "SIGRTMIN" : `SIGRTMIN+${number - 34}`;
}

/** When it has ended and nothing more comes of it. @param {ChildProcess} child @returns {Promise<number | null>} */
const closed = (child) => new Promise((settle) => child.on("error", () => settle(null)).on("close", (code) => settle(code)));

/** What a program says, up to a bound. @param {import("node:stream").Readable | null} stream */
function heard(stream) {
  const said = { text: "" };
  stream?.setEncoding("latin1").on("data", (part) => {
    if (said.text.length < 4096) said.text += part;
  });
  return said;
}

/**
 * Three pipes. Node makes none, only sockets, which cannot be opened again as
 * /dev/stdin; so mkfifo does, and their names are gone at once. Our ends do not block;
 * the command opens its own.
 * @param {string} path for their names
 */
async function pipes(path) {
  const { O_RDONLY, O_WRONLY, O_NONBLOCK } = constants, names = ["in", "out", "err"].map((name) => `${path}.${name}`);
  await host("mkfifo", "--mode=600", ...names);
  return names.map((name, i) => {
    const incoming = i === 0, [reader, writer] = [O_RDONLY, O_WRONLY].map((way) => openSync(name, way | O_NONBLOCK));
    if (reader === undefined || writer === undefined) throw failed("provider_error");
    unlinkSync(name);
    fchownSync(reader, OWNER, OWNER);
    return { theirs: incoming ? reader : writer, ours: new Socket({ fd: incoming ? writer : reader, readable: !incoming, writable: incoming }) };
  });
}

/** A command in a machine of its own. Whoever makes one has to kill() it in the end, also where it ended by itself. */
export class Command {
  /** @type {ChildProcess | undefined} */
  first;
  /** @type {ChildProcess | undefined} */
  child;
  /** Both of them end. @type {Promise<number | null>[]} */
  ends = [];
  /** @type {Promise<void> | undefined} */
  killing;

  /** @param {Instance} instance */
  constructor(instance) {
    this.instance = instance;
    this.nonce = randomBytes(16).toString("hex");
    instance.running.add(this);
  }

  /** Refuses to go on where somebody has ended it meanwhile. */
  alive() {
    if (this.killing) throw failed("instance_lost");
  }

  /** Starts it, and returns once its program is about to run, or it has ended. @param {Wire.Program} request */
  async begin(request) {
    this.alive();
    const late = setTimeout(() => void this.kill(), START);
    const { instance, nonce } = this, file = `${instance.state}/${nonce}`;
    const [ready, [input, out, err]] = await Promise.all([this.machine(), pipes(file)]);
    writeFileSync(file, words(request), { mode: 0o600 });
    const told = openSync(file, "r");
    unlinkSync(file);
    const theirs = [input.theirs, out.theirs, err.theirs];
    try {
      this.input = input.ours;
      this.out = out.ours;
      this.err = err.ours;
      this.alive(); // or it was ended while it was made
      if (ready !== "ready\n") throw failed("start_failed", undefined, ready);
      const limits = instance.value.profile.resource_limits, first = this.first?.pid;
      this.child = spawn("setpriv", [
        "--pdeathsig", "KILL", "nsenter", "--no-fork", `--pid=/proc/${first}/ns/pid_for_children`, "setsid", "--fork", "--wait",
        ...SHELL, nonce, "enter", ...theirs.map((fd) => `/proc/${process.pid}/fd/${fd}`), String(first),
        ...(ROOTLESS ? [] : ["setpriv", `--reuid=${OWNER}`, `--regid=${OWNER}`, "--clear-groups"]),
        "unshare", "--user", `--map-user=${USER}`, `--map-group=${USER}`, "--keep-caps",
        ...SHELL, nonce, "command", String(limits.max_processes), String(Math.ceil(limits.disk_bytes / 1024)),
      ], { stdio: ["ignore", "ignore", "pipe", told], env: ENVIRONMENT, cwd: "/", detached: true });
      this.said = heard(this.child.stderr);
      // It opens its streams itself, so that nobody around it holds them.
      const end = closed(this.child), { stderr } = this.child;
      this.ends.push(end);
      await Promise.race([end, new Promise((go) => stderr?.on("data", () => this.inside && go(undefined)))]);
    } finally {
      clearTimeout(late);
      for (const fd of [...theirs, told]) closeSync(fd);
    }
  }

  /** Makes the namespaces. Returns what process 1 said. @returns {Promise<string>} */
  async machine() {
    const { root, table } = this.instance;
    const first = this.first = spawn("unshare", [
      "--pid", "--kill-child", "--mount", "--net", "--ipc", "--uts", "--propagation", "private", ...SHELL, "machine", "first", root, table,
    ], { stdio: "pipe", env: ENVIRONMENT, cwd: "/", detached: true });
    const said = heard(first.stdout), why = heard(first.stderr), ended = closed(first);
    this.ends.push(ended);
    first.stdin?.on("error", () => {});
    await Promise.race([ended, new Promise((ready) => first.stdout?.once("data", ready))]);
    return said.text || why.text || "it was ended";
  }

  /** Its number inside, once its program is about to start. */
  get inside() {
    return /^go ([0-9]+)\n/.exec(this.said?.text ?? "")?.[1];
  }

  /**
   * Waits until the program runs. Returns whether it has ended, or may have: then
   * ended() says whether it ever did.
   * @param {Wire.Program} request
   */
  async started(request) {
    const over = Promise.all([this.ends[1]]).then(() => true);
    for (;;) {
      const words = this.inside && spoken(`/proc/${this.first?.pid}/root/proc/${this.inside}/cmdline`);
      // What has no words is dead or dying, or has a dead first thread.
      if (words === "") return Promise.race([over, after(5000, false)]);
      if (words && !words.includes(this.nonce) && !(prefixed(request) && words.startsWith(NICE.join("\0")))) return false;
      if (await Promise.race([over, after(2, false)])) return true;
    }
  }

  /**
   * How it ended: of exit_code and signal one, or the failure to start.
   * @param {Wire.Program} request
   * @param {Buffer} [stderr] its first bytes, where it may never have been the program
   * @returns {Promise<{ exit_code: number } | { signal: string }>}
   */
  async ended(request, stderr) {
    const code = await this.ends[1] ?? null, said = (this.said?.text ?? "").replaceAll(this.nonce + ": ", "");
    if (code === null || !this.inside) throw failed("start_failed", undefined, said);
    if (said.includes("did not exit normally")) return { signal: signalName(code & 127) };
    const refusal = stderr?.toString("latin1", 0, 4096) ?? "", by = prefixed(request) ? "nice: " : this.nonce + ": ";
    if ((code === 126 || code === 127) && refusal.startsWith(by)) {
      const missing = /No such file or directory|Not a directory/.test(refusal);
      throw failed(missing ? "not_found" : "start_failed", undefined, refusal.replaceAll(by, "").trim());
    }
    return { exit_code: code };
  }

  /** Asks process 1 to pass a signal on: it can reach nothing but what is in this machine. @param {string} name */
  signal(name) {
    if (this.inside) this.first?.stdin?.write(`${name} ${this.inside}\n`);
  }

  /** Returns once nothing in the machine lives. */
  kill() {
    return (this.killing ??= this.end());
  }

  /** Reads and writes no more. */
  close() {
    for (const stream of [this.input, this.out, this.err]) stream?.destroy();
  }

  async end() {
    this.first?.stdin?.destroy();
    // Process 1 ends by itself; should it ever not, this ends it.
    const late = setTimeout(() => this.first?.kill("SIGKILL"), 10000);
    await this.ends[0];
    clearTimeout(late);
    this.child?.kill("SIGKILL"); // it waits for what has ended
    await this.ends[1];
    this.instance.running.delete(this);
  }
}

/** The words of a process. @param {string} path */
function spoken(path) {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return ""; // it is gone
  }
}

const NICE = ["nice", "-n0", "--", ""];

/** env takes a word with "=" in it for a variable, so that such a program needs one more before it. @param {Wire.Program} request */
const prefixed = (request) => request.executable.includes("=");

/** The words of a command, as machine.sh reads them. @param {Wire.Program} request */
function words(request) {
  const all = [unescape(request.working_directory)];
  for (const [key, value] of Object.entries(request.environment)) all.push(Buffer.concat([Buffer.from(key + "="), unescape(value)]));
  if (prefixed(request)) all.push(...NICE.slice(0, -1).map((word) => Buffer.from(word)));
  for (const word of [request.executable, ...request.arguments]) all.push(unescape(word));
  return Buffer.concat(all.flatMap((w) => [w, NUL]));
}

/** A stream up to one byte above a bound, and what to do there. @param {Socket} stream @param {number} most @param {() => void} over */
function collect(stream, most, over) {
  /** @type {Buffer[]} */
  const parts = [];
  let size = 0;
  return /** @type {Promise<Buffer>} */ (new Promise((settle) => {
    stream.on("data", (/** @type {Buffer} */ part) => {
      if (size <= most) parts.push(part);
      size += part.length;
      if (size > most) over();
    });
    stream.on("error", () => {});
    stream.on("close", () => settle(Buffer.concat(parts)));
  }));
}

/**
 * Runs a command to its end: its streams and the result of the wire.
 * @param {Instance} instance
 * @param {Wire.Command} request
 * @param {Buffer} stdin
 */
export async function execute(instance, request, stdin) {
  if (instance.stopped) throw failed("instance_lost");
  const command = new Command(instance), most = request.output_limit_bytes;
  /** @type {NodeJS.Timeout | undefined} */
  let timer;
  try {
    let late = false;
    const cut = () => void command.kill();
    await command.begin(request);
    const started_at = now();
    if (!command.out || !command.err) throw failed("provider_error");
    command.input?.on("error", () => {}).end(stdin); // it need not read it
    const kept = Promise.all([collect(command.out, most, cut), collect(command.err, most, cut)]);
    timer = setTimeout(() => {
      late = true;
      cut();
    }, request.timeout_seconds * 1000);
    await command.ends[1];
    clearTimeout(timer);
    const was = command.killing !== undefined, finished = now();
    const finished_at = finished > started_at ? finished : started_at;
    await command.kill(); // what it started ends with it
    // But it can have handed its ends to another command of its instance, which lives.
    timer = setTimeout(() => setImmediate(() => command.close()), DRAIN);
    const [stdout, stderr] = await kept;
    for (const [stream, data] of Object.entries({ stdout, stderr })) {
      if (data.length > most) throw new Failure("SandboxOutputLimitExceeded", { stream, limit_bytes: most });
    }
    if (was && !late) throw failed("instance_lost");
    const how = was ? { timed_out: true } : await command.ended(request, stderr);
    return { stdout, stderr, result: { ...how, started_at, finished_at } };
  } finally {
    clearTimeout(timer);
    await command.kill();
    command.close();
  }
}
