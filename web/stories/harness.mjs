// Runs stories in a real browser: each is a name and a function that gets a page.

import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

export const web = fileURLToPath(new URL("..", import.meta.url));

/** Where Debian, Ubuntu and others put the browser. */
export function browserPath() {
  const named = process.env.CHROMIUM;
  const known = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
  return [named, ...known].find((path) => path && existsSync(path));
}

export async function launch() {
  return chromium.launch({ executablePath: browserPath(), args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb"] });
}

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".json": "application/json", ".wasm": "application/wasm" };

/** Serves the static playground on loopback. */
export async function serveStatic() {
  const root = join(web, "dist");
  const server = createServer((request, response) => {
    const path = new URL(request.url, "http://x").pathname;
    const file = join(root, path === "/" ? "index.html" : path.slice(1));
    if (!file.startsWith(root) || !existsSync(file)) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "application/octet-stream" }).end(readFileSync(file));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return { url: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}

export function temporary(files = {}) {
  const directory = mkdtempSync(join(tmpdir(), "kiln-stories-"));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text);
  return directory;
}

/** Starts kiln with arguments; waits for the line with its address. */
export async function startKiln(kiln, args) {
  const child = spawn(kiln, args, { stdio: ["ignore", "pipe", "pipe"] });
  let out = "";
  let err = "";
  child.stderr.on("data", (data) => (err += data));
  const ended = new Promise((done) => child.on("exit", done));
  const url = await new Promise((done, fail) => {
    child.stdout.on("data", (data) => {
      out += data;
      const found = out.match(/Kiln Studio: (\S+)/);
      if (found) done(found[1]);
    });
    child.on("exit", (code) => fail(new Error(`kiln ${args.join(" ")} ended with ${code}: ${err}`)));
  });
  const stop = async () => {
    child.kill("SIGTERM");
    await ended;
  };
  return { url, output: () => out, stop };
}

export function assert(condition, message) {
  if (!condition) throw new Error(message);
}

/** Replaces what an editor holds. */
export async function type(page, label, text) {
  const editor = page.locator(`.cm-content[aria-label^="${label}"]`);
  await editor.click();
  await page.keyboard.press("Control+a");
  await page.keyboard.insertText(text);
}

/** Waits until an element has a text. */
export async function sees(page, selector, text) {
  await page.locator(selector).filter({ hasText: text }).first().waitFor({ timeout: 10_000 });
}

export async function runStories(stories, context) {
  let passed = 0;
  const failures = [];
  const wanted = process.argv.slice(2).filter((word) => !word.startsWith("--"));
  for (const [name, story] of Object.entries(stories)) {
    if (wanted.length && !wanted.some((word) => name.includes(word))) continue;
    const browserContext = await context.browser.newContext({ viewport: { width: 1280, height: 800 }, ...story.options });
    browserContext.setDefaultTimeout(10_000);
    // While the page is worked on: files of web/bundle, without building the binary again.
    if (process.env.STORY_BUNDLE) {
      await browserContext.route(/^http.*\/(app\.js|app\.css|gallery\.json)$/, (route) => route.fulfill({ path: join(web, "bundle", new URL(route.request().url()).pathname.slice(1)) }));
    }
    const page = await browserContext.newPage();
    const foreign = [];
    const errors = [];
    page.on("request", (request) => {
      const { hostname, protocol } = new URL(request.url());
      if (protocol.startsWith("http") && hostname !== "127.0.0.1") foreign.push(request.url());
    });
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("dialog", (dialog) => {
      errors.push(`a script ran: ${dialog.message()}`);
      void dialog.dismiss();
    });
    const began = Date.now();
    try {
      await (story.run ?? story)(page, context, browserContext);
      assert(foreign.length === 0, `requests left the page: ${foreign}`);
      assert(errors.length === 0, `errors in the page: ${errors.join("; ")}`);
      passed += 1;
      console.log(`ok   ${name} (${Date.now() - began} ms)`);
    } catch (error) {
      failures.push(name);
      // The browser's own log of attempts says nothing more than its first lines.
      console.log(`FAIL ${name}: ${String(error.stack ?? error).split("\n").filter((line) => !/^\S*\s+(\S*)?- /.test(line)).slice(0, 8).join("\n")}`);
      if (process.env.STORY_SHOTS) await page.screenshot({ path: join(process.env.STORY_SHOTS, `${name.replaceAll(" ", "-")}.png`) }).catch(() => undefined);
    }
    await browserContext.close();
  }
  return { passed, failed: failures.length };
}
