// A YAML editor with the engine's diagnostics, completion and hover.

import { autocompletion, closeBrackets, completionKeymap, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, lintKeymap, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { EditorSelection, EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, hoverTooltip, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { h } from "./dom";
import type { Engine } from "./engine";
import { markdown } from "./markdown";
import type { Assistance, Problem, Span } from "./model";
import type { Workspace } from "./workspace";

const colors = HighlightStyle.define([
  { tag: tags.propertyName, color: "var(--syntax-key)" },
  { tag: [tags.string, tags.content], color: "var(--text)" },
  { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
  { tag: [tags.keyword, tags.bool, tags.null, tags.number], color: "var(--deny)" },
  { tag: [tags.meta, tags.separator, tags.punctuation], color: "var(--muted)" },
]);

const theme = EditorView.theme({
  "&": { height: "100%", fontSize: "13px", backgroundColor: "var(--bg)", color: "var(--text)" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--bg)", color: "var(--muted)", border: "none" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--accent) 7%, transparent)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "color-mix(in srgb, var(--accent) 25%, transparent) !important",
  },
  ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "6px" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--bg)" },
  ".cm-diagnostic": { borderLeftWidth: "3px", padding: "4px 8px" },
});

/** What the numbers of the Language Server Protocol are called in this editor. */
const ITEM_TYPES: Record<number, string> = { 3: "function", 5: "property", 6: "variable", 7: "class", 12: "enum", 17: "text" };

export class YamlEditor {
  readonly view: EditorView;

  constructor(
    parent: HTMLElement,
    label: string,
    text: string,
    private engine: Engine,
    changed: (text: string) => void,
    /** The path of the file, and the files around it: they say which fields and paths fit. */
    private path = "objects.yaml",
    private around: () => { workspace?: Workspace } = () => ({}),
  ) {
    this.view = new EditorView({
      parent,
      state: EditorState.create({
        doc: text,
        extensions: [
          lineNumbers(),
          history(),
          drawSelection(),
          highlightActiveLine(),
          indentOnInput(),
          indentUnit.of("  "),
          bracketMatching(),
          closeBrackets(),
          yaml(),
          syntaxHighlighting(colors),
          theme,
          lintGutter(),
          autocompletion({ override: [(context) => this.complete(context)] }),
          hoverTooltip((view, at) => this.hover(view, at)),
          keymap.of([...defaultKeymap, ...historyKeymap, ...completionKeymap, ...lintKeymap]),
          EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) changed(update.state.doc.toString());
          }),
        ],
      }),
    });
  }

  show(problems: Problem[]): void {
    const diagnostics = problems.map((problem): Diagnostic => {
      const [from, to] = problem.place ? this.range(problem.place) : [0, 0];
      return {
        from,
        to,
        severity: problem.severity,
        message: problem.message,
        renderMessage: () =>
          h("span", {}, problem.message, problem.hint ? h("span", { class: "hint" }, `help: ${problem.hint}`) : null),
      };
    });
    this.view.dispatch(setDiagnostics(this.view.state, diagnostics));
  }

  /** Puts the cursor at a place and the focus into the editor. */
  goTo(place: Span): void {
    const [from, to] = this.range(place);
    this.view.dispatch({ selection: EditorSelection.single(from, to), effects: EditorView.scrollIntoView(from, { y: "center" }) });
    this.view.focus();
  }

  destroy(): void {
    this.view.destroy();
  }

  private range(place: Span): [number, number] {
    const { doc } = this.view.state;
    const at = (line: number, column: number) => {
      const found = doc.line(Math.min(Math.max(line, 1), doc.lines));
      // The engine counts characters, the editor counts units of UTF-16.
      const before = [...found.text].slice(0, Math.max(column - 1, 0)).join("");
      return Math.min(found.from + before.length, found.to);
    };
    const from = at(place.line, place.column);
    let to = place.endLine ? at(place.endLine, place.endColumn ?? 1) : from;
    // A long block is marked on its first line.
    if (place.endLine && place.endLine > place.line) to = doc.lineAt(from).to;
    return [from, Math.max(to, from)];
  }

  private ask(text: string, offset: number): Promise<Assistance | null> {
    return this.engine.call<Assistance>("assist", { path: this.path, text, offset, ...this.around() }).catch(() => null);
  }

  private async complete(context: CompletionContext): Promise<CompletionResult | null> {
    const word = context.matchBefore(/[\w.\-/]*/);
    if (!context.explicit && (!word || word.from === word.to)) return null;
    const found = await this.ask(context.state.doc.toString(), context.pos);
    if (!found?.items.length) return null;
    const from = word?.from ?? context.pos;
    // Names of variables and paths are offered from behind their last dot or slash.
    const written = word?.text ?? "";
    const cut = found.items.some((item) => item.kind === 5) ? 0 : Math.max(written.lastIndexOf("."), written.lastIndexOf("/")) + 1;
    const options = found.items.map((item) => ({
      label: item.label,
      type: ITEM_TYPES[item.kind],
      detail: item.detail.length > 60 ? `${item.detail.slice(0, 59)}…` : item.detail,
      apply: item.insertText ?? item.label,
      info: item.documentation.value ? () => markdown(item.documentation.value) : undefined,
      boost: item.sortText?.startsWith("0") ? 1 : 0,
    }));
    return { from: from + cut, options, validFor: /^[\w\-]*$/ };
  }

  private async hover(view: EditorView, at: number) {
    const found = (await this.ask(view.state.doc.toString(), at))?.hover;
    if (!found) return null;
    return { pos: found.from, end: found.to, create: () => ({ dom: markdown(found.text) }) };
  }
}
