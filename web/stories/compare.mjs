// node stories/compare.mjs --kiln PATH: the WebAssembly build in Node beside the native one, on the examples and on the recorded
// suites, if they are there. Both get the same workspaces and must give the same answers.

import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import { startKiln, web } from "./harness.mjs";

const at = process.argv.indexOf("--kiln");
const kiln = at < 0 ? join(web, "../target/debug/kiln") : process.argv[at + 1];
const dist = join(web, "dist");
const engine = await import(pathToFileURL(join(dist, "kiln.js")).href);
const { memory } = engine.initSync({ module: readFileSync(join(dist, "kiln.wasm")) });
const native = await startKiln(kiln, ["ui"]);
const { origin, hash } = new URL(native.url);
const token = hash.slice("#token=".length);

function below(directory) {
  return readdirSync(directory).flatMap((name) => {
    const path = join(directory, name);
    return statSync(path).isDirectory() ? below(path) : [path];
  });
}

/** Every directory with a suite, as a workspace. */
function suites(root) {
  if (!existsSync(root)) return [];
  return below(root)
    .filter((path) => path.endsWith("/kyverno-test.yaml"))
    .map((path) => {
      const directory = path.slice(0, -"/kyverno-test.yaml".length);
      const files = below(directory)
        .filter((file) => /\.(ya?ml|json)$/.test(file) && statSync(file).size < 500_000)
        .map((file) => {
          const name = relative(directory, file);
          return { path: name, role: name === "kyverno-test.yaml" ? "tests" : "tree", text: readFileSync(file, "utf8") };
        })
        // A kustomization beside a suite is not what is compared.
        .filter((file) => !/kustomization\.ya?ml$/.test(file.path));
      return { name: relative(root, directory), files };
    })
    .filter((workspace) => workspace.files.length <= 200);
}

/** What may differ: random names, times. */
function comparable(answer) {
  return JSON.stringify(answer).replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, "TIME");
}

const corpus = process.env.KILN_CORPUS ?? join(web, "../../shared/corpus");
const sets = {
  examples: JSON.parse(readFileSync(join(dist, "gallery.json"), "utf8")),
  "kyverno-cli": suites(join(corpus, "kyverno-cli")),
  "kyverno-cli-validate": suites(join(corpus, "kyverno-cli-validate")),
  "policy-library": suites(join(corpus, "policy-library")),
};
let differ = 0;

/** The answers of the process and of WebAssembly to one call. */
async function both(request) {
  const body = JSON.stringify(request);
  const answer = await fetch(`${origin}/api/call`, { method: "POST", headers: { "content-type": "application/json", "kiln-token": token }, body });
  let got;
  try {
    got = JSON.parse(engine.call(body, Date.now(), 7n));
  } catch (error) {
    got = { error: String(error) };
  }
  return [await answer.json(), got];
}

for (const [name, workspaces] of Object.entries(sets)) {
  let same = 0;
  const rows = { passed: 0, failed: 0 };
  for (const { name: of, files } of workspaces) {
    const [wanted, got] = await both({ method: "evaluate", trace: true, plan: true, lineage: true, workspace: { files } });
    rows.passed += wanted.tests?.summary.passed ?? 0;
    rows.failed += wanted.tests?.summary.failed ?? 0;
    if (comparable(wanted) === comparable(got)) same += 1;
    else {
      differ += 1;
      console.log(`${name} ${of} differs${got.error ? `: ${JSON.stringify(got.error)}` : ""}`);
    }
  }
  console.log(`corpus: WebAssembly beside native, ${name}: ${same} of ${workspaces.length} workspaces give the same answers (${rows.passed} test results passed, ${rows.failed} failed)`);
}

// The cluster of the tab, in logical time: nothing may differ at all.
let same = 0;
let moments = 0;
for (const { name, files } of sets.examples) {
  let equal = true;
  for (const request of [{ method: "cluster.start", workspace: { files } }, ...["list", "lineage", "timeline"].map((of) => ({ method: `cluster.${of}` }))]) {
    const [wanted, got] = await both(request);
    moments += wanted.entries?.length ?? 0;
    equal &&= JSON.stringify(wanted) === JSON.stringify(got);
  }
  if (equal) same += 1;
  else {
    differ += 1;
    console.log(`the cluster of ${name} differs`);
  }
}
console.log(`corpus: WebAssembly beside native, clusters of the examples: ${same} of ${sets.examples.length} have the same objects, lineage and timeline (${moments} moments)`);
console.log(`memory of WebAssembly after all: ${Math.round(memory.buffer.byteLength / 1e6)} MB`);
await native.stop();
process.exit(differ ? 1 : 0);
