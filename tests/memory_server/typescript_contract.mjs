// Every public method of the official TypeScript SDK against our server. Run by test_typescript.py.
import assert from "node:assert/strict";
import { Honcho } from "@honcho-ai/sdk";

const [, , baseURL, workspaceId] = process.argv;
const honcho = new Honcho({ baseURL, workspaceId, apiKey: "unused", maxRetries: 0 });

async function all(page) {
  const found = [];
  for await (const item of page) found.push(item);
  return found;
}

async function reasoned() {
  for (;;) {
    const status = await honcho.queueStatus();
    if (status.pendingWorkUnits + status.inProgressWorkUnits === 0) return status;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

await honcho.setMetadata({ colour: "blue" });
assert.deepEqual(await honcho.getMetadata(), { colour: "blue" });
await honcho.setConfiguration({ reasoning: { enabled: true } });
assert.equal((await honcho.getConfiguration()).reasoning.enabled, true);
await honcho.refresh();
assert.deepEqual(await all(await honcho.workspaces({ id: workspaceId })), [workspaceId]);

const alice = await honcho.peer("alice", { metadata: { a: 1 } });
const bob = await honcho.peer("bob");
await alice.setMetadata({ b: 2 });
assert.deepEqual(await alice.getMetadata(), { b: 2 });
await alice.setConfiguration({ observeMe: true });
assert.equal((await alice.getConfiguration()).observeMe, true);
await alice.refresh();
assert.deepEqual((await all(await honcho.peers())).map((p) => p.id), ["alice", "bob"]);

const session = await honcho.session("talk", { metadata: { a: 1 } });
await session.setMetadata({ b: 2 });
assert.deepEqual(await session.getMetadata(), { b: 2 });
await session.setConfiguration({ summary: { enabled: true } });
assert.equal((await session.getConfiguration()).summary.enabled, true);
await session.refresh();
assert.deepEqual((await all(await honcho.sessions())).map((s) => s.id), ["talk"]);

await session.addPeers([alice, bob]);
await session.setPeerConfiguration(bob, { observeOthers: true });
assert.equal((await session.getPeerConfiguration(bob)).observeOthers, true);
await session.removePeers(bob);
assert.deepEqual((await session.peers()).map((p) => p.id), ["alice"]);
await session.setPeers([alice, bob]);
assert.deepEqual((await all(await bob.sessions())).map((s) => s.id), ["talk"]);

const made = await session.addMessages([alice.message("I live in Malta."), alice.message("I collect stamps.")]);
assert.deepEqual((await all(await session.messages())).map((m) => m.id), made.map((m) => m.id));
assert.deepEqual((await session.updateMessage(made[0], { seen: true })).metadata, { seen: true });
assert.deepEqual((await session.getMessage(made[0].id)).metadata, { seen: true });
const [uploaded] = await session.uploadFile(
  { filename: "notes.txt", content: Buffer.from("I am afraid of heights."), content_type: "text/plain" },
  alice,
);
assert.equal(uploaded.content, "I am afraid of heights.");

assert.ok((await reasoned()).totalWorkUnits >= 1);
assert.ok((await session.queueStatus()).totalWorkUnits >= 1);
assert.match(await alice.representation(), /Malta/);
assert.match(await session.representation(alice), /Malta/);
assert.match((await alice.context()).representation, /Malta/);
const context = await session.context({ tokens: 5000, peerTarget: "alice" });
assert.equal(context.messages.length, 3);
assert.match(context.peerRepresentation, /Malta/);
assert.ok((await session.summaries()).shortSummary == null);

assert.equal((await honcho.search("stamps"))[0].content, "I collect stamps.");
assert.equal((await alice.search("stamps"))[0].content, "I collect stamps.");
assert.equal((await session.search("stamps"))[0].content, "I collect stamps.");

assert.deepEqual(await alice.getCard(), ["alice: I live in Malta."]);
assert.deepEqual(await alice.setCard(["a line"], bob), ["a line"]);
assert.deepEqual(await alice.getCard(bob), ["a line"]);
assert.deepEqual(await alice.card(bob), ["a line"]);

const view = alice.conclusionsOf(bob);
const [concluded] = await view.create([{ content: "Bob collects stamps" }]);
assert.equal((await all(await view.list()))[0].id, concluded.id);
assert.equal((await view.query("stamps"))[0].id, concluded.id);
assert.equal((await view.get(concluded.id)).content, "Bob collects stamps");
assert.equal((await view.getMany([concluded.id])).length, 1);
assert.deepEqual(await all(await view.derived(concluded.id)), []);
assert.match(await view.representation(), /stamps/);
assert.equal((await honcho.conclusions.get(concluded.id)).id, concluded.id);
assert.ok((await all(await honcho.conclusions.list())).length >= 1);
assert.equal((await honcho.conclusions.getMany([concluded.id])).length, 1);
await view.delete(concluded.id);
await assert.rejects(view.get(concluded.id), /not found/i);
assert.ok((await all(await alice.conclusions.list())).length >= 1);

assert.match(await alice.chat("Where does she live?"), /Malta/);
assert.match(await honcho.chat("Who lives in Malta?"), /Malta/);
let streamed = "";
for await (const piece of await alice.chatStream("Where does she live?")) streamed += piece;
assert.match(streamed, /Malta/);
for await (const piece of await honcho.chatStream("Who lives in Malta?")) streamed += piece;

const scope = await honcho.scope("travel");
await scope.addSessions([session]);
assert.deepEqual((await all(await scope.sessions())).map((s) => s.id), ["talk"]);
assert.ok((await scope.status()) !== undefined);
assert.equal((await honcho.getScope("travel")).id, "travel");
assert.equal((await all(await honcho.scopes())).length, 1);
await scope.removeSession(session);

await honcho.scheduleDream({ observer: alice });
await reasoned();
const copy = await session.clone(made[0].id);
assert.equal((await all(await copy.messages())).length, 1);
await assert.rejects(session.getMessage("nothing"), /not found/i);
await assert.rejects(honcho.deleteWorkspace(workspaceId), /active sessions/);
await copy.delete();
await session.delete();
await honcho.deleteWorkspace(workspaceId);
console.log("all methods work");
