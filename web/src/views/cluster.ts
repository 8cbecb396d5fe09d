// A cluster: its objects, what made them, and what happened when. In the tab, in a sandbox, or live and read only.

import { drawTabs, h, rendered, replace, say, type Child } from "../dom";
import { YamlEditor } from "../editor";
import type { Engine } from "../engine";
import { spoken } from "../model";
import type { Playground } from "./playground";
import { empty } from "./results";

interface ListedObject {
  /** `apps/v1|Deployment|shop|web`. */
  id: string;
  apiVersion: string;
  kind: string;
  namespace: string;
  name: string;
  /** A rule made it. */
  made: boolean;
}

interface Listing {
  objects: ListedObject[];
  /** How many there are, where not all are listed. */
  total: number;
  notRead: string[];
}

interface TimelineEntry {
  step: number;
  time: string;
  actor: string;
  verb: string;
  object: string;
  outcome: string;
  refused?: boolean;
}

interface Timeline {
  entries: TimelineEntry[];
  position: number;
  end: number;
  /** Nothing happens after a change until the user steps. */
  paused?: boolean;
}

interface LineageAnswer {
  html: string;
  namespaces: string[];
  policies: string[];
  states: string[];
  links: number;
}

/** The most objects of a namespace that are listed; a search finds the others. */
const MOST_SHOWN = 500;
/** The most lines of the timeline around what is shown. */
const MOST_LINES = 400;
/** Namespaces of Kubernetes and of the engine, and what is in none. */
const SYSTEM = /^(|kube-.*|kyverno|default)$/;

function byKind(objects: ListedObject[]): [string, ListedObject[]][] {
  const kinds = new Map<string, ListedObject[]>();
  for (const object of objects) kinds.set(object.kind, [...(kinds.get(object.kind) ?? []), object]);
  return [...kinds].sort(([a], [b]) => a.localeCompare(b));
}

type Pane = "object" | "lineage" | "timeline";

export class ClusterView {
  readonly element = h("div", { class: "cluster" });
  private side = h("section", { class: "side", "aria-label": "Objects", tabindex: 0 });
  private paneTabs = h("div", {});
  private detail = h("section", { class: "detail", "aria-label": "Details" });
  private body = h("div", { role: "tabpanel", "aria-label": "Details" });
  private pane: Pane = "lineage";
  private chosen: string | null = null;
  private filter = { namespace: "", policy: "", state: "" };
  private search = "";
  private listing: Listing = { objects: [], total: 0, notRead: [] };
  private isShown = false;
  /** What the pane shows. */
  private drawn = "";
  private timer = 0;
  private playing = 0;
  /** The files that the cluster in the tab began with. */
  private startedWith = "";

  constructor(
    private engine: Engine,
    private cluster: { name: string; writable: boolean } | null,
    private playground: Playground,
  ) {
    this.detail.append(this.paneTabs, this.body);
    this.element.append(this.side, this.detail);
    this.body.addEventListener("click", (event) => {
      const node = (event.target as Element).closest("[data-object]");
      if (node) void this.choose(node.getAttribute("data-object")!);
    });
  }

  /** Whether changes are allowed: in the tab and in a sandbox. */
  private get writable(): boolean {
    return this.cluster ? this.cluster.writable : true;
  }

  shown(is: boolean): void {
    this.isShown = is;
    window.clearInterval(this.timer);
    window.clearInterval(this.playing);
    this.playing = 0;
    if (!is) return;
    void this.begin();
    // A served cluster changes by itself; one in the tab only when asked to.
    if (this.cluster) this.timer = window.setInterval(() => void this.refresh(), 2000);
  }

  private async begin(): Promise<void> {
    if (!this.cluster) {
      // The cluster lives on until the files of the playground are others.
      const files = JSON.stringify(this.playground.files);
      if (files === this.startedWith) return this.refresh();
      try {
        replace(this.body, empty("The cluster starts…"));
        await this.engine.call("cluster.start", { workspace: this.playground.files });
        this.startedWith = files;
      } catch (problem) {
        replace(this.side);
        replace(this.body, empty((problem as Error).message));
        return;
      }
    }
    await this.refresh();
  }

  private async refresh(): Promise<void> {
    if (!this.isShown) return;
    try {
      const listing = await this.engine.call<Listing>("cluster.list", {});
      // What is the same stays: a click or a selection must not be lost to it.
      const isSame = JSON.stringify(listing) === JSON.stringify(this.listing) && this.side.childElementCount > 0;
      this.listing = listing;
      if (!isSame) this.drawSide();
      await this.drawPane();
    } catch (problem) {
      replace(this.body, empty((problem as Error).message));
    }
  }

  private drawSide(): void {
    // What is being typed stays.
    const focused = document.activeElement?.id;
    const words = this.search.toLowerCase();
    const found = this.listing.objects.filter((object) => `${object.namespace}/${object.name} ${object.kind}`.toLowerCase().includes(words));
    const namespaces = [...new Set(found.map((object) => object.namespace))].sort();
    const few = found.length <= 60;
    // What the user opened or closed stays so; at first, namespaces of the system are closed, unless there is little in all.
    const known = new Map([...this.side.querySelectorAll<HTMLDetailsElement>("details")].map((element) => [element.dataset.namespace, element.open]));
    const isOpen = (namespace: string) => words !== "" || (known.get(namespace) ?? (few || !SYSTEM.test(namespace)));
    replace(
      this.side,
      h(
        "div",
        { class: "filters" },
        h("input", {
          id: "cluster-search",
          type: "search",
          placeholder: "Search objects",
          "aria-label": "Search objects",
          value: this.search,
          oninput: (event: Event) => {
            this.search = (event.target as HTMLInputElement).value;
            this.drawSide();
          },
        }),
        this.writable ? h("button", { type: "button", class: "button", onclick: () => this.edit("") }, "Apply…") : null,
      ),
      h("p", { class: "muted" }, `${found.length} of ${this.listing.total} objects`),
      ...namespaces.map((namespace) =>
        h(
          "details",
          { "data-namespace": namespace, open: isOpen(namespace) },
          h("summary", {}, h("b", {}, namespace || "(cluster)"), " ", h("span", { class: "badge" }, found.filter((object) => object.namespace === namespace).length)),
          ...byKind(found.filter((object) => object.namespace === namespace).slice(0, MOST_SHOWN)).map(([kind, objects]) =>
            h(
              "div",
              { class: "kind", role: "group", "aria-label": kind },
              h("p", { class: "muted" }, kind),
              ...objects.map((object) =>
                h(
                  "button",
                  { type: "button", class: "entry", "data-entry": object.id, "aria-current": String(object.id === this.chosen), onclick: () => void this.choose(object.id) },
                  object.name,
                  object.made ? h("span", { class: "badge" }, "by a rule") : null,
                ),
              ),
            ),
          ),
        ),
      ),
      ...this.listing.notRead.map((text) => h("p", { class: "muted" }, text)),
      this.listing.total === 0 ? empty("The cluster has no objects. Apply one, or write resources in the playground.") : null,
    );
    if (focused === "cluster-search") {
      const input = this.side.querySelector<HTMLInputElement>("#cluster-search");
      input?.focus();
      input?.setSelectionRange(this.search.length, this.search.length);
    }
  }

  private async choose(id: string): Promise<void> {
    this.chosen = id;
    this.pane = "object";
    replace(this.body);
    this.drawSide();
    await this.drawPane();
  }

  private async drawPane(): Promise<void> {
    const entries: { name: Pane; text: string }[] = [
      { name: "lineage", text: "Lineage" },
      { name: "object", text: "Object" },
    ];
    if (!this.cluster || this.cluster.writable) entries.push({ name: "timeline", text: "Timeline" });
    drawTabs(this.paneTabs, "Views of the cluster", entries, this.pane, (name) => {
      if (name !== this.pane) replace(this.body);
      this.pane = name as Pane;
      void this.drawPane();
    });
    if (this.pane === "lineage") await this.drawLineage();
    else if (this.pane === "timeline") await this.drawTimeline();
    else if (!this.body.querySelector(".cm-editor")) await this.drawObject();
  }

  /** Whether the pane shows this already; it will otherwise. */
  private isDrawn(content: unknown): boolean {
    const text = JSON.stringify([this.pane, content]);
    const same = text === this.drawn && this.body.childElementCount > 0;
    this.drawn = text;
    return same;
  }

  private async drawLineage(): Promise<void> {
    const answer = await this.engine.call<LineageAnswer>("cluster.lineage", this.filter);
    if (this.pane !== "lineage") return;
    if (this.isDrawn(answer)) return;
    const select = (name: "namespace" | "policy" | "state", title: string, values: string[]) =>
      h(
        "select",
        {
          "aria-label": title,
          onchange: (event: Event) => {
            this.filter[name] = (event.target as HTMLSelectElement).value;
            void this.drawLineage();
          },
        },
        h("option", { value: "" }, title),
        ...values.map((value) => h("option", { value, selected: this.filter[name] === value }, value)),
      );
    const selecting = document.activeElement instanceof HTMLSelectElement && this.body.contains(document.activeElement);
    if (selecting && this.body.querySelector(".lineage-box")) {
      replace(this.body.querySelector(".lineage-box")!, rendered(answer.html));
      return;
    }
    replace(
      this.body,
      h("div", { class: "filters" }, select("namespace", "All namespaces", answer.namespaces), select("policy", "All policies", answer.policies), select("state", "All states", answer.states), h("span", { class: "muted" }, answer.links === 1 ? "1 link" : `${answer.links} links`)),
      h("div", { class: "lineage-box" }, rendered(answer.html)),
    );
  }

  private async drawObject(): Promise<void> {
    if (!this.chosen) {
      replace(this.body, empty("Choose an object on the left, or in the lineage."));
      return;
    }
    const id = this.chosen;
    const found = await this.engine.call<{ yaml: string; explain: string; exists: boolean }>("cluster.get", { object: id });
    if (id !== this.chosen || this.pane !== "object" || this.isDrawn([id, found])) return;
    const [apiVersion, kind, namespace, name] = id.split("|");
    const title = spoken([apiVersion, kind, namespace, name].filter(Boolean).join("/"));
    const actions: Child[] = this.writable && found.exists
      ? [
          h("button", { type: "button", class: "button", onclick: () => this.edit(found.yaml) }, "Edit"),
          h("button", { type: "button", class: "button", "data-action": "delete", onclick: () => void this.change("cluster.delete", { object: id }) }, "Delete"),
        ]
      : [];
    replace(
      this.body,
      h("h2", {}, title),
      h("div", { class: "filters" }, ...actions),
      found.explain ? h("pre", { class: "plain-text explain", tabindex: 0, "aria-label": "Explanation" }, found.explain) : null,
      found.exists ? h("pre", { class: "plain-text", tabindex: 0, "aria-label": "Object" }, found.yaml) : empty("The object does not exist now."),
    );
  }

  /** An editor for one object or several. */
  private edit(text: string): void {
    this.pane = "object";
    const host = h("div", { class: "editor-host apply-editor" });
    let typed = text;
    replace(
      this.body,
      h("h2", {}, "Apply"),
      host,
      h("p", {}, h("button", { type: "button", class: "button primary", "data-action": "apply", onclick: () => void this.change("cluster.apply", { yaml: typed }) }, "Apply"), " ", h("button", { type: "button", class: "button", onclick: () => (replace(this.body), void this.drawPane()) }, "Cancel")),
    );
    const editor = new YamlEditor(host, "Objects to apply", text, this.engine, (changed) => (typed = changed));
    editor.view.focus();
  }

  private async change(method: string, parameters: Record<string, unknown>): Promise<void> {
    try {
      const { message } = await this.engine.call<{ message: string }>(method, parameters);
      say(message);
      replace(this.body);
      await this.refresh();
    } catch (problem) {
      say((problem as Error).message);
    }
  }

  private async drawTimeline(): Promise<void> {
    const timeline = await this.engine.call<Timeline>("cluster.timeline", {});
    if (this.pane !== "timeline" || this.isDrawn([timeline, this.playing])) return;
    const focused = document.activeElement?.getAttribute("data-action");
    replace(this.body, this.cluster ? null : this.timeControls(timeline), timeline.entries.length === 0 ? empty("Nothing has happened yet.") : this.timeLog(timeline));
    if (focused) this.body.querySelector<HTMLElement>(`[data-action="${focused}"]`)?.focus();
    this.body.querySelector(".log [aria-current=true]")?.scrollIntoView({ block: "nearest" });
  }

  /** Goes to a moment, as the user chose: what is played stops. */
  private async goToMoment(step: number): Promise<void> {
    window.clearInterval(this.playing);
    this.playing = 0;
    await this.seek(step);
  }

  private async seek(step: number): Promise<void> {
    await this.engine.call("cluster.seek", { step });
    await this.refresh();
  }

  /** Going through what happened, and letting time stand still. */
  private timeControls(timeline: Timeline): HTMLElement {
    const { position, end } = timeline;
    const button = (action: string, text: string, disabled: boolean, run: () => unknown) =>
      h("button", { type: "button", class: "button", "data-action": action, disabled, onclick: () => void run() }, text);
    const atEnd = position >= end;
    return h(
      "div",
      { class: "timeline" },
      button("back", "Back", position === 0, () => this.goToMoment(position - 1)),
      button("step", "Step", atEnd && !timeline.paused, async () => {
        if (!atEnd) return this.goToMoment(position + 1);
        await this.engine.call("cluster.step", {});
        await this.refresh();
      }),
      button("play", this.playing ? "Stop" : "Play", end === 0, () => this.play(timeline)),
      h("input", { type: "range", min: 0, max: end, value: position, "aria-label": "Time", "data-action": "time", oninput: (event: Event) => void this.goToMoment(Number((event.target as HTMLInputElement).value)) }),
      h("span", { class: "muted n" }, `${position} of ${end}`),
      h(
        "label",
        { class: "hold" },
        h("input", {
          type: "checkbox",
          "data-action": "hold",
          checked: timeline.paused,
          onchange: async (event: Event) => {
            await this.engine.call("cluster.pause", { paused: (event.target as HTMLInputElement).checked });
            await this.refresh();
          },
        }),
        " hold time after a change",
      ),
    );
  }

  /** Shows frame after frame, from the beginning if all have been shown. */
  private play(timeline: Timeline): void {
    if (this.playing) {
      window.clearInterval(this.playing);
      this.playing = 0;
      void this.drawTimeline();
      return;
    }
    let at = timeline.position >= timeline.end ? 0 : timeline.position;
    this.playing = window.setInterval(() => {
      if (at >= timeline.end) {
        window.clearInterval(this.playing);
        this.playing = 0;
        void this.drawTimeline();
      } else void this.seek(++at);
    }, 400);
  }

  private timeLog(timeline: Timeline): HTMLElement {
    const from = Math.max(0, Math.min(timeline.position - MOST_LINES / 2, timeline.entries.length - MOST_LINES));
    const shown = timeline.entries.slice(from, from + MOST_LINES);
    const line = (entry: TimelineEntry) => {
      const words: Child[] = [
        h("span", { class: "muted time" }, entry.time),
        h("span", { class: "actor" }, entry.actor),
        h("b", { class: entry.refused ? "why" : null }, entry.verb),
        " ",
        h("span", { class: "object" }, entry.object ? spoken(entry.object) : ""),
        entry.outcome ? h("span", { class: entry.refused ? "why" : "muted" }, ` ${entry.outcome}`) : null,
      ];
      const current = { "aria-current": String(!this.cluster && entry.step === timeline.position), class: !this.cluster && entry.step > timeline.position ? "later" : null };
      return h("li", current, this.cluster ? h("div", { class: "moment" }, ...words) : h("button", { type: "button", class: "moment", onclick: () => void this.goToMoment(entry.step) }, ...words));
    };
    const left = timeline.entries.length - shown.length;
    return h("div", {}, left > 0 ? h("p", { class: "muted" }, `${left} other entries are not shown; move the time to see them.`) : null, h("ol", { class: "log", "aria-label": "What happened" }, ...shown.map(line)));
  }
}
