// The Markdown of field descriptions as elements: paragraphs, code blocks, **bold**, *emphasis* and `code`. All of it is text.

import { h, type Child } from "./dom";

export function markdown(text: string): HTMLElement {
  const blocks: Child[] = [];
  text.split(/^```\w*$/m).forEach((part, at) => {
    if (at % 2 === 1) blocks.push(h("pre", {}, part.replace(/^\n|\n$/g, "")));
    else for (const paragraph of part.split(/\n{2,}/)) if (paragraph.trim()) blocks.push(h("p", {}, ...inline(paragraph.trim())));
  });
  return h("div", { class: "field-help" }, ...blocks);
}

function inline(text: string): Child[] {
  return text.split(/(\*\*[^*]+\*\*|`[^`]+`|\*[^*\s][^*]*\*)/).map((part) => {
    if (/^\*\*.+\*\*$/.test(part)) return h("b", {}, part.slice(2, -2));
    if (/^`.+`$/.test(part)) return h("code", {}, part.slice(1, -1));
    if (/^\*.+\*$/.test(part)) return h("em", {}, part.slice(1, -1));
    return part;
  });
}
