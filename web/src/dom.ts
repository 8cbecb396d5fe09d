// Elements from data. Text is always text: nothing here reads markup.

export type Child = Node | string | number | null | undefined | false;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, unknown> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on") && typeof value === "function") {
      element.addEventListener(name.slice(2), value as EventListener);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else {
      element.setAttribute(name, String(value));
    }
  }
  append(element, children);
  return element;
}

export function append(parent: Node, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function replace(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  append(parent, children);
}

/** Markup that the engine rendered: it escapes whatever comes from documents, and the page's policy runs no inline script. */
export function rendered(markup: string): DocumentFragment {
  const template = document.createElement("template");
  template.innerHTML = markup;
  return template.content;
}

/** A set of tabs with the arrow keys; `show` is called with the name of the chosen one. */
export function tabs(
  label: string,
  entries: { name: string; text: string; badge?: string }[],
  chosen: string,
  show: (name: string) => void,
): HTMLElement {
  const buttons = entries.map((entry) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        class: "tab",
        "data-tab": entry.name,
        "aria-selected": String(entry.name === chosen),
        tabindex: entry.name === chosen ? 0 : -1,
        onclick: () => show(entry.name),
      },
      entry.text,
      entry.badge ? h("span", { class: "badge" }, entry.badge) : null,
    ),
  );
  return h(
    "div",
    {
      role: "tablist",
      class: "tabs",
      "aria-label": label,
      onkeydown: (event: KeyboardEvent) => {
        const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (at < 0 || step === undefined) return;
        event.preventDefault();
        const next = buttons[(at + step + buttons.length) % buttons.length];
        next.focus();
        next.click();
      },
    },
    ...buttons,
  );
}

/**
 * Puts tabs into a host, or changes those that are there: a click that begins on one and ends after new results came must
 * still be a click.
 */
export function drawTabs(host: HTMLElement, label: string, entries: { name: string; text: string; badge?: string }[], chosen: string, show: (name: string) => void): void {
  const list = host.querySelector<HTMLElement>(":scope > [role=tablist]");
  const known = [...(list?.querySelectorAll<HTMLElement>("[role=tab]") ?? [])];
  if (!list || known.map((tab) => tab.dataset.tab).join("\n") !== entries.map((entry) => entry.name).join("\n")) {
    const focused = list?.contains(document.activeElement);
    const fresh = tabs(label, entries, chosen, show);
    if (list) list.replaceWith(fresh);
    else host.prepend(fresh);
    if (focused) fresh.querySelector<HTMLElement>("[aria-selected=true]")?.focus();
    return;
  }
  known.forEach((tab, at) => {
    const { name, text, badge } = entries[at];
    const shown = badge ? `${text}\n${badge}` : text;
    if (tab.dataset.shown !== shown) {
      replace(tab, text, badge ? h("span", { class: "badge" }, badge) : null);
      tab.dataset.shown = shown;
    }
    tab.setAttribute("aria-selected", String(name === chosen));
    tab.tabIndex = name === chosen ? 0 : -1;
  });
}

export function download(name: string, text: string, type = "text/plain"): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  URL.revokeObjectURL(url);
}

let toastTimer = 0;
/** Says something for a moment, also to screen readers. */
export function say(text: string): void {
  let toast = document.querySelector<HTMLElement>("#toast");
  if (!toast) {
    toast = h("div", { id: "toast", role: "status" });
    document.body.append(toast);
  }
  toast.textContent = text;
  toast.classList.add("shown");
  window.clearTimeout(toastTimer);
  toastTimer = window.setTimeout(() => toast?.classList.remove("shown"), 4000);
}
