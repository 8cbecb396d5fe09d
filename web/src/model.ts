// What the engine answers, as far as the page reads it.

export interface Span {
  file: string;
  line: number;
  column: number;
  endLine?: number;
  endColumn?: number;
}

export interface Problem {
  severity: "info" | "warning" | "error";
  message: string;
  hint?: string;
  place?: Span;
}

export interface TraceStep {
  what: string;
  answer?: unknown;
  why?: string;
  steps?: TraceStep[];
}

export interface Fault {
  path?: string;
  why: string;
  place?: Span;
  wanted?: Span;
}

export interface RuleResult {
  policy: string;
  rule: string;
  resource: string;
  result: string;
  word: string;
  why?: string;
  message?: string;
  faults?: Fault[];
  fix?: { path: string; action: string; value?: unknown; matching?: string }[];
  made: { object: string; change: string }[];
  problems: string[];
  trace?: TraceStep;
  place?: Span;
  rulePlace?: Span;
}

export interface MadeObject {
  object: string;
  change: string;
  yaml: string;
  diff: string;
}

export interface TestRow {
  policy: string;
  rule: string;
  resource: string;
  verdict: string;
  wanted?: string;
  reason?: string;
}

export interface Evaluation {
  rules: number;
  policies: number;
  results: RuleResult[];
  untouched: string[];
  summary: Record<"pass" | "fail" | "warn" | "error" | "skip", number>;
  objects: MadeObject[];
  problems: Problem[];
  build?: string;
  lineageHtml?: string;
  planHtml?: string;
  tests?: { suites: { path: string; results: TestRow[] }[]; summary: Record<string, number> };
}

/** An item of the Language Server Protocol. */
export interface CompletionItem {
  label: string;
  kind: number;
  detail: string;
  documentation: { value: string };
  insertText?: string;
  sortText?: string;
}

export interface Assistance {
  items: CompletionItem[];
  /** Markdown about what stands at the place. */
  hover?: { text: string; from: number; to: number };
}

/** `apps/v1/Deployment/shop/web` as people say it. */
export function spoken(object: string): string {
  const parts = object.split("/");
  const version = parts.slice(0, 2).findIndex((part) => /^v\d/.test(part));
  const rest = parts.slice(version + 1);
  return rest.length > 1 ? `${rest[0]} ${rest.slice(1).join("/")}` : object;
}
