// Drives the viewer as a person does and checks what is on the page against the recorded run.
// Arguments: the page's address, the exported file, the metrics file to append to, the lines to append, a folder for screenshots.
"use strict";
const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { chromium } = require("playwright-core");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const [base, exported, metrics, more, shots] = process.argv.slice(2);
const executablePath = process.env.LENS_CHROMIUM || "/usr/bin/chromium";

// A page that reports every complaint of the browser and every request that leaves loopback.
async function watched(context, complaints) {
  const page = await context.newPage();
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) complaints.push(message.text()); });
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (!["127.0.0.1", ""].includes(url.hostname)) complaints.push("request to " + request.url());
  });
  return page;
}

async function accessible(page, name) {
  // The page's policy forbids injected scripts; the tool is run through the debugger instead.
  await page.evaluate(axe);
  const result = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa"] }));
  const serious = result.violations.filter((one) => ["serious", "critical"].includes(one.impact));
  const told = serious.map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.target.join(" ") + " " + (node.any[0] || {}).message).join("; ")}`);
  assert.deepStrictEqual(told, [], `accessibility of ${name}`);
}

async function main() {
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  const complaints = [];
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, colorScheme: "light" });
  const page = await watched(context, complaints);
  const shot = (name) => page.screenshot({ path: path.join(shots, name + ".png"), fullPage: true });
  const told = async (selector) => (await page.locator(selector).first().innerText()).trim();

  // One run: the list leads to its page.
  await page.goto(base);
  await page.waitForSelector("h1 .state");
  assert.match(page.url(), /#\/run\/demo-7$/);
  assert.match(await told("h1"), /demo · seed 7/);
  assert.ok(await page.locator("figure.chart svg").count() > 10, "curves are drawn");
  await accessible(page, "the run");
  await shot("run");

  // Live: the run writes, the page follows by itself.
  const batches = () => page.locator(".fact", { hasText: "optimizer steps" }).innerText();
  assert.match(await batches(), /4 batches/);
  fs.appendFileSync(metrics, fs.readFileSync(more));
  await page.locator(".fact", { hasText: "5 batches" }).waitFor({ timeout: 15000 });

  // Find an accepted fork by filter.
  await page.goto(base + "#/run/demo-7/episodes");
  await page.waitForSelector(".grid-row");
  await page.selectOption("select[data-filter=fork]", "accepted");
  await page.waitForFunction(() => document.getElementById("count").textContent.startsWith("5 of 15"));
  await page.locator(".grid-head button", { hasText: "gain" }).click();
  await page.waitForFunction(() => location.hash.includes("sort=gain"));
  await page.waitForSelector(".grid-row");
  const gains = await page.locator(".grid-row .good").allInnerTexts();
  assert.deepStrictEqual(gains, ["+0.300", "+0.290", "+0.280", "+0.270", "+0.260"]);
  await accessible(page, "the list");
  await shot("episodes");

  // Keyboard: down, open. The second best gain is batch 4.
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#verdict");
  assert.match(page.url(), /#\/run\/demo-7\/batch\/4\/episode\/1\/turn\/1\/fork$/);
  assert.match(await told("#hint"), /Look at the table first\./);
  assert.strictEqual(await told("#gain"), "gain +0.2900");
  assert.match(await told("#verdict"), /Accepted/);
  assert.match(await told(".eq"), /Δ = V_H − V_B = −0\.7100 − \(−1\.0000\) = \+0\.2900/);
  assert.strictEqual(await page.locator(".cell.base").count(), 3);
  assert.strictEqual(await page.locator(".cell.guided").count(), 3);
  assert.match(await page.locator(".cell.guided").nth(1).innerText(), /guided observation 1[\s\S]*guided 1/);
  assert.match(await page.locator(".cell.first-difference").first().innerText(), /turn 2/);
  await accessible(page, "the fork");
  await shot("fork");

  // A deep link to a turn; text of the environment is text; a token's hover names both favorites.
  await page.goto(base + "#/run/demo-7/batch/2/episode/0/turn/1");
  await page.waitForSelector("#turn-1[aria-current=true]");
  assert.match(await page.locator("#turn-1 .env").innerText(), /<img src=x onerror/);
  assert.strictEqual(await page.evaluate(() => window.broken), undefined, "nothing in an episode runs");
  await page.locator("#turn-1 .tok").nth(2).hover();
  const card = await told("#tip");
  assert.match(card, /" word2"/);
  assert.match(card, /teacher's favorite\s*" word7"/);
  assert.ok(await page.locator("#turn-1 .tok").nth(5).evaluate((node) => node.classList.contains("masked")));
  await page.locator("#turn-1 .heat").focus();
  await page.keyboard.press("ArrowRight");
  assert.match(await told("#tip"), /" word0"/);
  await page.keyboard.press("Tab");
  await page.locator("button[data-measure=weight]").click();
  assert.match(await told(".scale"), /≥ 5/);
  await page.keyboard.press("j");
  await page.waitForSelector("#turn-2[aria-current=true]");
  await accessible(page, "the episode");
  await shot("episode");

  // Dark, and it stays dark.
  const background = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  assert.strictEqual(await background(), "rgb(255, 255, 255)");
  await page.keyboard.press("t");
  assert.strictEqual(await background(), "rgb(15, 19, 23)");
  await page.reload();
  await page.waitForSelector(".turn");
  assert.strictEqual(await background(), "rgb(15, 19, 23)");
  await accessible(page, "the episode in the dark");
  await shot("dark");

  // Search from anywhere.
  await page.keyboard.press("/");
  await page.waitForSelector("#search");
  await page.keyboard.press("/");
  await page.keyboard.type("cup 2 on the table");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.hash.includes("text=") && document.getElementById("count").textContent.startsWith("5 of 15"));

  // A page that is not there says so.
  await page.goto(base + "#/run/demo-7/batch/99/episode/0");
  await page.locator("h1", { hasText: "Not shown" }).waitFor();
  const expected = complaints.filter((text) => !/status of (404|500)/.test(text));
  assert.deepStrictEqual(expected, [], "the browser has nothing to complain about");

  // The export, from disk, without a network.
  const offline = await browser.newContext({ offline: true, viewport: { width: 1400, height: 900 } });
  const quiet = [];
  const file = await watched(offline, quiet);
  await file.goto("file://" + exported + "#/run/demo-7/episodes?fork=accepted");
  await file.waitForSelector(".grid-row");
  await file.keyboard.press("Enter");
  await file.waitForSelector("#verdict");
  assert.match(await file.locator("#hint").innerText(), /Look at the table first\./);
  await file.screenshot({ path: path.join(shots, "export.png"), fullPage: true });
  assert.deepStrictEqual(quiet, [], "the export has nothing to complain about");
  await browser.close();
}

main().then(() => console.log("browser test passed"), (error) => { console.error(error); process.exit(1); });
