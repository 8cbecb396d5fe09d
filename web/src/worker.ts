// Runs the engine. `kiln.js` is what wasm-bindgen wrote; it lies beside this file in the static playground.

interface EngineModule {
  default(input: { module_or_path: string }): Promise<unknown>;
  call(request: string, milliseconds: number, random: bigint): string;
}

const loading: Promise<EngineModule> = (async () => {
  const address = new URL("kiln.js", self.location.href).href;
  const engine = (await import(/* @vite-ignore */ address)) as EngineModule;
  await engine.default({ module_or_path: new URL("kiln.wasm", self.location.href).href });
  return engine;
})();

function random(): bigint {
  const words = crypto.getRandomValues(new Uint32Array(2));
  return (BigInt(words[0]) << 32n) | BigInt(words[1]);
}

self.onmessage = async (event: MessageEvent<{ id: number; request: string }>) => {
  const { id, request } = event.data;
  try {
    const engine = await loading;
    const answer = JSON.parse(engine.call(request, Date.now(), random()));
    if (answer.error) self.postMessage({ id, error: answer.error.message });
    else self.postMessage({ id, answer });
  } catch (error) {
    self.postMessage({ id, error: error instanceof Error ? error.message : String(error) });
  }
};
