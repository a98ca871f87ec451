// The openai package against Calinix, as an application would use it.
//
//	node client.mjs BASE DIRECT MODE PROTOCOL
//
// BASE is the site, DIRECT an engine of the same seed, whose answers are the
// truth; MODE is single or disaggregated; PROTOCOL is h1 (fetch as Node brings
// it) or h2 (undici's). Prints "ok NAME" for each part that holds and ends with
// status 1 at the first that does not.

import assert from "node:assert/strict";
import OpenAI, { BadRequestError } from "openai";
import { Agent, fetch as undiciFetch } from "undici";

const [base, direct, mode, protocol] = process.argv.slice(2);

function library(baseURL, options = {}) {
  return new OpenAI({ baseURL: baseURL + "/v1", apiKey: "sk-test", maxRetries: 0, timeout: 60_000, ...options });
}

const h2 = { fetch: undiciFetch, fetchOptions: { dispatcher: new Agent({ allowH2: true }) } };
const client = library(base, protocol === "h2" ? h2 : {});
const truth = library(direct);

const model = "m";

/** Text of n words that nobody else's text begins with. */
function prose(name, n) {
  const words = "river stone cloud garden letter window winter market engine bottle mirror forest".split(" ");
  let text = `${name} over ${protocol}`;
  for (let k = 0; k < n; k++) text += " " + words[(k * k + name.length) % words.length];
  return text;
}

/** One chat completion; streamed, it is put together from its chunks. */
async function complete(api, request, streamed) {
  if (!streamed) {
    const { data, response } = await api.chat.completions.create(request).withResponse();
    return { message: data.choices[0].message, reason: data.choices[0].finish_reason, usage: data.usage, headers: response.headers };
  }
  const { data: stream, response } = await api.chat.completions
    .create({ ...request, stream: true, stream_options: { include_usage: true } })
    .withResponse();
  assert.match(response.headers.get("content-type"), /^text\/event-stream/);
  const message = { role: "assistant", content: null };
  let reason, usage, chunks = 0;
  for await (const chunk of stream) {
    chunks++;
    usage ??= chunk.usage;
    for (const { delta, finish_reason } of chunk.choices) {
      if (delta.content) message.content = (message.content ?? "") + delta.content;
      for (const part of delta.tool_calls ?? []) {
        message.tool_calls ??= [];
        const call = (message.tool_calls[part.index] ??= { id: part.id, type: "function", function: { name: "", arguments: "" } });
        call.function.name += part.function?.name ?? "";
        call.function.arguments += part.function?.arguments ?? "";
      }
      reason ??= finish_reason;
    }
  }
  assert.ok(chunks >= usage.completion_tokens, `${chunks} chunks for ${usage.completion_tokens} tokens`);
  return { message, reason, usage, headers: response.headers };
}

/** Asks both ways and wants the same answer. */
async function ask(request, streamed) {
  const got = await complete(client, request, streamed);
  const want = await complete(truth, request, streamed);
  assert.deepEqual(got.message, want.message);
  assert.equal(got.reason, want.reason);
  assert.equal(got.usage.prompt_tokens, want.usage.prompt_tokens);
  assert.equal(got.usage.completion_tokens, want.usage.completion_tokens);
  assert.equal(got.headers.get("x-calinix-mode"), mode);
  if (mode === "disaggregated") assert.equal(got.headers.get("x-sim-leg"), "decode");
  return got;
}

/** The pod of which an answer's depth speaks, and that depth in blocks. */
function routed(headers) {
  const pod = headers.get(mode === "single" ? "x-calinix-target-pod-id" : "x-calinix-prefill-pod-id");
  const depth = Number(headers.get("x-calinix-cache-prefix-depth"));
  assert.ok(pod, "no pod in the headers");
  return { pod, depth };
}

async function chat(streamed) {
  const name = streamed ? "a streamed chat" : "a chat";
  const messages = [{ role: "system", content: prose(name, 30) }];
  let home, before;
  for (let turn = 1; turn <= 6; turn++) {
    messages.push({ role: "user", content: `Turn ${turn}: ${prose(name, 40)}?` });
    const got = await ask({ model, messages }, streamed);
    const { pod, depth } = routed(got.headers);
    if (turn === 1) home = pod;
    else {
      assert.equal(pod, home, `turn ${turn} left its pod`);
      assert.ok(Math.abs(depth - before / 16) <= 2, `turn ${turn}: depth ${depth} after ${before} tokens`);
    }
    before = got.usage.prompt_tokens;
    messages.push(got.message);
  }
}

async function tools(streamed) {
  const name = streamed ? "streamed tools" : "tools";
  const parameters = { type: "object", properties: { city: { type: "string" }, unit: { enum: ["°C", "°F"] } }, required: ["city"] };
  const request = {
    model,
    tools: [
      { type: "function", function: { name: "weather", description: prose("weather", 20), parameters } },
      { type: "function", function: { name: "time", parameters } },
    ],
    messages: [{ role: "system", content: prose(name, 30) }, { role: "user", content: "What is the weather like?" }],
  };
  const called = await ask({ ...request, tool_choice: { type: "function", function: { name: "weather" } } }, streamed);
  const [call, ...others] = called.message.tool_calls;
  assert.equal(others.length, 0);
  assert.equal(call.function.name, "weather");
  const { city, unit } = JSON.parse(call.function.arguments);
  assert.ok(city && /^°[CF]$/.test(unit), call.function.arguments);
  request.messages.push(called.message, { role: "tool", tool_call_id: call.id, content: '{"temperature":21}' });
  const answer = await ask(request, streamed);
  assert.ok(answer.message.content);
  assert.equal(answer.reason, "stop");
  assert.equal(routed(answer.headers).pod, routed(called.headers).pod);
}

async function parts() {
  const request = {
    model,
    messages: [{
      role: "user",
      content: [
        { type: "text", text: prose("two images", 40) },
        { type: "image_url", image_url: { url: "https://example.com/a.png", detail: "low" } },
        { type: "image_url", image_url: { url: "data:image/png;base64," + "AAAB".repeat(2048) } },
        { type: "text", text: prose("compare them", 30) },
      ],
    }],
  };
  const first = await ask(request, false);
  const again = await ask(request, true);
  assert.equal(routed(first.headers).depth, 0);
  assert.ok(routed(again.headers).depth >= first.usage.prompt_tokens / 16 - 2, "the images are another prompt at the second time");
}

async function embeddings() {
  for (const encoding_format of [undefined, "float", "base64"]) {
    const request = { model, input: ["one", "two", prose("three", 20)], dimensions: 24, encoding_format };
    const got = await client.embeddings.create(request);
    const want = await truth.embeddings.create(request);
    assert.equal(got.data.length, 3);
    assert.deepEqual(got.data, want.data);
    assert.deepEqual(got.usage, want.usage);
  }
}

async function completions() {
  const request = { model, prompt: prose("once upon a time", 30), max_tokens: 8 };
  const got = await client.completions.create(request);
  const want = await truth.completions.create(request);
  assert.equal(got.choices[0].text, want.choices[0].text);
  let text = "";
  for await (const chunk of await client.completions.create({ ...request, stream: true })) text += chunk.choices[0]?.text ?? "";
  assert.equal(text, want.choices[0].text);
}

async function responses() {
  const request = { model, instructions: prose("be brief", 10), input: prose("what is this", 40), max_output_tokens: 9 };
  const got = await client.responses.create(request);
  const want = await truth.responses.create(request);
  assert.ok(got.output_text);
  assert.equal(got.output_text, want.output_text);
  let text = "", last;
  for await (const event of await client.responses.create({ ...request, stream: true })) {
    last = event.type;
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.equal(text, want.output_text);
  assert.equal(last, "response." + want.status);
}

/** A stream that the application gives up must not disturb the next request. */
async function abort() {
  const stream = await client.chat.completions.create({ model, stream: true, max_tokens: 5000, ignore_eos: true, messages: [{ role: "user", content: "Never stop." }] });
  let chunks = 0;
  for await (const _ of stream) if (++chunks === 5) break; // the package aborts the request
  assert.equal(chunks, 5);
  await ask({ model, messages: [{ role: "user", content: prose("after an abort", 10) }] }, false);
}

async function refusals() {
  const messages = [{ role: "user", content: "hi" }];
  for (const stream of [false, true]) {
    await assert.rejects(client.chat.completions.create({ model, messages, stream, max_tokens: 1 << 30 }), (e) => {
      assert.ok(e instanceof BadRequestError, String(e));
      assert.equal(e.type, "BadRequestError"); // the engine's own
      return true;
    });
    await assert.rejects(client.chat.completions.create({ model, messages, stream }, { headers: { "x-calinix-mode": "sideways" } }), (e) => {
      assert.ok(e instanceof BadRequestError, String(e));
      assert.equal(e.type, "invalid_request_error"); // ours
      assert.ok(e.code && e.message);
      return true;
    });
  }
}

const all = {
  "chat": () => chat(false),
  "chat streamed": () => chat(true),
  "tools": () => tools(false),
  "tools streamed": () => tools(true),
  parts, embeddings, completions, responses, abort, refusals,
};
for (const [name, run] of Object.entries(all)) {
  try {
    await run();
    console.log("ok " + name);
  } catch (e) {
    console.log("not ok " + name + "\n" + e.stack + (e.cause ? "\ncause: " + e.cause.stack : ""));
    process.exit(1);
  }
}
process.exit(0); // connections that are kept would hold the process
