// What `kiln doctor` says of a live cluster, policies with their conditions, pending work, reports.

import { h, replace } from "../dom";
import type { Engine } from "../engine";
import { empty } from "./results";

interface Health {
  findings: { severity: string; message: string; hint?: string }[];
  policies: { kind: string; name: string; ready: string; reason: string; message: string }[];
  pending: { name: string; policy: string; state: string; message: string }[];
  reports: { policy: string; namespace: string; pass: number; fail: number; warn: number; error: number; skip: number }[];
  notRead: string[];
}

function table(titles: string[], rows: (string | number)[][], nothing: string): HTMLElement {
  if (rows.length === 0) return empty(nothing);
  const cell = (value: string | number) => h("td", { class: typeof value === "number" ? "n" : null }, value);
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": titles.join(", ") },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ...titles.map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map(cell)))),
    ),
  );
}

export class HealthView {
  readonly element = h("div", { class: "health", tabindex: 0, role: "region", "aria-label": "Health" });

  constructor(
    private engine: Engine,
    private cluster: { name: string } | null,
  ) {}

  async refresh(): Promise<void> {
    if (!this.cluster) {
      replace(this.element, empty("Health is about a cluster: start kiln ui with --kubeconfig or --context."));
      return;
    }
    try {
      const health = await this.engine.call<Health>("health", {});
      const tone = (severity: string) => (severity === "error" ? "t-delete" : severity === "warning" ? "t-change" : "t-create");
      replace(
        this.element,
        h("h2", {}, `Health of ${this.cluster.name}`),
        h("section", {}, h("h3", {}, "What kiln doctor says"), health.findings.length === 0 ? empty("Everything is healthy.") : h("ul", { class: "notes" }, ...health.findings.map((found) => h("li", {}, h("span", { class: `tag ${tone(found.severity)}` }, found.severity), " ", found.message, found.hint ? h("span", { class: "hint" }, `help: ${found.hint}`) : null)))),
        h("section", {}, h("h3", {}, "Policies"), table(["Kind", "Name", "Ready", "Reason", "Message"], health.policies.map((policy) => [policy.kind, policy.name, policy.ready, policy.reason, policy.message]), "The cluster has no policies.")),
        h("section", {}, h("h3", {}, "Pending work"), table(["UpdateRequest", "Policy", "State", "Message"], health.pending.map((work) => [work.name, work.policy, work.state, work.message]), "Nothing is pending.")),
        h("section", {}, h("h3", {}, "Reports"), table(["Policy", "Namespace", "Pass", "Fail", "Warn", "Error", "Skip"], health.reports.map((report) => [report.policy, report.namespace, report.pass, report.fail, report.warn, report.error, report.skip]), "There are no policy reports.")),
        ...health.notRead.map((text) => h("p", { class: "muted" }, text)),
      );
    } catch (problem) {
      replace(this.element, empty((problem as Error).message));
    }
  }
}
