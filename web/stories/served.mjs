// What `kiln ui` and `kiln up --ui` do besides the playground.

import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { accessible, NAMESPACE, POLICY } from "./playground.mjs";
import { assert, sees, startKiln, temporary } from "./harness.mjs";

/** A call as another page would make it. */
async function call(url, headers, body = { method: "state" }) {
  const { origin } = new URL(url);
  return fetch(`${origin}/api/call`, { method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) });
}

function token(url) {
  return new URL(url).hash.slice("#token=".length);
}

export const uiStories = {
  "kiln ui shows the files that it was given": async (page, context) => {
    const directory = temporary({ "p.yaml": POLICY, "r.yaml": NAMESPACE });
    const kiln = await startKiln(context.kiln, ["ui", join(directory, "p.yaml"), "--resource", join(directory, "r.yaml")]);
    try {
      await page.goto(kiln.url);
      await sees(page, ".made", "ConfigMap team-a/quota");
      assert(!page.url().includes("token"), "the token is out of the address bar");
    } finally {
      await kiln.stop();
    }
  },
  "a missing or wrong token is refused": async (page, context) => {
    assert((await call(context.url, {})).status === 401, "no token");
    assert((await call(context.url, { "kiln-token": "0".repeat(32) })).status === 401, "a wrong token");
    assert((await call(context.url, { "kiln-token": token(context.url) })).status === 200, "the right token");
    await page.goto(context.url.split("#")[0]);
    await sees(page, "[role=alert]", "open the one that kiln ui printed");
  },
  "a foreign origin is refused": async (_page, context) => {
    const own = { "kiln-token": token(context.url) };
    assert((await call(context.url, { ...own, origin: "http://evil.example" })).status === 403, "a foreign Origin");
    assert((await call(context.url, { ...own, "sec-fetch-site": "cross-site" })).status === 403, "a foreign site");
  },
  "a foreign host name is refused": async (_page, context) => {
    const { request } = await import("node:http");
    const { port } = new URL(context.url);
    const status = await new Promise((done) => {
      request({ host: "127.0.0.1", port, path: "/", headers: { host: `evil.example:${port}` } }, (answer) => done(answer.statusCode)).end();
    });
    assert(status === 403, `a name that was rebound got ${status}`);
  },
  "every answer has a strict policy": async (_page, context) => {
    const answer = await fetch(context.url.split("#")[0]);
    const policy = answer.headers.get("content-security-policy");
    assert(policy.includes("default-src 'none'") && policy.includes("frame-ancestors 'none'"), policy);
    assert(!/script-src[^;]*unsafe/.test(policy), policy);
    assert(answer.headers.get("x-content-type-options") === "nosniff", "nosniff");
  },
};

export const sandboxStories = {
  "the sandbox shows a downstream and its lineage": async (page, context) => {
    await page.goto(context.url);
    await page.locator("[data-action]").first().waitFor();
    await sees(page, ".side summary", "team-a");
    await sees(page, "svg.lineage .name", "team-defaults");
    await sees(page, "svg.lineage .state", "synchronized");
  },
  "an object explains itself": async (page, context) => {
    await page.goto(context.url);
    await page.locator("[data-entry='v1|ConfigMap|team-a|quota']").click();
    await sees(page, ".explain", "made by policy team-defaults");
    await accessible(page, "object");
  },
  "a namespace that is applied gets its downstream": async (page, context) => {
    await page.goto(context.url);
    await page.locator("button", { hasText: "Apply…" }).click();
    await page.locator(".cm-content").click();
    await page.keyboard.insertText(NAMESPACE.replace("team-a", "team-new"));
    await page.locator("[data-action=apply]").click();
    await page.locator("[data-entry='v1|ConfigMap|team-new|quota']").waitFor({ state: "attached", timeout: 15_000 });
  },
  "a deleted downstream returns": async (page, context) => {
    await page.goto(context.url);
    await page.locator("[data-entry='v1|ConfigMap|team-a|quota']").click();
    await page.locator("[data-action=delete]").click();
    await sees(page, "#toast", "deleted");
    await page.waitForTimeout(300);
    await page.locator("[data-entry='v1|ConfigMap|team-a|quota']").waitFor({ state: "attached", timeout: 15_000 });
  },
  "what kubectl changes appears": async (page, context) => {
    await page.goto(context.url);
    await sees(page, ".side summary", "team-a");
    const file = join(temporary(), "n.yaml");
    writeFileSync(file, NAMESPACE.replace("team-a", "from-outside"));
    context.apply(file);
    await page.locator(".side summary", { hasText: "from-outside" }).waitFor({ timeout: 15_000 });
  },
  "a cluster of a kubeconfig is shown and cannot be written": async (page, context) => {
    const kiln = await startKiln(context.kiln, ["ui", "--kubeconfig", context.kubeconfig]);
    try {
      const own = { "kiln-token": token(kiln.url) };
      for (const body of [{ method: "cluster.apply", yaml: NAMESPACE }, { method: "cluster.delete", object: "v1|Namespace||team-a" }]) {
        const answer = await (await call(kiln.url, own, body)).json();
        assert(answer.error?.message.includes("read only"), JSON.stringify(answer));
      }
      await page.goto(kiln.url);
      await sees(page, ".side summary", "team-a");
      await sees(page, "svg.lineage .name", "team-defaults");
      assert((await page.locator("button", { hasText: "Apply…" }).count()) === 0, "there is no way to apply");
    } finally {
      await kiln.stop();
    }
  },
  "the lineage is filtered by namespace and state": async (page, context) => {
    await page.goto(context.url);
    await sees(page, "svg.lineage .name", "team-defaults");
    await page.locator("select[aria-label='All states']").selectOption("drifted");
    await sees(page, ".lineage-box", "No rule made");
  },
  "health shows policies and what doctor says": async (page, context) => {
    await page.goto(context.url);
    await page.locator("[data-tab=health]").click();
    await sees(page, ".health td", "team-defaults");
    await sees(page, ".health h3", "What kiln doctor says");
    await accessible(page, "health");
  },
  "axe finds nothing in the cluster view": async (page, context) => {
    await page.goto(context.url);
    await sees(page, "svg.lineage .name", "team-defaults");
    await accessible(page, "cluster");
    await page.locator("[data-tab=timeline]").click();
    await page.waitForTimeout(300);
    await accessible(page, "timeline");
  },
};

/** kubectl is another client. */
export function kubeconfigOf(output) {
  return output.match(/export KUBECONFIG=(\S+)/)[1].replaceAll("'", "");
}

export function applier(kubeconfig) {
  return (file) => execFileSync("kubectl", ["--kubeconfig", kubeconfig, "apply", "-f", file], { stdio: "pipe" });
}
