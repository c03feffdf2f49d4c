// What an agent does with the two SDKs: a stream, an answer, a list, an error.
// Arguments: the relay's base URL, the run token. Prints one line of JSON.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const [base, token] = process.argv.slice(2);
const anthropic = new Anthropic({ baseURL: base, apiKey: token, maxRetries: 0 });
const openai = new OpenAI({ baseURL: base + "/v1", apiKey: token, maxRetries: 0 });
const out = {};

const message = { model: "m", max_tokens: 10, messages: [{ role: "user", content: "hello" }] };
out.message = (await anthropic.messages.stream(message).finalMessage()).usage.output_tokens;
out.beta = (await anthropic.beta.messages.stream(message).finalMessage()).usage.output_tokens;
out.count = (await anthropic.messages.countTokens({ model: "m", messages: message.messages })).input_tokens;

const chat = { model: "m", messages: [{ role: "user", content: "hello" }] };
out.chunks = 0;
for await (const chunk of await openai.chat.completions.create({ ...chat, stream: true })) {
  out.chunks += chunk.choices[0].delta.content.length; // fails on a chunk without a choice
}
out.response = "";
for await (const event of await openai.responses.create({ model: "m", input: "hello", stream: true })) {
  out.response += event.type === "response.completed" ? "." : event.delta;
}
out.models = (await openai.models.list()).data.map((m) => m.id);

const failure = async (call) => {
  try {
    await call();
    return "none";
  } catch (e) {
    return `${e.constructor.name} ${e.status} ${e.message}`;
  }
};
out.limited = await failure(() => anthropic.messages.create({ ...message, model: "limited" }));
out.cut = await failure(() => anthropic.messages.stream({ ...message, model: "cut" }).finalMessage());
out.forbidden = await failure(() => openai.chat.completions.create({ ...chat, model: "forbidden" }));
out.stale = await failure(() => new OpenAI({ baseURL: base + "/v1", apiKey: token.slice(0, -6) + "AAAAAA", maxRetries: 0 }).chat.completions.create(chat));
out.path = await failure(() => openai.embeddings.create({ model: "m", input: "x" }));
console.log(JSON.stringify(out));
