// Starts the provider: CHECKFU_LISTEN says where, CHECKFU_TOKEN who may call,
// CHECKFU_STATE where its instances lie, and what outlives them. SIGTERM ends it and
// all of them.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, openSync, readdirSync, rmSync, rmdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Instance } from "./instance.mjs";
import { Journal } from "./journal.mjs";
import { Log } from "./log.mjs";
import { Provider } from "./provider.mjs";
import { ENVIRONMENT, host } from "./root.mjs";
import { Service, listen } from "./server.mjs";
import { CAPABILITIES, DURABLE, NAME } from "./settings.mjs";
import { Snapshots } from "./snapshots.mjs";

const NO_NAMESPACES = 4, RUN = "run-";

/** @param {number} code @param {string} message */
function leave(code, message) {
  console.error(`${NAME}: ${message}`);
  process.exitCode = code;
}

/**
 * Runs a command as any other would run, before anything is promised.
 * @param {string} state
 */
async function probe(state) {
  const expires_at = new Date(Date.now() + 60000).toISOString(), resources = { ...CAPABILITIES.minimum_resources, max_processes: 64 };
  const value = { instance_id: "probe", expires_at, mounts: [], profile: { resource_limits: resources } };
  const instance = new Instance(state, /** @type {Wire.Instance} */ (/** @type {unknown} */ (value)));
  try {
    await instance.begin();
    const { result } = await instance.execute({
      executable: "/bin/sh", arguments: ["-c", "exit 7"], working_directory: "/", environment: {}, timeout_seconds: 30, output_limit_bytes: 4096,
    }, Buffer.alloc(0));
    if (!("exit_code" in result) || result.exit_code !== 7) throw new Error("a command ended with " + JSON.stringify(result));
  } finally {
    await instance.end();
  }
}

/** What went wrong, in a line. @param {unknown} why */
const reason = (why) => {
  const { fields, message } = /** @type {{ fields?: { message?: string }, message?: string }} */ (why);
  return (fields?.message ?? message ?? String(why)).replaceAll("\n", " ").trim();
};

/**
 * Takes a state directory for this provider alone, as long as it lives, and clears away
 * what is left of an earlier one. Its instances are gone; snapshots and journal stay.
 * @param {string} parent
 */
function claim(parent) {
  const held = openSync(parent, "r");
  // The lock is the descriptor's, not that of the program that asks for it.
  const { status, error } = spawnSync("flock", ["--nonblock", "3"], { stdio: ["ignore", "ignore", "ignore", held], env: ENVIRONMENT });
  if (status !== 0) throw new Error(`${parent} is held by another provider${error ? ", or " + error.message : ""}`);
  for (const name of readdirSync(parent)) if (name.startsWith(RUN)) rmSync(join(parent, name), { recursive: true });
}

/** Serves until it is told to end. @param {string} parent @param {string} address @param {string} token */
async function serve(parent, address, token) {
  if (DURABLE) claim(parent);
  const state = mkdtempSync(join(parent, RUN)); // what a crash left there is not ours to know, where nobody has the directory alone
  const stopped = new Promise((stop) => ["SIGTERM", "SIGINT"].forEach((s) => process.once(s, stop)));
  /** @type {Provider | undefined} */
  let provider;
  try {
    try {
      // All of it is memory: nothing of a workload comes on a disk but by a snapshot.
      await host("mount", "-t", "tmpfs", "-o", "nosuid,nodev,mode=700", "tmpfs", state);
      await probe(state);
    } catch (why) {
      return leave(NO_NAMESPACES, `this machine gives no namespaces of their own to commands (${reason(why)}); nothing runs without them`);
    }
    // The journal survives whatever its operations speak of.
    const journal = new Journal((operation) => provider?.lives(operation) ?? false, DURABLE ? new Log(join(parent, "journal")) : undefined);
    const made = new Set([...journal.operations.values()].map(({ rolledBack, snapshot }) => (rolledBack ? undefined : snapshot)));
    const snapshots = DURABLE ? new Snapshots(join(parent, "snapshots"), (id) => made.has(id)) : undefined;
    provider = new Provider(state, journal, snapshots);
    const server = await listen(address, new Service(token, provider));
    await stopped;
    server.close();
    server.closeAllConnections();
  } catch (why) {
    leave(1, reason(why));
  } finally {
    await provider?.close();
    await host("umount", "--lazy", state).catch(() => {});
    rmdirSync(state);
  }
}

async function main() {
  process.umask(0o022);
  const { CHECKFU_TOKEN: token = "", CHECKFU_LISTEN: address = "", CHECKFU_STATE: given } = process.env;
  delete process.env.CHECKFU_TOKEN;
  if (!/^[A-Za-z0-9._~+/=-]{32,512}$/.test(token) || !address) {
    return leave(1, "set CHECKFU_LISTEN to unix:PATH or HOST:PORT and CHECKFU_TOKEN to 32 to 512 characters");
  }
  const parent = given || mkdtempSync(join(tmpdir(), NAME + "-")); // of its own, and taken away at its end
  try {
    mkdirSync(parent, { recursive: true });
    await serve(parent, address, token);
  } finally {
    if (!given) rmSync(parent, { recursive: true, force: true });
  }
}

await main().catch((why) => leave(1, reason(why)));
process.exit(); // what still runs has lost its machine
