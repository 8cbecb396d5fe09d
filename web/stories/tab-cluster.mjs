// A whole cluster in the page, in logical time; both homes have the same stories.

import { assert, sees, type } from "./harness.mjs";
import { accessible, NAMESPACE, open, POLICY } from "./playground.mjs";

const QUOTA = "[data-entry='v1|ConfigMap|team-a|quota']";

/** Opens the cluster of a playground. */
async function start(page, context, policies = POLICY, resources = "") {
  await open(page, context, policies, resources);
  await page.locator("[data-tab=cluster]").click();
  await sees(page, ".side", "objects");
}

async function apply(page, text) {
  await page.locator("button", { hasText: "Apply…" }).click();
  await page.locator(".apply-editor .cm-content").click();
  await page.keyboard.insertText(text);
  await page.locator("[data-action=apply]").click();
}

async function timeline(page) {
  await page.locator("[data-tab=timeline]").click();
  await page.locator(".log li").first().waitFor();
}

export const tabStories = {
  "a namespace that is created gets its downstream, also after it is deleted": async (page, context) => {
    await start(page, context);
    assert((await page.locator(QUOTA).count()) === 0, "there is no downstream yet");
    await apply(page, NAMESPACE);
    await page.locator(QUOTA).waitFor();
    await page.locator(QUOTA).click();
    await sees(page, ".explain", "made by policy team-defaults, rule quota");
    const uid = /^  uid: (\S+)/m.exec(await page.locator(".plain-text[aria-label=Object]").textContent())[1];
    await page.locator("[data-action=delete]").click();
    await sees(page, "#toast", "deleted");
    await page.waitForFunction((old) => !document.querySelector(".plain-text[aria-label=Object]")?.textContent.includes(`\n  uid: ${old}`), uid);
    await page.locator(QUOTA).waitFor();
    await timeline(page);
    await sees(page, ".log li", "you");
    await sees(page, ".log li", "Kiln");
  },
  "time goes back and forth": async (page, context) => {
    await start(page, context);
    await apply(page, NAMESPACE);
    await page.locator(QUOTA).waitFor();
    await timeline(page);
    const end = Number(await page.locator(".timeline input[type=range]").getAttribute("max"));
    assert(end >= 3, `only ${end} things happened`);
    while (await page.locator(QUOTA).count()) await page.locator("[data-action=back]").click();
    await sees(page, ".log li[aria-current=true], .timeline", "");
    await page.locator("[data-action=play]").click();
    await page.locator(QUOTA).waitFor();
    await page.locator(".log button", { hasText: "team-defaults" }).first().click();
    await page.locator(QUOTA).waitFor({ state: "detached" });
    await page.locator(".log button").last().click();
    await page.locator(QUOTA).waitFor();
  },
  "time that is held goes on step by step": async (page, context) => {
    await start(page, context);
    await timeline(page);
    await page.locator("[data-action=hold]").check();
    await apply(page, NAMESPACE);
    await sees(page, "#toast", "applied");
    await page.locator(".side summary", { hasText: "team-a" }).waitFor();
    assert((await page.locator(QUOTA).count()) === 0, "nothing happens while time is held");
    await timeline(page);
    for (let step = 0; step < 40 && !(await page.locator(QUOTA).count()); step++) {
      await page.locator("[data-action=step]").click();
      await page.waitForTimeout(60);
    }
    await page.locator(QUOTA).waitFor();
  },
  "what the server refuses is told": async (page, context) => {
    await start(page, context);
    await apply(page, NAMESPACE.replace("team-a", "Team A"));
    await sees(page, "#toast", "Team A");
  },
  "a policy denies in the tab as in a cluster": async (page, context) => {
    const deny = `apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: named}
spec:
  validationFailureAction: Enforce
  rules:
  - name: prefix
    match: {any: [{resources: {kinds: [ConfigMap], names: ["x-*"]}}]}
    validate: {message: names begin otherwise, pattern: {metadata: {name: "y-*"}}}
`;
    await start(page, context, deny);
    await apply(page, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x-1, namespace: default}\n");
    await sees(page, "#toast", "names begin otherwise");
    await page.locator("button", { hasText: "Cancel" }).click();
    await timeline(page);
    await sees(page, ".log li", "denied");
  },
  "the lineage of the tab says what is waited for": async (page, context) => {
    const clone = POLICY.replace(/      data:[\s\S]*$/, "      clone: {namespace: default, name: missing}\n");
    await start(page, context, clone, NAMESPACE);
    await page.locator("[data-tab=lineage]").click();
    await sees(page, "svg.lineage .state", "waiting");
    await apply(page, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: missing, namespace: default}\ndata: {a: b}\n");
    await page.locator(QUOTA).waitFor();
    await page.locator("[data-tab=lineage]").click();
    await sees(page, "svg.lineage .state", "synchronized");
    await sees(page, "svg.lineage .head", "Source");
  },
  "the cluster of the tab begins with the files of the playground": async (page, context) => {
    await start(page, context, POLICY, NAMESPACE);
    await page.locator(QUOTA).waitFor();
    await page.locator("[data-tab=playground]").click();
    await page.locator("[role=tab]", { hasText: "Resources" }).first().click();
    await type(page, "Resources", NAMESPACE.replace("team-a", "team-b"));
    await page.locator("[data-tab=cluster]").click();
    await page.locator("[data-entry='v1|ConfigMap|team-b|quota']").waitFor();
  },
  "axe finds nothing in the cluster of the tab": async (page, context) => {
    await start(page, context, POLICY, NAMESPACE);
    await sees(page, "svg.lineage .state", "synchronized");
    await accessible(page, "lineage");
    await timeline(page);
    await accessible(page, "timeline");
    await page.locator(QUOTA).click();
    await sees(page, ".explain", "made by");
    await accessible(page, "object");
  },
  "a phone shows the cluster of the tab": {
    options: { viewport: { width: 390, height: 800 }, colorScheme: "dark" },
    run: async (page, context) => {
      await start(page, context, POLICY, NAMESPACE);
      await timeline(page);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert(wide <= 391, `the timeline is ${wide} pixels wide`);
      await accessible(page, "phone");
    },
  },
};
