// Starts the provider: CHECKFU_LISTEN says where, CHECKFU_TOKEN who may call,
// CHECKFU_STATE where its instances lie. SIGTERM ends it and all of them.
import { mkdirSync, mkdtempSync, rmdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Instance } from "./instance.mjs";
import { Provider } from "./provider.mjs";
import { host } from "./root.mjs";
import { Service, listen } from "./server.mjs";
import { CAPABILITIES, NAME } from "./settings.mjs";

const NO_NAMESPACES = 4;

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

async function main() {
  process.umask(0o022);
  const { CHECKFU_TOKEN: token = "", CHECKFU_LISTEN: address = "", CHECKFU_STATE: given } = process.env;
  delete process.env.CHECKFU_TOKEN;
  if (!/^[A-Za-z0-9._~+/=-]{32,512}$/.test(token) || !address) {
    return leave(1, "set CHECKFU_LISTEN to unix:PATH or HOST:PORT and CHECKFU_TOKEN to 32 to 512 characters");
  }
  const parent = given || join(tmpdir(), NAME);
  mkdirSync(parent, { recursive: true });
  const state = mkdtempSync(join(parent, "run-")); // what a crash left there is not ours to know
  const stopped = new Promise((stop) => ["SIGTERM", "SIGINT"].forEach((s) => process.once(s, stop)));
  /** @type {Service | undefined} */
  let service;
  try {
    try {
      // All of it is memory: nothing of a workload comes on a disk.
      await host("mount", "-t", "tmpfs", "-o", "nosuid,nodev,mode=700", "tmpfs", state);
      await probe(state);
    } catch (why) {
      return leave(NO_NAMESPACES, `this machine gives no namespaces of their own to commands (${reason(why)}); nothing runs without them`);
    }
    service = new Service(token, (epochOf) => new Provider(state, epochOf));
    const server = await listen(address, service);
    await stopped;
    server.close();
    server.closeAllConnections();
  } catch (why) {
    leave(1, reason(why));
  } finally {
    await service?.provider.close();
    await host("umount", "--lazy", state).catch(() => {});
    rmdirSync(state);
  }
}

await main().catch((why) => leave(1, reason(why)));
process.exit(); // what still runs has lost its machine
