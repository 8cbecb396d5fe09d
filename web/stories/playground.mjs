// The playground; both homes have the same stories.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { assert, sees, type } from "./harness.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export async function accessible(page, context) {
  // The page runs no inline script, so that axe comes through the debugger.
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] }));
  const told = violations.map((found) => `${found.id}: ${found.nodes.map((node) => node.target.join(" ") + " " + (node.any[0]?.message ?? "")).slice(0, 3)}`);
  assert(told.length === 0, `${context ?? "axe"}: ${told.join("\n")}`);
}

export const POLICY = `apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: team-defaults
spec:
  rules:
  - name: quota
    match:
      any:
      - resources:
          kinds: [Namespace]
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: quota
      namespace: "{{request.object.metadata.name}}"
      synchronize: true
      data:
        data:
          pods: "10"
`;

export const NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: team-a\n";

const VALIDATE = `apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: no-host-network
spec:
  validationFailureAction: Enforce
  rules:
  - name: host-network
    match:
      any:
      - resources:
          kinds: [Pod]
    validate:
      message: host network is not allowed
      pattern:
        spec:
          hostNetwork: false
`;

const POD = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  hostNetwork: true\n  containers:\n  - name: a\n    image: a\n";

/** Opens the playground with two files. */
export async function open(page, context, policies = POLICY, resources = NAMESPACE) {
  await page.goto(await context.fresh());
  await page.locator(".cm-content").waitFor();
  await page.locator("[role=tab]", { hasText: "Policies" }).first().click();
  await type(page, "Policies", policies);
  await page.locator("[role=tab]", { hasText: "Resources" }).first().click();
  await type(page, "Resources", resources);
}

/** Opens the playground with files that it remembers: a browser takes minutes to type thousands of lines. */
async function remembering(page, context, policies, resources) {
  const files = [
    { path: "policies.yaml", role: "policies", text: policies },
    { path: "resources.yaml", role: "resources", text: resources },
  ];
  await page.addInitScript((kept) => localStorage.setItem("kiln-studio-workspace", kept), JSON.stringify({ files }));
  await page.goto(await context.fresh());
  await page.locator(".cm-content").waitFor();
}

export const stories = {
  "the page shows results of its first example": async (page, context) => {
    await page.goto(await context.fresh());
    await sees(page, ".result", "");
    const spent = await page.locator(".status").getAttribute("data-spent");
    assert(Number(spent) < 1000, `the first result took ${spent} ms`);
  },
  "a wrong policy shows the hint at its line": async (page, context) => {
    await open(page, context, POLICY.replace("synchronize", "sinchronize"));
    await page.locator("[role=tab]", { hasText: "Policies" }).first().click();
    await sees(page, ".problem", "sinchronize");
    await sees(page, ".problem .hint", "synchronize");
    assert((await page.locator(".problem .place").first().textContent()).startsWith("17:"), "the place is line 17");
    assert((await page.locator(".cm-lintRange").count()) > 0, "the text is marked");
  },
  "text that is not YAML is an error with its place": async (page, context) => {
    await open(page, context, "a: [1,\nb: }");
    await page.locator("[role=tab]", { hasText: "Policies" }).first().click();
    await sees(page, ".problem.error", "");
  },
  "a generated object is shown as a difference": async (page, context) => {
    await open(page, context);
    await sees(page, ".made", "ConfigMap team-a/quota");
    await page.locator("[data-tab=objects]").click();
    await sees(page, ".diff ins", "pods:");
  },
  "a refusal leads to its place in the resource": async (page, context) => {
    await open(page, context, VALIDATE, POD);
    await sees(page, ".result[data-result=fail]", "host network is not allowed");
    await page.locator(".faults .place").first().click();
    const line = await page.evaluate(() => document.getSelection()?.anchorNode?.parentElement?.closest(".cm-line")?.textContent);
    assert(line?.includes("hostNetwork"), `the cursor is in ${line}`);
  },
  "a resource of a kind that no rule names is told": async (page, context) => {
    await open(page, context, POLICY, POD);
    await page.locator("[data-tab=trace]").click();
    await sees(page, ".untouched", "no rule names this kind");
  },
  "results stay while the text cannot be read": async (page, context) => {
    await open(page, context);
    await sees(page, ".made", "ConfigMap team-a/quota");
    await page.locator("[role=tab]", { hasText: "Policies" }).first().click();
    await type(page, "Policies", `${POLICY}oops`);
    await sees(page, ".status", "cannot be read");
    await sees(page, ".stale .made", "ConfigMap team-a/quota");
  },
  "the trace says why a rule does not match": async (page, context) => {
    await open(page, context, POLICY.replace("kinds: [Namespace]", "kinds: [Pod]\n          names: [other]"), POD);
    await page.locator("[data-tab=trace]").click();
    await sees(page, ".trace .mark", "no");
  },
  "lineage draws policy, trigger and downstream": async (page, context) => {
    await open(page, context);
    await page.locator("[data-tab=lineage]").click();
    for (const name of ["team-defaults", "quota", "team-a"]) await sees(page, "svg.lineage .name", name);
  },
  "lineage of a clone chain has sources": async (page, context) => {
    await page.goto(await context.fresh());
    await page.locator("[data-action=gallery]").click();
    await page.locator(".example b", { hasText: /^sync-secrets$/ }).click();
    await page.locator("[data-tab=lineage]").click();
    await sees(page, "svg.lineage .head", "Source");
  },
  "the plan counts what would be created": async (page, context) => {
    await open(page, context);
    await page.locator("[data-tab=plan]").click();
    await sees(page, ".chip", "1 create");
    await sees(page, "#radius", "Blast radius");
  },
  "results become a test suite that passes and then fails": async (page, context) => {
    await open(page, context, VALIDATE, POD);
    await sees(page, ".result[data-result=fail]", "");
    await page.locator("[data-tab=tests]").click();
    await page.locator("button", { hasText: "Copy results as test suite" }).click();
    await sees(page, ".output .tag", "pass");
    await page.locator("[role=tab]", { hasText: "Policies" }).first().click();
    await type(page, "Policies", VALIDATE.replace("hostNetwork: false", "hostNetwork: true"));
    await sees(page, ".output .tag", "fail");
  },
  "a share link brings all files back": async (page, context, browserContext) => {
    await open(page, context);
    await sees(page, ".made", "team-a/quota");
    await page.locator("[data-action=share]").click();
    await page.waitForFunction(() => location.hash.startsWith("#w1."));
    const hash = new URL(page.url()).hash;
    const other = await browserContext.newPage();
    if (context.home === "static") {
      await other.goto(context.url + hash);
      await sees(other, ".made", "team-a/quota");
    } else {
      assert(hash.length > 100, "the link holds the files");
    }
  },
  "a broken share link is told and loses nothing": async (page, context) => {
    if (context.home !== "static") return;
    await page.goto(`${context.url}#w1.AAAA`);
    await sees(page, "#toast", "cannot be read");
    await sees(page, ".result", "");
  },
  "the gallery opens every example without an error": async (page, context) => {
    await page.goto(await context.fresh());
    await page.locator("[data-action=gallery]").click();
    await page.locator("dialog input").fill("jaeger-sidecar");
    await page.locator(".example b", { hasText: /^jaeger-sidecar$/ }).click();
    await page.locator("[data-tab=objects]").click();
    await sees(page, ".diff ins", "jaeger");
  },
  "a kustomization is built": async (page, context) => {
    await page.goto(await context.fresh());
    await page.locator("[data-action=gallery]").click();
    await page.locator(".example b", { hasText: /^overlay$/ }).click();
    await page.locator("[data-tab=build]").click();
    await sees(page, ".output pre", "kind: Deployment");
  },
  "a chart is rendered in the tab": async (page, context) => {
    await page.goto(await context.fresh());
    await page.locator("[data-action=gallery]").click();
    await page.locator(".example b", { hasText: /^chart-resource$/ }).click();
    await page.locator("[data-tab=build]").click();
    await sees(page, ".output pre", "kind: Service");
  },
  "completion offers the fields of a rule": async (page, context) => {
    await open(page, context);
    await page.locator("[role=tab]", { hasText: "Policies" }).first().click();
    await page.locator(".cm-content").click();
    await page.keyboard.press("Control+End");
    await page.keyboard.type("    precond");
    await sees(page, ".cm-tooltip-autocomplete", "preconditions");
  },
  "completion and hover know the kinds of Kubernetes": async (page, context) => {
    await open(page, context, POLICY, POD);
    await page.locator(".cm-content").click();
    await page.keyboard.press("Control+End");
    await page.keyboard.type("    imagePull");
    await sees(page, ".cm-tooltip-autocomplete", "imagePullPolicy");
    await page.keyboard.press("Escape");
    await page.locator(".cm-line", { hasText: "hostNetwork" }).hover({ position: { x: 40, y: 8 } });
    await sees(page, ".cm-tooltip-hover", "hostNetwork");
  },
  "the tour has five steps": async (page, context) => {
    await page.goto(await context.fresh());
    await page.locator("[data-action=tour]").click();
    await sees(page, ".tour", "Step 1 of 5");
    for (let step = 0; step < 5; step++) await page.keyboard.press("Enter");
    assert((await page.locator(".tour").count()) === 0, "the tour ended");
  },
  "the keyboard alone reaches files, results and gallery": async (page, context) => {
    await open(page, context);
    await page.keyboard.press("Escape");
    await page.locator(".output-pane [role=tab][aria-selected=true]").focus();
    await page.keyboard.press("ArrowRight");
    await sees(page, ".diff ins", "pods:");
    await page.locator("[data-action=gallery]").focus();
    await page.keyboard.press("Enter");
    await page.locator("dialog[open]").waitFor();
    await page.keyboard.press("Escape");
    const focused = await page.evaluate(() => document.activeElement?.getAttribute("data-action"));
    assert(focused === "gallery", `the focus is back at ${focused}`);
  },
  "axe finds nothing in the playground": async (page, context) => {
    await open(page, context);
    await sees(page, ".made", "team-a/quota");
    await accessible(page, "results");
    for (const tab of ["objects", "trace", "plan", "lineage", "tests"]) {
      await page.locator(`[data-tab=${tab}]`).click();
      await page.waitForTimeout(150);
      await accessible(page, tab);
    }
  },
  "axe finds nothing in the dark": {
    options: { colorScheme: "dark" },
    run: async (page, context) => {
      await open(page, context, VALIDATE, POD);
      await sees(page, ".result[data-result=fail]", "");
      await accessible(page, "dark");
      await page.locator("[data-tab=plan]").click();
      await sees(page, ".chip", "deny");
      await accessible(page, "dark plan");
    },
  },
  "a phone shows everything without scrolling sideways": {
    options: { viewport: { width: 390, height: 800 } },
    run: async (page, context) => {
      await open(page, context);
      await sees(page, ".made", "team-a/quota");
      for (const tab of ["results", "plan", "lineage"]) {
        await page.locator(`[data-tab=${tab}]`).click();
        await page.waitForTimeout(150);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert(wide <= 391, `${tab} is ${wide} pixels wide`);
      }
      await accessible(page, "phone");
    },
  },
  "script in every field stays text": async (page, context) => {
    const hostile = `'"><img src=x onerror=alert(1)><script>alert(2)</script>`;
    const policy = POLICY.replace("name: team-defaults", `name: ${JSON.stringify(hostile)}`)
      .replace("- name: quota", `- name: ${JSON.stringify(hostile)}`)
      .replace('pods: "10"', `pods: ${JSON.stringify(hostile)}`);
    await open(page, context, policy, NAMESPACE.replace("team-a", JSON.stringify(hostile)));
    await page.waitForTimeout(200);
    for (const tab of ["results", "objects", "trace", "plan", "lineage", "tests"]) {
      await page.locator(`[data-tab=${tab}]`).click();
      await page.waitForTimeout(120);
      assert((await page.locator("#app img, #app script").count()) === 0, `${tab} holds an element of the policy`);
    }
  },
  "a lineage of a thousand objects is drawn": async (page, context) => {
    const many = Array.from({ length: 1000 }, (_, at) => NAMESPACE.replace("team-a", `team-${at}`)).join("---\n");
    await remembering(page, context, POLICY, many);
    await sees(page, "[data-tab=objects] .badge", "1000");
    const drawing = page.evaluate(async () => {
      const output = document.querySelector(".output");
      const began = performance.now();
      document.querySelector("[data-tab=lineage]").click();
      while (output.querySelectorAll("svg.lineage .state").length < 1000) await new Promise(requestAnimationFrame);
      await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
      return Math.round(performance.now() - began);
    });
    const spent = await drawing;
    console.log(`     lineage of 1,000 objects: ${spent} ms (${context.home})`);
    context.figures.lineage = spent;
    assert(spent < context.lineageLimit, `it took ${spent} ms`);
  },
  "twenty policies and twenty resources are quick": async (page, context) => {
    const policies = Array.from({ length: 20 }, (_, at) => POLICY.replace("team-defaults", `p-${at}`).replace("name: quota\n      namespace", `name: quota-${at}\n      namespace`)).join("---\n");
    const resources = Array.from({ length: 20 }, (_, at) => NAMESPACE.replace("team-a", `team-${at}`)).join("---\n");
    await remembering(page, context, policies, resources);
    await sees(page, "[data-tab=results] .badge", "400");
    await page.locator(".cm-content").click();
    await page.keyboard.type("\n");
    await page.waitForTimeout(1500);
    const spent = Number(await page.locator(".status").getAttribute("data-spent"));
    console.log(`     20 policies × 20 resources: ${spent} ms (${context.home})`);
    context.figures.evaluation = spent;
    assert(spent < context.limit, `an evaluation took ${spent} ms`);
  },
};
