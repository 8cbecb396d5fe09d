// The examples of the repository as workspaces of the playground.

import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join, posix, relative } from "node:path";

interface ExampleFile {
  path: string;
  role: string;
  text: string;
}

interface Example {
  name: string;
  group: string;
  about: string;
  files: ExampleFile[];
}

const GROUPS: Record<string, string> = {
  generate: "Generate",
  "generating-policy": "GeneratingPolicy",
  mutate: "Mutate",
  validate: "Validate",
  "validating-policy": "ValidatingPolicy",
  modrule: "ModRule",
  test: "Tests",
  build: "Kustomizations",
  charts: "Kustomizations",
};

const ROLES: Record<string, string> = {
  "rules.yaml": "policies",
  "policy.yaml": "policies",
  "exception.yaml": "policies",
  "exceptions.yaml": "policies",
  "resources.yaml": "resources",
  "more-pods.yaml": "resources",
  "others.yaml": "cluster",
  "source.yaml": "cluster",
  "values.yaml": "values",
  "user.yaml": "user",
  "userinfo.yaml": "user",
  "kyverno-test.yaml": "tests",
};

const NAMES: Record<string, string> = { policies: "policies.yaml", cluster: "cluster.yaml" };

function filesBelow(directory: string): string[] {
  return readdirSync(directory)
    .sort()
    .flatMap((name) => {
      const path = join(directory, name);
      return statSync(path).isDirectory() ? filesBelow(path) : [path];
    });
}

function read(path: string): string {
  return readFileSync(path, "utf8");
}

/** Policies, resources and what belongs to them, under the names of the playground. */
function ofRules(directory: string): ExampleFile[] {
  return filesBelow(directory)
    .filter((path) => ROLES[path.slice(directory.length + 1)] && !path.includes("kyverno-test"))
    .map((path) => {
      const name = path.slice(directory.length + 1);
      const role = ROLES[name];
      return { path: name === "exception.yaml" ? name : (NAMES[role] ?? name), role, text: read(path) };
    });
}

/** A suite and everything that it names. */
function ofSuite(root: string, directory: string): ExampleFile[] {
  const suite = read(join(directory, "kyverno-test.yaml"));
  const named = [...suite.matchAll(/[\w./-]+\.ya?ml/g)].map((match) => posix.normalize(posix.join(directory, match[0])));
  const paths = [...new Set([...filesBelow(directory), ...named])].filter((path) => existsSync(path));
  return paths.map((path) => {
    const name = path.split("/").pop()!;
    return { path: relative(root, path), role: ROLES[name] ?? "tree", text: read(path) };
  });
}

/** A tree; the kustomization that is built comes first. */
function ofTree(root: string, directories: string[]): ExampleFile[] {
  const paths = directories.flatMap((directory) => filesBelow(join(root, directory)));
  const files = paths.filter((path) => !path.includes("expected"));
  return files.map((path) => ({ path: relative(root, path), role: "tree", text: read(path) }));
}

export function gallery(root: string): Example[] {
  const about = new Map<string, string>();
  for (const row of read(join(root, "README.md")).matchAll(/^\| \[[^\]]+\]\(([^)]+?)\/?\) \| (.*?) \|/gm)) {
    about.set(row[1], row[2].replaceAll("`", ""));
  }
  const found: Example[] = [];
  for (const [group, title] of Object.entries(GROUPS)) {
    for (const name of readdirSync(join(root, group)).sort()) {
      const directory = join(root, group, name);
      if (!statSync(directory).isDirectory() || group === "build") continue;
      const files =
        group === "test" ? ofSuite(root, directory) : group === "charts" ? ofTree(root, [`${group}/${name}`]) : ofRules(directory);
      found.push({ name, group: title, about: about.get(`${group}/${name}`) ?? "", files });
    }
  }
  const overlay = ofTree(root, ["build/overlay", "build/base"]);
  found.push({ name: "overlay", group: "Kustomizations", about: "a base and an overlay", files: overlay });
  return found.filter((example) => example.files.length > 0);
}
