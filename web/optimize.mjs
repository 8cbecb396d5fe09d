// node optimize.mjs FROM TO: makes WebAssembly smaller.

import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

const [from, to] = process.argv.slice(2);
const program = join(dirname(createRequire(import.meta.url).resolve("binaryen/package.json")), "bin/wasm-opt");
execFileSync(process.execPath, [program, "-Os", "--all-features", from, "-o", to], { stdio: "inherit" });
