// Holds this provider's own reading of requests to the golden vectors of the kit:
// what is right passes, what is wrong is refused with the tag that a vector names.
// Starts nothing. kit/check.mjs checks the codec alone.
import { readFileSync, readdirSync } from "node:fs";

import { Refused, strict } from "./codec.mjs";
import { Failure, malformed } from "./failure.mjs";
import { admit, checkBatch, checkClone, checkCutoff, checkProgram, checkRead, checkReference } from "./admit.mjs";
import { check } from "./schema.mjs";
import { ENDPOINTS } from "./server.mjs";
import { DURABLE } from "./settings.mjs";

/** @typedef {{ schema: string, hex?: string, tag?: string, reason?: string }} Scenario */

const SCENARIOS = new URL("kit/scenario/", import.meta.url);
const REQUESTS = new Set([...ENDPOINTS.values()].map(({ schema }) => schema));

/** @param {string} kind @returns {[string, Scenario][]} */
function scenarios(kind) {
  const folder = new URL(kind + "/", SCENARIOS);
  return readdirSync(folder).sort().map((name) => /** @type {[string, Scenario]} */ ([`${kind}/${name}`, JSON.parse(readFileSync(new URL(name, folder), "utf8"))]))
    .filter(([, scenario]) => REQUESTS.has(scenario.schema));
}

/** The tag with which a request is refused and its reason, or nothing. @param {Scenario} scenario */
function refusal({ schema, hex = "" }) {
  try {
    let request;
    try {
      request = strict(Buffer.from(hex, "hex"));
    } catch (why) {
      throw why instanceof Refused ? malformed("body", why.message) : why;
    }
    check(schema, request);
    rules(schema, request);
    return "";
  } catch (why) {
    if (!(why instanceof Failure)) throw why;
    return [why.tag, why.fields.reason ?? why.fields.requirement ?? ""].join(" ").trim();
  }
}

/** What the members check of a request alone. @param {string} schema @param {any} request */
function rules(schema, request) {
  if (schema === "ProvisionRequest") admit(request);
  else if (schema === "CloneRequest") checkClone(request);
  else if (schema === "ResumeRequest") {
    checkReference(request.snapshot);
    admit(request.request);
  } else if (schema === "ExecuteCall") checkProgram(request.command);
  else if (schema === "OpenProcessRequest") checkProgram(request.process);
  else if (schema === "ReadFileRequest") checkRead(request.path, request.allowed_root);
  else if (schema === "ReadFilesRequest") checkBatch(request);
  else if (schema === "CleanupRequest") checkCutoff(request);
}

// Nothing of these is looked at by who does not offer what they ask for.
const ABSENT = new Set(DURABLE ? [] : ["CloneRequest", "ResumeRequest"]);

let count = 0, wrong = 0;
for (const kind of ["message", "refused-message", "refused-request"]) {
  for (const [name, scenario] of scenarios(kind)) {
    if (kind === "refused-request" && ABSENT.has(scenario.schema)) continue;
    let got = refusal(scenario), want = "";
    if (kind === "refused-message") want = "WireMalformed";
    else if (kind === "refused-request") want = [scenario.tag, scenario.reason].join(" ").trim();
    // Right, and of another provider than this one.
    else if (/^(Provision|Resume)Request$/.test(scenario.schema) && /^Sandbox(LifecycleConflict|CapabilityUnavailable)/.test(got)) got = "";
    count++;
    if (got === want) continue;
    wrong++;
    console.log(`${name}: ${got || "taken"}, want ${want || "taken"}`);
  }
}
console.log(`${count} requests, ${wrong} wrong`);
process.exitCode = wrong || !count ? 1 : 0;
