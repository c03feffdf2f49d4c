// The wire: HTTP, headers, fencing, and the journal in front of what changes
// something. docs/wire.md says what each of them has to do.
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { chmodSync } from "node:fs";
import { createServer } from "node:http";

import { Framed, Streamed } from "./answer.mjs";
import { Refused, canonical, digest, frame, frames, strict } from "./codec.mjs";
import { Failure, conflict, failed, malformed } from "./failure.mjs";
import { check } from "./schema.mjs";
import { CAPABILITIES, WIRE } from "./settings.mjs";

/** @typedef {import("node:http").IncomingMessage} IncomingMessage */
/** @typedef {import("./journal.mjs").Answer} Answer */
/** @typedef {import("./provider.mjs").Provider} Provider */

const MAX_FILE = 16 << 20, MAX_CALL = 8 << 20, MAX_FRAMED = 25 << 20, MAX_INPUT = 262144;
/** What of a refused body is read all the same, so that the connection can go on. */
const MAX_DRAINED = 64 << 20;
/** For how long a reader may take nothing of a stream, in milliseconds. */
const STANDSTILL = 120000;

/**
 * An endpoint: the schema of its request; whether it is journaled; the longest body
 * of a framed one; how its absence is said in the contract's words.
 * @typedef {{ schema: string, journaled?: boolean, framed?: number, absent?: string }} Endpoint
 */

/** @param {string} schema @returns {Endpoint} */
const op = (schema) => ({ schema, journaled: true });

/** @type {Map<string, Endpoint>} */
export const ENDPOINTS = new Map(Object.entries({
  capabilities: { schema: "Empty" }, provision: op("ProvisionRequest"), write_file: { ...op("FileCall"), framed: MAX_FRAMED },
  activate: op("InstanceRequest"), execute: { ...op("ExecuteCall"), framed: MAX_FRAMED }, read_file: { schema: "ReadFileRequest" },
  read_files: { schema: "ReadFilesRequest" }, list_dir: { schema: "ListRequest", absent: "list_dir" },
  list_project_dir: { schema: "ListRequest", absent: "list_project_dir" }, snapshot: op("SnapshotRequest"), clone_snapshot: op("CloneRequest"),
  release: op("ReleaseRequest"), resume: op("ResumeRequest"), destroy: op("InstanceRequest"), destroy_snapshot: op("DestroySnapshotRequest"),
  cleanup: op("CleanupRequest"), begin_active_write: { ...op("BeginActiveWriteRequest"), absent: "begin_active_write" },
  stage_active_write: { ...op("StageCall"), framed: MAX_FRAMED }, dispatch_active_write: op("TransactionRequest"),
  abort_active_write: op("TransactionRequest"), inspect_active_write: { schema: "TransactionRequest" },
  open_process: { ...op("OpenProcessRequest"), absent: "open_process" }, process_stream: { schema: "StreamRequest", absent: "process_stream" },
  process_input: { schema: "InputCall", framed: 266240, absent: "process_input" }, process_wait: { schema: "WaitRequest", absent: "process_wait" },
  process_signal: { ...op("SignalRequest"), absent: "process_signal" }, process_destroy: { schema: "ProcessRequest", absent: "process_destroy" },
  rollback: { schema: "RollbackRequest" }, operation: { schema: "OperationRequest" },
}));

/** The members that the provider has a function for, beside rollback and operation. */
const SERVED = new Set([
  ...WIRE.members, "snapshot", "clone_snapshot", "resume",
  ...(WIRE.members.includes("open_process") ? ["process_stream", "process_input", "process_wait", "process_signal", "process_destroy"] : []),
]);

/** What every request shares. */
export class Service {
  boot = "bt_" + randomBytes(16).toString("hex");
  digest = digest(canonical(CAPABILITIES));

  /** @param {string} token @param {Provider} provider */
  constructor(token, provider) {
    this.token = hashed("Bearer " + token);
    this.provider = provider;
    this.journal = provider.journal;
  }

  /** Serves one request. @param {IncomingMessage} incoming @returns {Promise<Answer>} */
  async serve(incoming) {
    let endpoint = "";
    try {
      const headers = new Headers(incoming);
      this.admit(headers);
      const { url = "" } = incoming, name = url.startsWith("/v1/") ? url.slice(4) : "", known = ENDPOINTS.get(name);
      if (!known) throw new Failure("WireMemberUnknown");
      endpoint = name;
      return await this.call(incoming, headers, endpoint, known);
    } catch (why) {
      return refusal(endpoint, why);
    }
  }

  /** Who calls, and in which revision: before anything else is said. @param {Headers} headers */
  admit(headers) {
    const [authorization = "", another] = headers.all("authorization"), [revision, second] = headers.all("checkfu-wire");
    if (another !== undefined || !timingSafeEqual(hashed(authorization), this.token)) throw new Failure("WireUnauthenticated");
    if (revision !== WIRE.revision || second !== undefined) throw new Failure("WireUnsupported", { supported: [WIRE.revision] });
  }

  /** @param {IncomingMessage} incoming @param {Headers} headers @param {string} endpoint @param {Endpoint} rules @returns {Promise<Answer>} */
  async call(incoming, headers, endpoint, { schema, journaled = false, framed }) {
    const leased = endpoint !== "capabilities";
    const leaseId = headers.one("checkfu-lease-id", /^[!#-&(-[\]-~]{1,255}$/, leased, leased) ?? "";
    const leaseEpoch = headers.number("checkfu-lease-epoch", 0, Number.MAX_SAFE_INTEGER, leased, leased) ?? 0;
    const operation = headers.one("checkfu-operation-id", /^op_[0-9a-f]{32}$/, journaled, journaled);
    headers.number("checkfu-deadline-ms", 1, 604800000, false);
    headers.number("checkfu-wait-ms", 0, 30000, false);
    const bodiless = incoming.method === "GET" && endpoint === "capabilities";
    if (incoming.method !== "POST" && !bodiless) throw malformed("method", "expected POST");
    /** @type {import("./provider.mjs").Call<any>} */
    const call = { endpoint, leaseId, leaseEpoch, request: {}, data: Buffer.alloc(0), left: () => incoming.destroyed && !incoming.complete || incoming.socket.destroyed };
    let body = call.data;
    if (!bodiless) {
      headers.one("content-type", framed ? /^application\/vnd\.checkfu\.frames$/ : /^application\/json$/, true);
      headers.one("content-encoding", /^identity$/, false);
      body = await read(incoming, headers, framed ?? MAX_CALL);
    }
    if (leased) {
      await this.fence(leaseId, leaseEpoch);
      this.fence(leaseId, leaseEpoch); // from here to the first effect nothing waits
    }
    if (framed) Object.assign(call, split(body));
    else if (!bodiless) call.request = strict(body);
    if (endpoint === "write_file") tooLarge(call.request);
    check(schema, call.request);
    if (framed) checkData(call);
    if (operation === undefined) return this.answer(call);
    return this.journal.perform(operation, endpoint, digest(body), (journaled) => this.answer({ ...call, operation: journaled }));
  }

  /** Refuses what its lease has overtaken; waits until its epoch is kept. @param {string} leaseId @param {number} epoch */
  fence(leaseId, epoch) {
    const highest = this.journal.epochs.get(leaseId) ?? 0;
    if (epoch < highest) throw new Failure("WireLeaseFenced", { lease_epoch: highest });
    if (epoch === highest) return undefined;
    const kept = this.journal.raise(leaseId, epoch);
    this.provider.fence(leaseId, epoch);
    return kept;
  }

  /** What a member answers, or why it does not. @param {import("./provider.mjs").Call<any>} call @returns {Promise<Answer>} */
  async answer(call) {
    try {
      const value = await this.member(call);
      if (value instanceof Streamed) return { status: 200, framed: true, body: Buffer.alloc(0), streamed: value, endpoint: call.endpoint };
      return value instanceof Framed ? { status: 200, framed: true, body: value.body } : { status: 200, framed: false, body: Buffer.from(canonical(value)) };
    } catch (why) {
      return refusal(call.endpoint, why);
    }
  }

  /** @param {import("./provider.mjs").Call<any>} call @returns {unknown} */
  member(call) {
    const { endpoint, request } = call;
    if (endpoint === "rollback") return this.journal.rollback(request.operation_id, request.member).then(() => ({ settled: true }));
    if (endpoint === "operation") throw new Failure("WireOperationUnknown"); // nothing here answers 202
    if (SERVED.has(endpoint)) return this.provider[/** @type {"execute"} */ (endpoint)](call);
    const absent = ENDPOINTS.get(endpoint)?.absent;
    throw absent ? conflict("", absent + "_unsupported") : new Failure("WireMemberUnknown");
  }
}

/** Of one length, so that comparing takes one time. @param {string} text */
const hashed = (text) => createHash("sha256").update(text).digest();

/** What is answered instead. What is no Failure is a bug of ours, or a host that has no more to give. @param {string} endpoint @param {unknown} why */
function refusal(endpoint, why) {
  if (why instanceof Refused) why = malformed("body", why.message);
  if (!(why instanceof Failure)) {
    console.error("provider: %s: %s", endpoint, why);
    why = failed("provider_error", undefined, String(why));
  }
  const failure = /** @type {Failure} */ (why);
  return { status: failure.status, framed: false, body: Buffer.from(canonical(failure.body(endpoint))) };
}

/**
 * Sends frames as they are made. Until there is one, a failure is an answer like any
 * other; from then on it is a frame.
 * @param {import("node:http").ServerResponse} outgoing
 * @param {Streamed} answer
 * @param {string} endpoint
 * @param {(answer: Answer) => Record<string, string | number>} head
 */
async function send(outgoing, { frames, leave }, endpoint, head) {
  const made = frames[Symbol.asyncIterator]();
  let go = () => {};
  outgoing.on("drain", () => go()).on("close", () => {
    leave();
    go();
  });
  outgoing.setTimeout(STANDSTILL);
  try {
    let next;
    try {
      next = await made.next();
    } catch (why) {
      const refused = refusal(endpoint, why);
      outgoing.writeHead(refused.status, head(refused)).end(refused.body);
      return;
    }
    const { "Content-Length": _, ...headers } = head({ status: 200, framed: true, body: Buffer.alloc(0) });
    outgoing.writeHead(200, headers);
    while (!next.done && !outgoing.destroyed) {
      if (!outgoing.write(next.value) && !outgoing.destroyed) await /** @type {Promise<void>} */ (new Promise((drained) => go = drained));
      try {
        next = await made.next();
      } catch (why) {
        outgoing.write(frame(4, refusal(endpoint, why).body));
        break;
      }
    }
    outgoing.end();
  } finally {
    await made.return?.(undefined);
  }
}

/** The headers of a request, each as often as it came. */
class Headers {
  /** @param {IncomingMessage} incoming */
  constructor(incoming) {
    this.raw = incoming.rawHeaders;
  }

  /** @param {string} name in lower case */
  all(name) {
    return this.raw.filter((_, i) => i % 2 === 1 && this.raw[i - 1]?.toLowerCase() === name);
  }

  /** The only value of a header. @param {string} name @param {RegExp} pattern @param {boolean} needed @param {boolean} [allowed] */
  one(name, pattern, needed, allowed = true) {
    const [value, another] = this.all(name);
    if (value === undefined && !needed) return undefined;
    if (value === undefined || another !== undefined || !allowed || !pattern.test(value)) throw malformed(name, "expected it once, in its form, where it belongs");
    return value;
  }

  /** @param {string} name @param {number} low @param {number} high @param {boolean} needed @param {boolean} [allowed] */
  number(name, low, high, needed, allowed) {
    const text = this.one(name, /^(0|[1-9][0-9]{0,15})$/, needed, allowed);
    if (text === undefined) return undefined;
    const value = Number(text);
    if (value < low || value > high) throw malformed(name, `expected ${low} to ${high}`);
    return value;
  }
}

/** The body of a request, which is refused by its head. @param {IncomingMessage} incoming @param {Headers} headers @param {number} most */
async function read(incoming, headers, most) {
  if (headers.all("transfer-encoding").length) throw malformed("content-length", "expected the length of the body");
  const length = headers.number("content-length", 0, Number.MAX_SAFE_INTEGER, true) ?? 0;
  if (length > most) throw new Failure("WirePayloadTooLarge", { maximum_bytes: most });
  /** @type {Buffer[]} */
  const parts = [];
  for await (const part of incoming) parts.push(part);
  return Buffer.concat(parts, length);
}

/** A framed request: its call, and the data behind it. @param {Buffer} body */
export function split(body) {
  const call = [], data = [];
  for (const [type, payload] of frames(body)) {
    if (type === 1 && !data.length) call.push(payload);
    else if (type === 2 && call.length) data.push(payload);
    else throw malformed("body", "expected call frames, then data");
  }
  const text = Buffer.concat(call);
  if (text.length > MAX_CALL) throw new Failure("WirePayloadTooLarge", { maximum_bytes: MAX_CALL });
  return { request: strict(text), data: Buffer.concat(data) };
}

/** A file that is too large is one before it is anything else. @param {any} request */
function tooLarge(request) {
  if (typeof request !== "object" || !Number.isInteger(request.size) || typeof request.path !== "string" || request.size <= MAX_FILE) return;
  throw new Failure("SandboxFileTooLarge", { path: request.path, maximum_bytes: MAX_FILE });
}

/** @param {{ endpoint: string, request: any, data: Buffer }} call */
function checkData({ endpoint, request, data }) {
  if (endpoint === "write_file") {
    if (data.length !== request.size) throw malformed("size", "expected as many bytes of data");
    if (digest(data) !== request.digest) throw malformed("digest", "expected the digest of the data");
  } else {
    const most = endpoint === "process_input" ? MAX_INPUT : MAX_FILE;
    if (data.length > most) throw new Failure("WirePayloadTooLarge", { maximum_bytes: most });
  }
}

/**
 * Listens at unix:PATH, or at an address of this machine.
 * @param {string} address
 * @param {Service} service
 */
export async function listen(address, service) {
  /** @param {Answer} answer @returns {Record<string, string | number>} */
  const head = ({ framed, body }) => ({
    "Checkfu-Wire": WIRE.revision, "Checkfu-Capabilities-Digest": service.digest, "Checkfu-Boot-Id": service.boot, "Content-Length": body.length,
    "Content-Type": framed ? "application/vnd.checkfu.frames" : "application/json",
    ...(framed ? { "Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no", Incremental: "?1" } : {}),
  });
  const server = createServer({ noDelay: true, maxHeaderSize: 16384, keepAliveTimeout: 120000, requestTimeout: 120000 }, async (incoming, outgoing) => {
    const answer = await service.serve(incoming);
    if (incoming.destroyed && !incoming.complete) return; // its caller went, and cancels nothing
    if (Number(incoming.headers["content-length"]) > MAX_DRAINED) outgoing.setHeader("Connection", "close");
    if (answer.streamed) await send(outgoing, answer.streamed, answer.endpoint ?? "", head);
    else outgoing.writeHead(answer.status, head(answer)).end(answer.body);
    incoming.resume(); // what of the body is still on its way
  });
  // What is no HTTP, has too many headers or does not come to its end.
  server.on("clientError", (why, socket) => {
    if (!socket.writable) return void socket.destroy();
    const answer = refusal("", malformed("body", String(why)));
    const lines = Object.entries({ ...head(answer), Connection: "close" }).map(([k, v]) => `${k}: ${v}\r\n`);
    socket.end(`HTTP/1.1 ${answer.status} Bad Request\r\n${lines.join("")}\r\n${answer.body}`);
  });
  const path = address.startsWith("unix:") ? address.slice(5) : undefined;
  const [, host, port] = address.match(/^(?:http:\/\/)?(127\.\d+\.\d+\.\d+|localhost|\[::1\]):(\d+)\/?$/) ?? [];
  if (path === undefined && !port) throw new Error("expected unix:PATH or HOST:PORT of this machine");
  await new Promise((done, refuse) => {
    server.once("error", refuse);
    server.listen(path === undefined ? { host: host?.replace(/[[\]]/g, ""), port: Number(port) } : { path }, () => done(undefined));
  });
  if (path !== undefined) chmodSync(path, 0o600);
  return server;
}
