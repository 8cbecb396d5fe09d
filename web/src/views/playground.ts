// Files on the left, what the engine says about them on the right, as the user types.

import { download, drawTabs, h, rendered, replace, say } from "../dom";
import { YamlEditor } from "../editor";
import type { Engine } from "../engine";
import type { Evaluation, Problem, Span } from "../model";
import { encodeLink, newPath, remember, ROLE_TITLES, sorted, type Role, type Workspace, type WorkspaceFile } from "../workspace";
import { empty, objectList, resultList, testTable, traceTree, type GoTo } from "./results";

type Pane = "results" | "objects" | "trace" | "plan" | "lineage" | "tests" | "build";

/** How long typing pauses before the engine is asked. */
const PAUSE = 60;

export class Playground {
  readonly element = h("div", { class: "playground" });
  private editorPane = h("section", { class: "pane editor-pane", "aria-label": "Files" });
  private outputPane = h("section", { class: "pane output-pane", "aria-label": "Results" });
  private fileTabs = h("div", { class: "file-tabs" });
  private editorHost = h("div", { class: "editor-host" });
  private outputTabs = h("div", {});
  private output = h("div", { class: "output", role: "tabpanel", tabindex: 0, "aria-label": "Result" });
  private adder = this.fileAdder();
  private status = h("p", { class: "status", role: "status", "aria-live": "polite" });
  private problems = h("ul", { class: "problems", "aria-label": "Problems" });
  private editor: YamlEditor | null = null;
  private current = "";
  private pane: Pane = "results";
  private evaluation: Evaluation | null = null;
  private timer = 0;
  private asked = 0;

  constructor(
    private engine: Engine,
    private workspace: Workspace,
  ) {
    this.editorPane.append(this.fileTabs, this.editorHost, this.problems);
    this.outputPane.append(this.outputTabs, this.status, this.output);
    this.element.append(this.editorPane, this.outputPane);
    this.open(workspace);
  }

  /** Shows other files. */
  open(workspace: Workspace): void {
    this.workspace = { files: sorted(workspace.files) };
    this.current = "";
    this.select(this.workspace.files[0].path);
    void this.evaluate();
  }

  get files(): Workspace {
    return this.workspace;
  }

  async share(): Promise<string> {
    const base = window.location.href.split("#")[0];
    return `${base}#${await encodeLink(this.workspace)}`;
  }

  async copyAsSuite(): Promise<void> {
    const { text } = await this.engine.call<{ text: string }>("suite", { workspace: this.workspace });
    const known = this.workspace.files.find((file) => file.role === "tests");
    if (known) known.text = text;
    else this.workspace.files.push({ role: "tests", path: newPath(this.workspace, "tests"), text });
    this.current = "";
    this.select(this.workspace.files.find((file) => file.role === "tests")!.path);
    this.pane = "tests";
    await navigator.clipboard?.writeText(text).catch(() => undefined);
    say("The suite is in the Tests file, and in the clipboard where the browser allows it.");
    await this.evaluate();
  }

  downloadAll(): void {
    const parts = this.workspace.files.map((file) => `# --- ${file.path}\n${file.text.trimEnd()}\n`);
    download("kiln-playground.yaml", parts.join("---\n"), "application/yaml");
  }

  goTo: GoTo = (place: Span) => {
    const file = this.workspace.files.find((known) => known.path === place.file);
    if (!file) return;
    this.select(file.path);
    this.editor?.goTo(place);
  };

  private select(path: string): void {
    const file = this.workspace.files.find((known) => known.path === path) ?? this.workspace.files[0];
    if (file.path === this.current) return;
    this.current = file.path;
    this.editor?.destroy();
    replace(this.editorHost);
    const changed = (text: string) => {
      file.text = text;
      this.changed();
    };
    // A kustomization names files beside it; nothing else needs the others.
    const around = () => (file.role === "tree" ? { workspace: { files: this.workspace.files.filter((other) => other.role === "tree") } } : {});
    this.editor = new YamlEditor(this.editorHost, `${ROLE_TITLES[file.role]}: ${file.path}`, file.text, this.engine, changed, file.path, around);
    this.drawFiles();
    this.drawProblems();
  }

  private changed(): void {
    remember(this.workspace);
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.evaluate(), PAUSE);
  }

  private drawFiles(): void {
    const count = (file: WorkspaceFile) => this.problemsOf(file).filter((problem) => problem.severity !== "info").length;
    const entries = this.workspace.files.map((file) => ({
      name: file.path,
      text: this.workspace.files.filter((other) => other.role === file.role).length > 1 || file.role === "tree" ? file.path : ROLE_TITLES[file.role],
      badge: count(file) ? String(count(file)) : undefined,
    }));
    drawTabs(this.fileTabs, "Files", entries, this.current, (name) => this.select(name));
    if (!this.fileTabs.contains(this.adder)) this.fileTabs.append(this.adder);
  }

  /** Adds an empty file of a role. */
  private fileAdder(): HTMLSelectElement {
    const adder = h(
      "select",
      {
        "aria-label": "Add a file",
        onchange: () => {
          const role = adder.value as Role;
          adder.value = "";
          if (!role) return;
          const path = newPath(this.workspace, role);
          this.workspace.files = sorted([...this.workspace.files, { role, path, text: "" }]);
          this.select(path);
          this.changed();
        },
      },
      h("option", { value: "" }, "Add…"),
      ...(Object.keys(ROLE_TITLES) as Role[]).map((role) => h("option", { value: role }, ROLE_TITLES[role])),
    );
    return adder;
  }

  private problemsOf(file: WorkspaceFile): Problem[] {
    const problems = this.evaluation?.problems ?? [];
    return problems.filter((problem) => problem.place?.file === file.path);
  }

  /** Under the text: what is wrong with the file that is shown, and what has no place in any. */
  private drawProblems(): void {
    const file = this.workspace.files.find((known) => known.path === this.current);
    if (!file) return;
    const own = this.problemsOf(file);
    this.editor?.show(own);
    const placeless = (this.evaluation?.problems ?? []).filter((problem) => !problem.place);
    const shown = [...own, ...placeless];
    const entries = shown.map((problem) =>
      h(
        "li",
        { class: `problem ${problem.severity}` },
        h("span", { class: `tag ${problem.severity === "error" ? "t-delete" : problem.severity === "warning" ? "t-change" : "t-plain"}` }, problem.severity),
        " ",
        problem.place ? h("button", { type: "button", class: "place", onclick: () => this.goTo(problem.place!) }, `${problem.place.line}:${problem.place.column}`) : null,
        " ",
        problem.message,
        problem.hint ? h("span", { class: "hint" }, `help: ${problem.hint}`) : null,
      ),
    );
    replace(this.problems, ...entries);
    this.problems.hidden = entries.length === 0;
  }

  private async evaluate(): Promise<void> {
    const asked = ++this.asked;
    const started = performance.now();
    try {
      const evaluation = await this.engine.call<Evaluation>("evaluate", {
        workspace: this.workspace,
        trace: this.pane === "trace",
        plan: this.pane === "plan",
        lineage: this.pane === "lineage",
      });
      // An answer to an older text says nothing about this one.
      if (asked !== this.asked) return;
      // A text that cannot be read while it is written says nothing of what the rules do: the results before it stay.
      const unread = evaluation.results.length === 0 && evaluation.problems.some((problem) => problem.severity === "error");
      const kept = unread && this.evaluation?.results.length ? this.evaluation : null;
      this.evaluation = kept ? { ...kept, problems: evaluation.problems } : evaluation;
      this.output.classList.toggle("stale", kept !== null);
      const spent = Math.max(1, Math.round(performance.now() - started));
      const { pass, fail, warn, error, skip } = evaluation.summary;
      const place = this.engine.home === "tab" ? "in this tab" : "by kiln ui";
      this.status.textContent = kept ? "The text cannot be read; below are the results of the one before." : `pass: ${pass}, fail: ${fail}, warn: ${warn}, error: ${error}, skip: ${skip} · ${spent} ms ${place}`;
      this.status.dataset.spent = String(spent);
      this.drawFiles();
      this.drawProblems();
      this.drawOutput();
    } catch (problem) {
      if (asked !== this.asked) return;
      this.status.textContent = problem instanceof Error ? problem.message : String(problem);
      replace(this.output, empty("The engine did not answer. Reload the page; your files are kept."));
    }
  }

  private show(pane: Pane): void {
    this.pane = pane;
    this.drawOutput();
    void this.evaluate();
  }

  private drawOutput(): void {
    const evaluation = this.evaluation;
    if (!evaluation) return;
    const tests = evaluation.tests?.summary;
    const changed = evaluation.objects.filter((made) => made.diff).length;
    const entries: { name: Pane; text: string; badge?: string }[] = [
      { name: "results", text: "Results", badge: String(evaluation.results.length) },
      { name: "objects", text: "Objects", badge: String(changed) },
      { name: "trace", text: "Trace" },
      { name: "plan", text: "Plan" },
      { name: "lineage", text: "Lineage" },
      { name: "tests", text: "Tests", badge: tests ? `${tests.passed}/${tests.passed + tests.failed}` : undefined },
    ];
    if (evaluation.build !== undefined) entries.push({ name: "build", text: "Built" });
    drawTabs(this.outputTabs, "Views of the result", entries, this.pane, (name) => this.show(name as Pane));
    // A picture of five columns needs more room than the text beside it.
    this.element.classList.toggle("roomy", this.pane === "lineage" || this.pane === "plan");
    const scroll = this.output.scrollTop;
    replace(this.output, this.content(evaluation));
    this.output.scrollTop = scroll;
  }

  private content(evaluation: Evaluation): Node {
    switch (this.pane) {
      case "results":
        return resultList(evaluation, this.goTo);
      case "objects":
        return objectList(evaluation);
      case "trace":
        return traceTree(evaluation, this.goTo);
      case "plan":
        return evaluation.planHtml === undefined ? empty("…") : rendered(evaluation.planHtml);
      case "lineage":
        return evaluation.lineageHtml === undefined ? empty("…") : rendered(evaluation.lineageHtml);
      case "tests":
        return h(
          "div",
          {},
          h("p", {}, h("button", { type: "button", class: "button", onclick: () => void this.copyAsSuite() }, "Copy results as test suite")),
          testTable(evaluation),
        );
      case "build":
        return h("pre", { class: "plain-text", tabindex: 0, "aria-label": "Built objects" }, evaluation.build ?? "");
    }
  }
}
