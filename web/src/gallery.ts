// Examples to open, and a tour of five steps.

import { h, replace } from "./dom";
import type { Workspace } from "./workspace";

export interface Example extends Workspace {
  name: string;
  group: string;
  about: string;
}

let loaded: Promise<Example[]> | null = null;

export function examples(): Promise<Example[]> {
  loaded ??= fetch("gallery.json").then((response) => response.json() as Promise<Example[]>);
  return loaded;
}

/** A dialog that closes with Escape and gives the focus back. */
export function dialog(title: string, body: Node): HTMLDialogElement {
  const before = document.activeElement as HTMLElement | null;
  const element = h(
    "dialog",
    { "aria-label": title },
    h("header", {}, h("h2", {}, title), h("button", { type: "button", class: "button", "aria-label": "Close", onclick: () => element.close() }, "Close")),
    body,
  );
  element.addEventListener("close", () => {
    element.remove();
    before?.focus();
  });
  document.body.append(element);
  element.showModal();
  return element;
}

export async function openGallery(open: (example: Example) => void): Promise<void> {
  const list = h("div", { class: "gallery" });
  const search = h("input", { type: "search", placeholder: "Search examples", "aria-label": "Search examples" });
  const shown = dialog("Gallery", h("div", {}, search, list));
  const all = await examples();
  const draw = () => {
    const wanted = search.value.toLowerCase();
    const found = all.filter((example) => `${example.group} ${example.name} ${example.about}`.toLowerCase().includes(wanted));
    const groups = [...new Set(found.map((example) => example.group))];
    replace(
      list,
      ...groups.map((group) =>
        h(
          "section",
          {},
          h("h3", {}, group),
          h(
            "ul",
            { class: "plain" },
            ...found
              .filter((example) => example.group === group)
              .map((example) =>
                h(
                  "li",
                  {},
                  h("button", { type: "button", class: "example", onclick: () => (shown.close(), open(example)) }, h("b", {}, example.name), h("span", { class: "muted" }, example.about)),
                ),
              ),
          ),
        ),
      ),
      found.length ? null : h("p", { class: "empty" }, "No example has these words."),
    );
  };
  search.addEventListener("input", draw);
  draw();
  search.focus();
}

const STEPS: [string, string, string][] = [
  ["Policies", ".editor-pane", "Policies, resources and cluster objects are files on the left. Write any of the four languages; completion and hover come from the schemas."],
  ["Results", ".output-pane", "The right side says what each rule did with each resource, as you type. A place such as resources.yaml:7:3 is a button that leads there."],
  ["Trace", "[data-tab=trace]", "The trace is every question that a rule asked, with its answer. It says why a rule did not run."],
  ["Lineage", "[data-tab=lineage]", "The lineage draws the way from policy to object: rule, trigger, sources, downstreams."],
  ["Share", "[data-action=share]", "A share link holds all files in itself. Nothing is uploaded."],
];

export function tour(): void {
  let at = 0;
  const text = h("p", {});
  const where = h("p", { class: "muted" });
  const next = h("button", { type: "button", class: "button primary" }, "Next");
  const box = h("aside", { class: "tour", role: "dialog", "aria-label": "Tour" }, h("h2", {}), text, where, next, h("button", { type: "button", class: "button", onclick: () => end() }, "End"));
  const mark = () => document.querySelector(".toured")?.classList.remove("toured");
  const end = () => {
    mark();
    box.remove();
  };
  const show = () => {
    mark();
    const [title, selector, words] = STEPS[at];
    box.querySelector("h2")!.textContent = title;
    text.textContent = words;
    where.textContent = `Step ${at + 1} of ${STEPS.length}`;
    next.textContent = at + 1 === STEPS.length ? "Done" : "Next";
    document.querySelector(selector)?.classList.add("toured");
  };
  next.addEventListener("click", () => {
    at += 1;
    if (at === STEPS.length) end();
    else show();
  });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") end();
  });
  document.body.append(box);
  show();
  next.focus();
}
