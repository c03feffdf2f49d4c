// What can be answered instead of an answer.

const STATUS = {
  SandboxCapabilityUnavailable: 422, SandboxFileTooLarge: 413, SandboxInstanceNotFound: 404, SandboxSnapshotNotFound: 404,
  SandboxLifecycleConflict: 409, SandboxOperationFailed: 500, SandboxOutputLimitExceeded: 422, SandboxSnapshotForbidden: 403,
  WireUnauthenticated: 401, WireMalformed: 400, WireUnsupported: 400, WireMemberUnknown: 404, WireOperationUnknown: 404,
  WireProcessNotFound: 404, WirePayloadTooLarge: 413, WireLeaseFenced: 409, WireOperationMismatch: 422, WireOperationRolledBack: 409,
  WireInputBufferFull: 429, WireInputGap: 409, WireInputClosed: 409, WireOutputTruncated: 410, WireCursorAhead: 409,
};

/** @typedef {keyof typeof STATUS} Tag */

/** One error of the contract or of the wire. */
export class Failure extends Error {
  /** The operation, where it is another than the endpoint. @type {string | undefined} */
  operation;

  /**
   * @param {Tag} tag
   * @param {Record<string, unknown>} [fields] beside _tag and operation
   */
  constructor(tag, fields = {}) {
    super(tag);
    this.tag = tag;
    this.fields = fields;
    this.status = STATUS[tag];
  }

  /** @param {string} operation */
  during(operation) {
    this.operation = operation;
    return this;
  }

  /** @param {string} operation that failed, where the failure does not say */
  body(operation) {
    // The endpoints of a live process are no members of the contract: its words name that which opened it.
    const member = this.tag.startsWith("Sandbox") && operation.startsWith("process_") ? "open_process" : operation;
    return { error: { ...this.fields, _tag: this.tag, operation: this.operation ?? member } };
  }
}

/** A message is for a log. @param {string} [text] */
const said = (text) => (text ? { message: text.slice(0, 300) } : {});

/** @param {string} reason @param {string} [path] @param {string} [message] */
export function failed(reason, path, message) {
  return new Failure("SandboxOperationFailed", { reason, ...(path === undefined ? {} : { path }), ...said(message) });
}

/** @param {string} message */
export function invalid(message) {
  return failed("invalid_request", undefined, message);
}

/** @param {string} requirement @param {string} [expected] @param {string} [actual] */
export function unavailable(requirement, expected = "", actual = "") {
  return new Failure("SandboxCapabilityUnavailable", { requirement, expected, actual });
}

/** @param {string} expected @param {string} actual */
export function conflict(expected, actual) {
  return new Failure("SandboxLifecycleConflict", { expected, actual });
}

/** @param {string} pointer @param {string} message */
export function malformed(pointer, message) {
  return new Failure("WireMalformed", { pointer, ...said(message) });
}
