// The page: a bar, and one view below it.

import "../../crates/studio/src/html/studio.css";
import "./app.css";
import { h, replace, say, tabs } from "./dom";
import { ProcessEngine, WorkerEngine, type Engine } from "./engine";
import { examples, openGallery, tour } from "./gallery";
import { ClusterView } from "./views/cluster";
import { HealthView } from "./views/health";
import { Playground } from "./views/playground";
import { decodeLink, remember, remembered, type Workspace } from "./workspace";

interface ServedState {
  /** What `kiln ui` was started with. */
  workspace?: Workspace;
  cluster?: { name: string; writable: boolean };
}

type View = "playground" | "cluster" | "health";

function theme(): void {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("kiln-studio-theme", root.dataset.theme);
  } catch {
    // It holds for this visit, then.
  }
}

async function start(): Promise<void> {
  const app = document.querySelector<HTMLElement>("#app")!;
  const kept = localStorage.getItem("kiln-studio-theme");
  if (kept) document.documentElement.dataset.theme = kept;
  const fragment = window.location.hash.slice(1);
  const token = fragment.startsWith("token=") ? fragment.slice("token=".length) : null;
  // The page is served by kiln ui, or lies on a server of files.
  const served = document.querySelector<HTMLMetaElement>("meta[name=kiln-home]")?.content === "process";
  const engine: Engine = served ? new ProcessEngine(token ?? sessionStorage.getItem("kiln-token") ?? "") : new WorkerEngine();
  if (served && token) {
    // Out of the address bar, so that it is not copied with it.
    sessionStorage.setItem("kiln-token", token);
    history.replaceState(null, "", window.location.pathname);
  }
  let state: ServedState = {};
  if (served) {
    try {
      state = await engine.call<ServedState>("state", {});
    } catch (problem) {
      replace(app, h("p", { class: "empty", role: "alert" }, (problem as Error).message));
      return;
    }
  }
  const shared = fragment.startsWith("w1.") ? await decodeLink(fragment) : null;
  if (fragment.startsWith("w") && fragment.includes(".") && !shared) say("This link cannot be read: it is cut off, or newer than this page.");
  const workspace = shared ?? state.workspace ?? remembered() ?? (await firstExample());
  const playground = new Playground(engine, workspace);
  const cluster = new ClusterView(engine, state.cluster ?? null, playground);
  const health = new HealthView(engine, state.cluster ?? null);
  const body = h("main", { id: "view", tabindex: -1 });
  const bar = h("div", { class: "views" });
  const views: { name: View; text: string }[] = [{ name: "playground", text: "Playground" }];
  views.push({ name: "cluster", text: "Cluster" });
  if (state.cluster) views.push({ name: "health", text: "Health" });
  const show = (name: string) => {
    replace(bar, tabs("Views", views, name, show));
    replace(body, { playground: playground.element, cluster: cluster.element, health: health.element }[name as View]);
    cluster.shown(name === "cluster");
    if (name === "health") void health.refresh();
  };
  const action = (name: string, text: string, run: () => unknown) => h("button", { type: "button", class: "button", "data-action": name, onclick: () => void run() }, text);
  replace(
    app,
    h("a", { class: "skip", href: "#view" }, "Skip to the content"),
    h(
      "header",
      { class: "bar" },
      h("h1", {}, "Kiln Studio"),
      bar,
      h(
        "div",
        { class: "actions" },
        action("gallery", "Gallery", () =>
          openGallery((example) => {
            playground.open(example);
            remember(playground.files);
            show("playground");
          }),
        ),
        action("share", "Share", async () => {
          const link = await playground.share();
          window.history.replaceState(null, "", link);
          await navigator.clipboard?.writeText(link).catch(() => undefined);
          say("The address now holds all files. It is in the clipboard where the browser allows it.");
        }),
        action("download", "Download", () => playground.downloadAll()),
        action("tour", "Tour", () => {
          show("playground");
          tour();
        }),
        action("theme", "Theme", theme),
      ),
    ),
    body,
  );
  // Now, so that the page asks for nothing later.
  void examples();
  show(state.cluster && !state.workspace ? "cluster" : "playground");
}

async function firstExample(): Promise<Workspace> {
  const all = await examples();
  return all.find((example) => example.name === "sync-secrets") ?? all[0];
}

void start();
