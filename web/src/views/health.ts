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
      h("thead", {}, h("tr", {}, ...titles.map((title, at) => h("th", { scope: "col", class: typeof rows[0][at] === "number" ? "n" : null }, title)))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map(cell)))),
    ),
  );
}

type Finding = Health["findings"][number];

function findingList(found: Finding[]): HTMLElement {
  const tone = (severity: string) => (severity === "error" ? "t-delete" : severity === "warning" ? "t-change" : "t-create");
  const entry = ({ severity, message, hint }: Finding) => h("li", {}, h("span", { class: `tag ${tone(severity)}` }, severity), " ", message, hint ? h("span", { class: "hint" }, `help: ${hint}`) : null);
  return h("ul", { class: "notes" }, ...found.map(entry));
}

/** What needs attention first; what is well can be opened. */
function findings(all: Finding[]): HTMLElement[] {
  const well = all.filter((found) => found.severity === "ok");
  const bad = [...all.filter((found) => found.severity === "error"), ...all.filter((found) => found.severity === "warning")];
  const count = well.length === 1 ? "1 check is ok" : `${well.length} checks are ok`;
  return [
    bad.length === 0 ? empty("Everything is healthy.") : findingList(bad),
    ...(well.length === 0 ? [] : [h("details", {}, h("summary", {}, count), findingList(well))]),
  ];
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
      replace(
        this.element,
        h("h2", {}, `Health of ${this.cluster.name}`),
        h("section", {}, h("h3", {}, "What kiln doctor says"), ...findings(health.findings)),
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
