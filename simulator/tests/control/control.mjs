// Test of a bot by `chatrig serve`, in Node.js without packages. The bot is three calls by `fetch`.

import assert from "node:assert/strict";

const { CHATRIG_URL, CHATRIG_TOKEN, SLACK_API_URL, SLACK_BOT_TOKEN, OPENAI_BASE_URL, OPENAI_API_KEY } = process.env;

async function call(url, token, body) {
  const response = await fetch(url, {
    method: body ? "POST" : "GET",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
  });
  return { status: response.status, ...(await response.json()) };
}

const control = (path, body) => call(CHATRIG_URL + path, CHATRIG_TOKEN, body);

await control("/models/openai/add_responses", { responses: [{ type: "Say", text: "Sunny.", pieces: 2 }] });
const question = await control("/slack/mention_bot", { user: "ada", channel: "general", text: "Weather?" });
assert.equal(question.status, 200);

const answer = await call(`${OPENAI_BASE_URL}/responses`, OPENAI_API_KEY, { model: "m", input: question.text });
const channel = (await call(`${SLACK_API_URL}conversations.list`, SLACK_BOT_TOKEN, {})).channels[0].id;
const text = answer.output[0].content[0].text;
await call(`${SLACK_API_URL}chat.postMessage`, SLACK_BOT_TOKEN, { channel, thread_ts: question.id, text });

const reply = await control("/slack/wait_for_reply", { message: question.id, until: "Sunny." });
assert.equal(reply.thread, question.id);
assert.equal((await control("/models/openai/requests")).requests[0].text, question.text);

const refused = await control("/slack/mention_bot", { user: "eve", channel: "general", text: "hi" });
assert.deepEqual(refused, { status: 400, error: "there is no user eve" });
