// node stories/run.mjs --kiln PATH [NAME…]: all stories, or those with a word in their name.

import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { browserPath, launch, runStories, serveStatic, startKiln, temporary, web } from "./harness.mjs";
import { pageStories } from "./pages.mjs";
import { NAMESPACE, POLICY, stories } from "./playground.mjs";
import { tabStories } from "./tab-cluster.mjs";
import { applier, kubeconfigOf, sandboxStories, uiStories } from "./served.mjs";

function option(name) {
  const at = process.argv.indexOf(name);
  return at < 0 ? undefined : process.argv.splice(at, 2)[1];
}

function skip(name, missing, how) {
  console.log(`skipped: ${name}: ${missing}; to get it: ${how}`);
}

function has(program) {
  try {
    execFileSync(program, ["version", "--client"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

const kiln = option("--kiln") ?? join(web, "../target/debug/kiln");
if (!browserPath()) {
  skip("browser stories", "there is no Chromium", "apt-get install chromium, or set CHROMIUM");
  process.exit(0);
}
const browser = await launch();
const figures = {};
let passed = 0;
let failed = 0;
const add = (result) => {
  passed += result.passed;
  failed += result.failed;
};

/** What `kiln ui` serves. */
async function servedGroup() {
  const served = await startKiln(kiln, ["ui"]);
  const fresh = async () => served.url;
  // A debug build of the process is ten times slower than what is released, and the groups run beside each other.
  const context = { browser, kiln, figures: (figures.process = {}), home: "process", url: served.url, fresh, limit: 2000, lineageLimit: 10_000 };
  add(await runStories(prefixed("kiln ui: ", { ...stories, ...tabStories }), context));
  add(await runStories(uiStories, { browser, kiln, figures, url: served.url }));
  await served.stop();
}

/** What `kiln up --ui` serves. */
async function sandboxGroup() {
  const directory = temporary({ "p.yaml": POLICY, "n.yaml": NAMESPACE });
  const sandbox = await startKiln(kiln, ["up", join(directory, "p.yaml"), "--resource", join(directory, "n.yaml"), "--ui"]);
  const kubeconfig = kubeconfigOf(sandbox.output());
  const chosen = { ...sandboxStories };
  if (!has("kubectl")) {
    delete chosen["what kubectl changes appears"];
    skip("what kubectl changes appears", "there is no kubectl", "put it on PATH");
  }
  add(await runStories(chosen, { browser, kiln, figures, url: sandbox.url, kubeconfig, apply: applier(kubeconfig) }));
  await sandbox.stop();
}

const pages = async () => add(await runStories(pageStories, { browser, kiln, figures }));
await Promise.all([pages(), servedGroup(), sandboxGroup()]);

if (existsSync(join(web, "dist/kiln.wasm"))) {
  const files = await serveStatic();
  add(await runStories(prefixed("static: ", { ...stories, ...tabStories }), { browser, kiln, figures: (figures.tab = {}), home: "static", url: files.url, fresh: async () => files.url, limit: 50, lineageLimit: 1000 }));
  files.close();
} else {
  skip("stories of the static playground", "web/dist is not built", "cargo xtask web");
}
await browser.close();
console.log(`figures: ${JSON.stringify(figures)}`);
console.log(`test result: ${failed ? "FAILED" : "ok"}. ${passed} passed; ${failed} failed; 0 ignored`);
process.exit(failed ? 1 : 0);

function prefixed(prefix, entries) {
  return Object.fromEntries(Object.entries(entries).map(([name, story]) => [prefix + name, story]));
}
