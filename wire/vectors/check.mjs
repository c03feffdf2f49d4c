#!/usr/bin/env node
// Checks this program's own codec of the wire against the golden vectors.
//
//     node check.mjs [DIRECTORY]
//     node check.mjs --judge < LINES
//
// The second form reads texts of JSON as hex, one a line, and says of each
// whether strict() takes it: to hold two codecs against each other on texts of
// your own.
//
// Node's standard library only. What is between the two lines below is all that
// a provider in JavaScript needs to read and write the wire: copy it.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

// --- the codec -------------------------------------------------------------

const MAX_FRAME = 1 << 20;
const TYPES = new Set([1, 2, 3, 4, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x1f]);
const OUT = 0x11, ERR = 0x12, PING = 0x1f;

/** The other side broke the wire; the message says how. */
export class Refused extends Error {}

/**
 * The one form of a value: sorted keys, no white space. Keys are ASCII.
 * @param {unknown} value
 * @returns {string}
 */
export function canonical(value) {
  if (Array.isArray(value)) return "[" + value.map(canonical).join(",") + "]";
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const table = /** @type {Record<string, unknown>} */ (value), keys = Object.keys(table).sort();
  return "{" + keys.map((k) => JSON.stringify(k) + ":" + canonical(table[k])).join(",") + "}";
}

/** @param {Uint8Array | string} data */
export const digest = (data) => "sha256:" + createHash("sha256").update(data).digest("hex");

/**
 * Reads JSON as the wire does. JSON.parse keeps the last of two equal keys, turns
 * 2^53 into its neighbour and 1.0 into 1, so this is a reader of its own.
 * @param {Uint8Array} data
 * @returns {any}
 */
export function strict(data) {
  let text = "";
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    throw new Refused("utf-8");
  }
  let at = 0;
  const space = () => { while (" \t\n\r".includes(text[at]) && at < text.length) at++; };
  /** @param {RegExp} pattern */
  const match = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found) at = pattern.lastIndex;
    return found && found[0];
  };
  const string = () => {
    const token = match(/"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001f]*)*"/y);
    if (token === null) throw new Refused("json");
    const s = JSON.parse(token);
    if (/\p{Surrogate}/u.test(s)) throw new Refused("lone surrogate");
    return s;
  };
  /** @param {number} depth @returns {unknown} */
  const value = (depth) => {
    space();
    const c = text[at];
    if (c === '"') {
      const s = string();
      unescape(s);
      return s;
    }
    if (c === "{" || c === "[") {
      if (depth === 16) throw new Refused("too deep");
      at++;
      const list = c === "[", end = list ? "]" : "}", out = Object.create(null), items = [];
      for (let first = true; ; first = false) {
        space();
        if (first && text[at] === end) { at++; return list ? items : out; }
        if (list) items.push(value(depth + 1));
        else {
          if (text[at] !== '"') throw new Refused("json");
          const key = string();
          if (key in out) throw new Refused("duplicate key");
          space();
          if (text[at++] !== ":") throw new Refused("json");
          out[key] = value(depth + 1);
        }
        space();
        const next = text[at++];
        if (next === end) return list ? items : out;
        if (next !== ",") throw new Refused("json");
      }
    }
    if (match(/true/y)) return true;
    if (match(/false/y)) return false;
    if (match(/null/y)) throw new Refused("null");
    const token = match(/-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y);
    if (token === null) throw new Refused("json");
    const n = Number(token);
    if (token === "-0") throw new Refused("minus zero");
    if (/[.eE]/.test(token)) throw new Refused("not an integer");
    if (!Number.isSafeInteger(n)) throw new Refused("integer out of range");
    return n;
  };
  const whole = value(0);
  space();
  if (at !== text.length) throw new Refused("trailing data");
  return whole;
}

const MARK = /\0([0-9a-f]{2})/g;

/**
 * Any bytes but as a text: what is no UTF-8, and NUL, as U+0000 and two digits.
 * @param {Buffer} raw
 */
export function escape(raw) {
  let text = "";
  const reader = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  for (let at = 0; at < raw.length; ) {
    const c = raw[at], size = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    let char = "\0";
    try {
      char = reader.decode(raw.subarray(at, at + size));
    } catch {}
    if (char !== "\0") {
      text += char;
      at += size;
    } else text += "\0" + raw[at++].toString(16).padStart(2, "0");
  }
  return text;
}

/**
 * The bytes of a text. One byte string has one form.
 * @param {string} text
 */
export function unescape(text) {
  if (!text.includes("\0")) return Buffer.from(text);
  if (/\0(?![0-9a-f]{2})/.test(text)) throw new Refused("escape");
  const parts = text.split(MARK).map((p, i) => Buffer.from(p, i % 2 ? "hex" : "utf8"));
  const raw = Buffer.concat(parts);
  if (escape(raw) !== text) throw new Refused("escape");
  return raw;
}

/** @param {number} type @param {Uint8Array} payload */
export function frame(type, payload) {
  const head = Buffer.alloc(5);
  head[0] = type;
  head.writeUInt32BE(payload.length, 1);
  return Buffer.concat([head, payload]);
}

/** @param {number} type @param {number} offset @param {Uint8Array} data */
export function output(type, offset, data) {
  const at = Buffer.alloc(8);
  at.writeBigUInt64BE(BigInt(offset));
  return frame(type, Buffer.concat([at, data]));
}

/**
 * Yields [type, payload]. Refuses by the head, before it takes the payload.
 * @param {Buffer} data
 * @returns {Generator<[number, Buffer]>}
 */
export function* frames(data) {
  for (let at = 0; at < data.length; ) {
    const type = data[at];
    if (data.length - at < 5) throw new Refused("truncated");
    const size = data.readUInt32BE(at + 1);
    if (!TYPES.has(type)) throw new Refused("unknown_type");
    if (size > MAX_FRAME) throw new Refused("too_long");
    if ((type === PING && size > 0) || ((type === OUT || type === ERR) && size <= 8)) throw new Refused("payload");
    const payload = data.subarray(at + 5, at + 5 + size);
    if (payload.length < size) throw new Refused("truncated");
    if ((type === OUT || type === ERR) && payload.readBigUInt64BE(0) + BigInt(size - 8) > BigInt(Number.MAX_SAFE_INTEGER)) throw new Refused("payload");
    yield [type, payload];
    at += 5 + size;
  }
}

// --- the check -------------------------------------------------------------

const bytes = (hex) => Buffer.from(hex ?? "", "hex");

function want(got, expected) {
  const [g, e] = [canonical(got), canonical(expected)];
  if (g !== e) throw new Error(`got ${g}, want ${e}`);
}

function refuses(read) {
  try {
    read();
  } catch (e) {
    if (e instanceof Refused) return e.message;
    throw e;
  }
  throw new Error("was taken");
}

function message(s) {
  const data = bytes(s.hex), value = strict(data);
  want(value, s.decoded);
  want(canonical(value), data.toString());
  want(digest(data), s.digest);
}

// What strict cannot see, a schema does: these reasons are about one type.
const typed = new Set(["unknown_key", "missing_key", "wrong_type", "form", "WirePayloadTooLarge"]);

function refusedMessage(s) {
  if (!typed.has(s.reason) || /^(escape|depth)-/.test(s.name)) refuses(() => strict(bytes(s.hex)));
}

function takenApart(expected, data) {
  const found = [...frames(data)];
  want(found.map(([t, p]) => [t, p.toString("hex")]), expected.map((f) => [f.type, f.payload_hex]));
  found.forEach(([type, payload], i) => {
    const f = expected[i];
    if (f.offset !== undefined) want(output(type, f.offset, bytes(f.bytes_hex)).toString("hex"), frame(type, payload).toString("hex"));
    else if (f.decoded) want(canonical(f.decoded), payload.toString());
  });
  want(Buffer.concat(found.map(([t, p]) => frame(t, p))).toString("hex"), data.toString("hex"));
}

function exchange(s) {
  for (const half of [s.request, s.response]) {
    const body = bytes(half.body_hex);
    want(digest(body), half.digest);
    if (half.frames) takenApart(half.frames, body);
    else if (half.json) {
      want(strict(body), half.json);
      want(canonical(half.json), body.toString());
    }
  }
}

function refusedFrame(s) {
  let taken = 0;
  want(refuses(() => { for (const _ of frames(bytes(s.hex))) taken++; }), s.reason);
  want(taken, (s.frames ?? []).length);
}

function escapes(s) {
  const { raw_hex, escaped_hex } = s.escapes[0];
  const text = () => {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes(escaped_hex));
    } catch {
      throw new Refused("utf-8");
    }
  };
  if (!s.accept) return void refuses(() => unescape(text()));
  want(Buffer.from(escape(bytes(raw_hex))).toString("hex"), escaped_hex);
  want(unescape(text()).toString("hex"), raw_hex);
  want(canonical(text()), bytes(s.hex).toString());
}

function canonicals(s) {
  const form = Buffer.from(canonical(JSON.parse(bytes(s.hex).toString())));
  want(form.toString("hex"), s.canonical);
  want(digest(form), s.digest);
}

function timestamp(s) {
  let good = /^(19[7-9][0-9]|[2-9][0-9]{3})-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$/.test(s.text);
  const date = new Date(s.text);
  good &&= !Number.isNaN(date.getTime()) && date.toISOString() === s.text;
  want(good, s.accept);
}

function crossed(s) {
  const value = strict(bytes(s.hex));
  want(value, s.decoded);
  if (s.accept) return;
  // The field that the Runner names holds what it says came.
  const got = s.refusal.field.match(/[^.[\]]+/g).reduce((v, step) => v[step], value.evidence ?? value.value);
  want(String(got), s.refusal.got);
}

function stream(s) {
  const { outcome } = s, ends = new Set();
  let have = bytes(outcome.prefix_hex), end, first = true;
  try {
    for (const [type, payload] of frames(bytes(s.hex))) {
      if (first !== (type === 0x10)) throw new Refused("open is the first frame and comes once");
      first = false;
      if (type === OUT) {
        const offset = Number(payload.readBigUInt64BE(0));
        if (ends.has(0x13)) throw new Refused("out after out_end");
        if (offset > have.length) throw new Refused("a gap");
        have = Buffer.concat([have, payload.subarray(8).subarray(have.length - offset)]);
      } else if (type === ERR && ends.has(0x14)) throw new Refused("err after err_end");
      else if (type === 0x13 || type === 0x14 || type === 0x16) {
        if (ends.has(type)) throw new Refused({ 0x13: "out_end", 0x14: "err_end", 0x16: "exit" }[type] + " twice");
        ends.add(type);
        const value = strict(payload);
        if (type === 0x13 && value.offset !== have.length) throw new Refused("out_end at another offset");
        if (type === 0x13 && value.digest !== digest(have)) throw new Refused("out_end with another digest");
        if (type === 0x16) want(value, outcome.exit ?? value);
        if (ends.size === 3) end = "complete";
      } else if (type === 0x17) end = strict(payload).reason;
      else if (type === 0x18) end = "truncated";
      else if (type === 0x04) end = "error";
      else if (type < 0x04) throw new Refused("a frame that no stream has");
      if (end) break;
    }
    end ??= "dropped";
  } catch (e) {
    if (!(e instanceof Refused)) throw e;
    end = e.message === "truncated" ? "dropped" : "violation";
    want(e.message, outcome.why ?? e.message);
  }
  want(end, outcome.end);
  want(have.toString("hex"), outcome.output_hex);
}

const nothing = () => {}; // data for a reader's own tests

const checks = {
  message, error: message, exchange, timestamp, stream,
  "refused-message": refusedMessage,
  "refused-request": (s) => want(strict(bytes(s.hex)), s.decoded),
  frame: (s) => takenApart(s.frames, bytes(s.hex)),
  "refused-frame": refusedFrame,
  escape: escapes, canonical: canonicals,
  identity: crossed, snapshot: crossed, clone: crossed, evidence: crossed,
  header: nothing, disposition: nothing,
};

function main(root) {
  let count = 0, failed = 0;
  for (const kind of readdirSync(join(root, "scenario")).sort()) {
    for (const name of readdirSync(join(root, "scenario", kind)).sort()) {
      const scenario = JSON.parse(readFileSync(join(root, "scenario", kind, name), "utf8"));
      count++;
      try {
        checks[kind](scenario);
      } catch (why) {
        failed++;
        console.log(`${kind}/${name}: ${why}`);
      }
    }
  }
  console.log(`${count} scenarios, ${failed} failed`);
  return failed || !count ? 1 : 0;
}

function judge() {
  const lines = readFileSync(0, "latin1").split("\n").slice(0, -1);
  const verdict = (line) => {
    try {
      strict(bytes(line.trim()));
      return "taken";
    } catch (why) {
      if (!(why instanceof Refused)) throw why;
      return "refused " + why.message;
    }
  };
  console.log(lines.map(verdict).join("\n"));
}

if (process.argv[1] !== fileURLToPath(import.meta.url)) {
  // imported
} else if (process.argv[2] === "--judge") {
  judge();
} else {
  process.exitCode = main(process.argv[2] ?? dirname(fileURLToPath(import.meta.url)));
}
