// The files that are open: kept in this browser, passed on as links.

export type Role = "policies" | "resources" | "cluster" | "values" | "user" | "tests" | "tree";

export interface WorkspaceFile {
  path: string;
  role: Role;
  text: string;
}

export interface Workspace {
  files: WorkspaceFile[];
}

export const ROLE_TITLES: Record<Role, string> = {
  policies: "Policies",
  resources: "Resources",
  cluster: "Cluster objects",
  values: "Values",
  user: "User",
  tests: "Tests",
  tree: "Kustomization",
};

const ORDER: Role[] = ["policies", "resources", "cluster", "values", "user", "tests", "tree"];

export function sorted(files: WorkspaceFile[]): WorkspaceFile[] {
  return [...files].sort((a, b) => ORDER.indexOf(a.role) - ORDER.indexOf(b.role));
}

/** The name of a new file of a role. */
export function newPath(workspace: Workspace, role: Role): string {
  const names: Record<Role, string> = {
    policies: "policies.yaml",
    resources: "resources.yaml",
    cluster: "cluster.yaml",
    values: "values.yaml",
    user: "user.yaml",
    tests: "kyverno-test.yaml",
    tree: "app/kustomization.yaml",
  };
  const first = names[role];
  const taken = new Set(workspace.files.map((file) => file.path));
  if (!taken.has(first)) return first;
  for (let number = 2; ; number++) {
    const path = role === "tree" ? `app/resource-${number}.yaml` : first.replace(".yaml", `-${number}.yaml`);
    if (!taken.has(path)) return path;
  }
}

const KEY = "kiln-studio-workspace";

export function remember(workspace: Workspace): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(workspace));
  } catch {
    // A private window may keep nothing.
  }
}

export function remembered(): Workspace | null {
  try {
    return read(JSON.parse(localStorage.getItem(KEY) ?? "null"));
  } catch {
    return null;
  }
}

/** A workspace from data of unknown origin. */
function read(data: unknown): Workspace | null {
  const files = (data as Workspace | null)?.files;
  if (!Array.isArray(files) || files.length === 0 || files.length > 200) return null;
  const fine = files.every(
    (file) => typeof file?.path === "string" && typeof file?.text === "string" && ORDER.includes(file?.role),
  );
  return fine ? { files: files.map(({ path, role, text }) => ({ path, role, text })) } : null;
}

// A link holds the version of its form, so that old ones keep opening: `w1.` is JSON, deflated, in URL-safe base64.

async function through(stream: GenericTransformStream, bytes: Uint8Array): Promise<Uint8Array> {
  const piped = new Blob([bytes as BlobPart]).stream().pipeThrough(stream as ReadableWritablePair<Uint8Array, Uint8Array>);
  return new Uint8Array(await new Response(piped).arrayBuffer());
}

export async function encodeLink(workspace: Workspace): Promise<string> {
  const compact = workspace.files.map((file) => [file.role, file.path, file.text]);
  const packed = await through(new CompressionStream("deflate-raw"), new TextEncoder().encode(JSON.stringify(compact)));
  let binary = "";
  for (const byte of packed) binary += String.fromCharCode(byte);
  return `w1.${btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

/** The most bytes that a link may unfold to. */
const MAX_UNFOLDED = 4 << 20;

/** What a link holds. One that unfolds to more is refused while it is read: a few bytes may stand for gigabytes. */
async function unfolded(bytes: Uint8Array): Promise<string> {
  const stream = new Blob([bytes as BlobPart]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    size += value.length;
    if (size > MAX_UNFOLDED) {
      await reader.cancel();
      throw new Error("the link holds too much");
    }
    text += decoder.decode(value, { stream: true });
  }
}

export async function decodeLink(text: string): Promise<Workspace | null> {
  const [version, packed] = text.split(".", 2);
  if (version !== "w1" || !packed) return null;
  try {
    const binary = atob(packed.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0));
    const plain = await unfolded(bytes);
    const compact = JSON.parse(plain) as [Role, string, string][];
    return read({ files: compact.map(([role, path, text]) => ({ role, path, text })) });
  } catch {
    return null;
  }
}
