// The pages that `kiln plan` and `kiln apply` write.

import { execFileSync } from "node:child_process";
import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { accessible, NAMESPACE, POLICY } from "./playground.mjs";
import { assert, sees, temporary, web } from "./harness.mjs";

function applied(context, policy, resources) {
  const directory = temporary({ "p.yaml": policy, "r.yaml": resources });
  const file = join(directory, "report.html");
  writeFileSync(file, execFileSync(context.kiln, ["apply", join(directory, "p.yaml"), "--resource", join(directory, "r.yaml"), "--format", "html"]));
  return file;
}

export const pageStories = {
  "a report opens as a file and is accessible": {
    options: { javaScriptEnabled: true },
    run: async (page, context) => {
      await page.goto(pathToFileURL(applied(context, POLICY, NAMESPACE)).href);
      await sees(page, ".chip", "1 create");
      await sees(page, "svg.lineage .name", "team-a");
      await page.locator(".objects summary").first().click();
      await sees(page, ".diff ins", "pods:");
      await accessible(page, "report");
    },
  },
  "a report needs no script": {
    options: { javaScriptEnabled: false, colorScheme: "dark", viewport: { width: 390, height: 800 } },
    run: async (page, context) => {
      await page.goto(pathToFileURL(applied(context, POLICY, NAMESPACE)).href);
      await page.locator(".objects summary").first().click();
      await sees(page, ".diff ins", "pods:");
    },
  },
  "the application opened as a file says what to do": async (page) => {
    await page.goto(pathToFileURL(join(web, "bundle/index.html")).href);
    await sees(page, ".waiting", "serve this directory over HTTP");
  },
  "a report of a thousand namespaces stays small": async (page, context) => {
    const many = Array.from({ length: 1000 }, (_, at) => NAMESPACE.replace("team-a", `team-${at}`)).join("---\n");
    const file = applied(context, POLICY, many);
    const size = statSync(file).size;
    assert(size <= 400_000, `${size} bytes`);
    context.figures.report = size;
    await page.goto(pathToFileURL(file).href);
    await sees(page, ".chip", "1000 create");
  },
};
