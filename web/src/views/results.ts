// What rules did with resources, and why.

import { h, type Child } from "../dom";
import { spoken, type Evaluation, type Fault, type RuleResult, type Span, type TraceStep } from "../model";

export type GoTo = (place: Span) => void;

const TONES: Record<string, string> = {
  pass: "t-create",
  keep: "t-create",
  fail: "t-delete",
  error: "t-delete",
  delete: "t-delete",
  warn: "t-change",
};

export function tag(word: string): HTMLElement {
  return h("span", { class: `tag ${TONES[word] ?? "t-plain"}` }, word);
}

function placeLink(place: Span | undefined, goTo: GoTo): Child {
  if (!place) return null;
  const text = `${place.file}:${place.line}:${place.column}`;
  return h("button", { type: "button", class: "place", onclick: () => goTo(place) }, text);
}

function faultLine(fault: Fault, goTo: GoTo): HTMLElement {
  const what = fault.path ? `${fault.path}: ${fault.why}` : fault.why;
  return h("li", {}, placeLink(fault.place, goTo), " ", what, " ", fault.wanted ? h("span", { class: "muted" }, "wanted at ") : null, placeLink(fault.wanted, goTo));
}

export function resultList(evaluation: Evaluation, goTo: GoTo): HTMLElement {
  if (evaluation.policies === 0) return empty("No policy yet. Write one on the left, or open the gallery.");
  if (evaluation.results.length === 0) {
    return h("div", {}, empty("No rule matches a resource. Add a resource that a rule names, or look at the trace to see why."), untouched(evaluation));
  }
  const groups = new Map<string, RuleResult[]>();
  for (const result of evaluation.results) {
    const key = `${result.policy}\n${result.rule}`;
    groups.set(key, [...(groups.get(key) ?? []), result]);
  }
  const list = h("div", { class: "results" });
  for (const results of groups.values()) {
    const [first] = results;
    const rule = first.rule && first.rule !== first.policy ? `, rule ${first.rule}` : "";
    list.append(
      h(
        "section",
        { class: "rule" },
        h("h3", {}, `policy ${first.policy}${rule} `, placeLink(first.rulePlace, goTo)),
        h("ul", { class: "plain" }, ...results.map((result) => resultEntry(result, goTo))),
      ),
    );
  }
  list.append(untouched(evaluation));
  return list;
}

/** Resources whose kind no rule names: there is nothing to trace about them. */
function untouched(evaluation: Evaluation): HTMLElement {
  return h("div", {}, ...evaluation.untouched.map((resource) => h("p", { class: "muted untouched" }, `${spoken(resource)}: no rule names this kind`)));
}

function resultEntry(result: RuleResult, goTo: GoTo): HTMLElement {
  return h(
    "li",
    { class: "result", "data-result": result.result },
    tag(result.word),
    " ",
    h("span", { class: "object" }, spoken(result.resource)),
    " ",
    placeLink(result.place, goTo),
    result.why || result.message ? h("p", { class: "message" }, result.message ?? result.why) : null,
    result.faults?.length ? h("ul", { class: "faults" }, ...result.faults.map((fault) => faultLine(fault, goTo))) : null,
    result.fix?.length
      ? h("p", { class: "hint" }, "help: ", result.fix.map((change) => `${change.action} ${change.path}${change.value === undefined ? "" : ` to ${JSON.stringify(change.value)}`}`).join(", "))
      : null,
    ...result.made.map((made) => h("p", { class: "made" }, h("span", { class: "muted" }, made.change), " ", h("span", { class: "object" }, spoken(made.object)))),
    ...result.problems.map((problem) => h("p", { class: "why" }, problem)),
  );
}

/** The questions that a rule asked, with their answers, as a tree. */
export function traceTree(evaluation: Evaluation, goTo: GoTo): HTMLElement {
  const traced = evaluation.results.filter((result) => result.trace);
  if (traced.length === 0 && evaluation.untouched.length > 0) return untouched(evaluation);
  if (traced.length === 0) return empty("Nothing to trace yet. A policy and a resource are needed.");
  return h(
    "div",
    { class: "traces" },
    ...traced.map((result) =>
      h(
        "details",
        { class: "trace", open: traced.length <= 3 },
        h("summary", {}, tag(result.word), " ", h("b", {}, result.rule || result.policy), " on ", h("span", { class: "object" }, spoken(result.resource))),
        h("p", { class: "muted" }, "rule at ", placeLink(result.rulePlace, goTo)),
        h("ul", { class: "tree" }, ...(result.trace?.steps ?? []).map(step)),
      ),
    ),
    untouched(evaluation),
  );
}

function step(entry: TraceStep): HTMLElement {
  const line: Child[] = [mark(entry), " ", entry.what];
  if (entry.why) line.push(h("span", { class: "muted" }, `: ${entry.why}`));
  if (entry.answer !== undefined && typeof entry.answer !== "boolean" && entry.answer !== "failed") {
    line.push(" = ", h("code", {}, JSON.stringify(entry.answer)));
  }
  if (!entry.steps?.length) return h("li", {}, ...line);
  return h("li", {}, h("details", { open: true }, h("summary", {}, ...line), h("ul", { class: "tree" }, ...entry.steps.map(step))));
}

function mark(entry: TraceStep): Child {
  if (entry.answer === true) return h("span", { class: "mark t-create" }, "yes");
  if (entry.answer === false) return h("span", { class: "mark t-change" }, "no");
  if (entry.answer === "failed") return h("span", { class: "mark t-delete" }, "failed");
  return h("span", { class: "mark" }, "·");
}

/** Objects that rules made or changed, each as a difference. */
export function objectList(evaluation: Evaluation): HTMLElement {
  const changed = evaluation.objects.filter((made) => made.diff);
  if (changed.length === 0) return empty("No rule made or changed an object.");
  return h(
    "div",
    { class: "objects-made" },
    ...changed.map((made) =>
      h(
        "details",
        { open: changed.length <= 10 },
        h("summary", {}, h("span", { class: `tag ${made.change === "created" ? "t-create" : "t-change"}` }, made.change), " ", h("span", { class: "object" }, spoken(made.object))),
        diff(made.diff),
      ),
    ),
  );
}

export function diff(text: string): HTMLElement {
  const lines = text.split("\n").map((line) => {
    const element = line.startsWith("+") ? h("ins", {}, line) : line.startsWith("-") ? h("del", {}, line) : h("span", { class: line.startsWith("@") ? "hunk" : "same" }, line);
    return [element, "\n"];
  });
  return h("pre", { class: "diff", tabindex: 0, "aria-label": "Difference" }, ...lines.flat());
}

export function testTable(evaluation: Evaluation): HTMLElement {
  const suites = evaluation.tests?.suites ?? [];
  if (suites.length === 0) return empty("No test suite. Copy the results as a suite, and later changes are held to them.");
  const rows = suites.flatMap((suite) => suite.results);
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, ...["Verdict", "Policy", "Rule", "Resource", "Reason"].map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, ...rows.map((row) => h("tr", {}, h("td", {}, tag(row.verdict)), h("td", {}, row.policy), h("td", {}, row.rule), h("td", {}, row.resource), h("td", {}, row.reason ?? "")))),
  );
}

export function empty(text: string): HTMLElement {
  return h("p", { class: "empty" }, text);
}
