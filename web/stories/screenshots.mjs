// node stories/screenshots.mjs --kiln PATH: the pictures of README and documentation, into docs/pictures.

import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { launch, startKiln, temporary, web } from "./harness.mjs";

const at = process.argv.indexOf("--kiln");
const kiln = at < 0 ? join(web, "../target/debug/kiln") : process.argv[at + 1];
const into = process.env.SHOTS ?? join(web, "../docs/pictures");
mkdirSync(into, { recursive: true });
const examples = join(web, "../examples");

const browser = await launch();
async function shot(name, url, options, prepare) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 760 }, ...options });
  const page = await context.newPage();
  await page.goto(url);
  await prepare(page);
  await page.waitForTimeout(400);
  await page.screenshot({ path: join(into, `${name}.png`) });
  await context.close();
  console.log(`${name}.png`);
}

const example = (name) => [join(examples, name, "rules.yaml"), "--resource", join(examples, name, "resources.yaml")];
const clone = [...example("generate/sync-secrets"), "--target-resource", join(examples, "generate/sync-secrets/others.yaml")];

const playground = await startKiln(kiln, ["ui", ...example("validate/require-limits")]);
await shot("studio-playground", playground.url, {}, async (page) => {
  await page.locator(".result[data-result=fail]").first().waitFor();
});
await shot("studio-playground-dark", playground.url, { colorScheme: "dark" }, async (page) => {
  await page.locator(".result").first().waitFor();
  await page.locator("[data-tab=trace]").click();
  await page.locator(".tree").first().waitFor();
});
await shot("studio-phone", playground.url, { viewport: { width: 390, height: 844 } }, async (page) => {
  await page.locator(".result").first().waitFor();
  await page.locator(".output-pane").scrollIntoViewIfNeeded();
});
await playground.stop();

const lineage = await startKiln(kiln, ["ui", ...clone]);
await shot("studio-lineage", lineage.url, {}, async (page) => {
  await page.locator("[data-tab=lineage]").click();
  await page.locator("svg.lineage").waitFor();
});
await lineage.stop();

const page = join(temporary(), "plan.html");
writeFileSync(page, execFileSync(kiln, ["apply", ...clone, "--format", "html"]));
await shot("studio-plan", pathToFileURL(page).href, {}, async (shown) => {
  await shown.locator(".objects summary").first().click();
});

const policies = temporary({
  "p.yaml": `apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: team-defaults
spec:
  rules:
  - name: quota
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate:
      apiVersion: v1
      kind: ResourceQuota
      name: quota
      namespace: "{{request.object.metadata.name}}"
      synchronize: true
      data: {spec: {hard: {pods: "10"}}}
  - name: pull-secret
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate:
      apiVersion: v1
      kind: Secret
      name: registry
      namespace: "{{request.object.metadata.name}}"
      synchronize: true
      clone: {namespace: default, name: registry}
`,
  "n.yaml": ["shop", "team-a", "team-b"].map((name) => `apiVersion: v1\nkind: Namespace\nmetadata: {name: ${name}}\n`).join("---\n"),
  "s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: registry, namespace: default}\nstringData: {token: t}\n",
});
const sandbox = await startKiln(kiln, ["up", join(policies, "p.yaml"), "--resource", `${join(policies, "s.yaml")},${join(policies, "n.yaml")}`, "--ui"]);
await shot("studio-cluster", sandbox.url, {}, async (shown) => {
  await shown.locator("svg.lineage .state").nth(3).waitFor({ timeout: 20_000 });
});
await shot("studio-health", sandbox.url, {}, async (shown) => {
  await shown.locator("[data-tab=health]").click();
  await shown.locator(".health td").first().waitFor({ timeout: 20_000 });
});
await sandbox.stop();
await browser.close();
