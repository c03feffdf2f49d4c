// Holds a request to its schema of the author kit. Two kinds of refusal come of
// it: what is no such message is WireMalformed, what is one and breaks a rule of
// the contract is an adapter error (docs/wire.md, "Endpoints").
import { readFileSync } from "node:fs";

import { canonical } from "./codec.mjs";
import { invalid, malformed, unavailable } from "./failure.mjs";

/**
 * The part of JSON Schema that the kit uses.
 * @typedef {object} Rules
 * @property {string} [$ref]
 * @property {string} [type]
 * @property {unknown[]} [enum]
 * @property {unknown} [const]
 * @property {Schema[]} [allOf]
 * @property {Schema[]} [anyOf]
 * @property {Schema[]} [oneOf]
 * @property {Schema} [not]
 * @property {string} [pattern]
 * @property {number} [minLength]
 * @property {number} [maxLength]
 * @property {number} [minimum]
 * @property {number} [maximum]
 * @property {number} [minItems]
 * @property {number} [maxItems]
 * @property {boolean} [uniqueItems]
 * @property {Schema} [items]
 * @property {string[]} [required]
 * @property {Record<string, Schema>} [properties]
 * @property {Schema} [propertyNames]
 * @property {Schema} [additionalProperties]
 * @property {number} [maxProperties]
 * @property {Record<string, Schema>} [dependentSchemas]
 *
 * @typedef {boolean | Rules} Schema
 */

/** @type {Record<string, Schema>} */
const DEFINITIONS = JSON.parse(readFileSync(new URL("kit/schema/bundle.json", import.meta.url), "utf8")).$defs;

// A value of these is the wire's own, and so is what is wrong with it.
const WIRE_TYPES = new Set(["OperationID", "ProcessID", "AttachID", "Digest", "Timestamp", "Endpoint", "ControlSignal"]);
const WIRE_KEYS = new Set(["lease_epoch", "offset", "cursor", "wait_ms", "heartbeat_ms"]);

class Broken extends Error {
  /** @param {string} pointer @param {string} expected @param {boolean} form that the message has no such form */
  constructor(pointer, expected, form) {
    super(`${pointer}: expected ${expected}`);
    this.pointer = pointer;
    this.form = form;
  }
}

/**
 * Throws the Failure with which a provider answers.
 * @param {string} name @param {unknown} value
 */
export function check(name, value) {
  try {
    hold({ $ref: "#/$defs/" + name }, value, "", false);
  } catch (why) {
    if (!(why instanceof Broken)) throw why;
    if (why.form) throw malformed(why.pointer, why.message);
    if (/^(request\.)?mounts\b/.test(why.pointer)) throw unavailable("mounts", why.message);
    throw invalid(why.message);
  }
}

/** @param {Schema} schema @param {unknown} value */
function fits(schema, value) {
  try {
    hold(schema, value, "", false);
    return true;
  } catch (why) {
    if (why instanceof Broken) return false;
    throw why;
  }
}

/** @param {unknown} value */
const typeOf = (value) => (Array.isArray(value) ? "array" : typeof value === "number" ? "integer" : typeof value);

/** @param {string} at @param {string} key */
const join = (at, key) => (at ? `${at}.${key}` : key);

/**
 * @param {Schema} schema
 * @param {unknown} value
 * @param {string} at the field
 * @param {boolean} form says that whatever is wrong is wrong with the message
 */
function hold(schema, value, at, form) {
  /** @param {boolean} ok @param {string} expected @param {boolean} [always] */
  const want = (ok, expected, always = false) => {
    if (!ok) throw new Broken(at, expected, form || always);
  };
  if (typeof schema === "boolean") return want(schema, "nothing");
  if (schema.$ref !== undefined) {
    const name = schema.$ref.slice(schema.$ref.lastIndexOf("/") + 1);
    hold(DEFINITIONS[name] ?? false, value, at, form || WIRE_TYPES.has(name));
  }
  if (schema.type !== undefined) want(typeOf(value) === schema.type, schema.type, true);
  if (schema.enum) want(schema.enum.includes(value), JSON.stringify(schema.enum));
  if (schema.const !== undefined) want(value === schema.const, JSON.stringify(schema.const));
  for (const one of schema.allOf ?? []) hold(one, value, at, form);
  if (schema.anyOf) want(schema.anyOf.some((one) => fits(one, value)), "another form");
  if (schema.oneOf) want(schema.oneOf.filter((one) => fits(one, value)).length === 1, "one of several forms");
  if (schema.not !== undefined) want(!fits(schema.not, value), "another form");
  if (typeof value === "string") {
    const length = [...value].length;
    if (schema.pattern !== undefined) want(new RegExp(schema.pattern, "u").test(value), "the form " + schema.pattern);
    want((schema.minLength ?? 0) <= length && length <= (schema.maxLength ?? length), "another length");
  } else if (typeof value === "number") {
    want((schema.minimum ?? value) <= value && value <= (schema.maximum ?? value), "another number");
  } else if (Array.isArray(value)) {
    want((schema.minItems ?? 0) <= value.length && value.length <= (schema.maxItems ?? value.length), "another number of items");
    const { items } = schema;
    if (items !== undefined) value.forEach((item, i) => hold(items, item, `${at}[${i}]`, form));
    if (schema.uniqueItems) want(new Set(value.map(canonical)).size === value.length, "no duplicate");
  } else if (value !== null && typeof value === "object") {
    holdObject(schema, /** @type {Record<string, unknown>} */ (value), at, form, want);
  }
}

/**
 * @param {Rules} schema
 * @param {Record<string, unknown>} value
 * @param {string} at
 * @param {boolean} form
 * @param {(ok: boolean, expected: string) => void} want
 */
function holdObject(schema, value, at, form, want) {
  const keys = Object.keys(value);
  for (const key of schema.required ?? []) {
    if (!keys.includes(key)) throw new Broken(join(at, key), "to be there", true);
  }
  want(keys.length <= (schema.maxProperties ?? keys.length), "fewer entries");
  for (const key of keys) {
    if (schema.propertyNames !== undefined) hold(schema.propertyNames, key, at, form);
    const known = own(schema.properties, key);
    if (known !== undefined) hold(known, value[key], join(at, key), form || WIRE_KEYS.has(key));
    else if (schema.additionalProperties === false) throw new Broken(join(at, key), "no such key", true);
    else if (schema.additionalProperties !== undefined) hold(schema.additionalProperties, value[key], at, form); // a name of the environment, its value never
    const dependent = own(schema.dependentSchemas, key);
    if (dependent !== undefined) hold(dependent, value, at, form);
  }
}

/** What is under a key that came from outside: "constructor" is there too. @param {Record<string, Schema> | undefined} table @param {string} key */
const own = (table, key) => (table && Object.hasOwn(table, key) ? table[key] : undefined);
