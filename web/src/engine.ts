// The engine behind the page: in a worker of this tab, or in the `kiln ui` that served the page.

export interface Engine {
  /** Where it runs, for people. */
  readonly home: "tab" | "process";
  call<T>(method: string, parameters: Record<string, unknown>): Promise<T>;
}

export class EngineError extends Error {}

/** The engine as WebAssembly, off the page's thread. */
export class WorkerEngine implements Engine {
  readonly home = "tab";
  private worker: Worker;
  private waiting = new Map<number, { resolve: (answer: any) => void; reject: (error: Error) => void }>();
  private last = 0;

  constructor() {
    this.worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module", name: "kiln" });
    this.worker.onmessage = (event) => {
      const { id, answer, error } = event.data;
      const waiting = this.waiting.get(id);
      this.waiting.delete(id);
      if (error) waiting?.reject(new EngineError(error));
      else waiting?.resolve(answer);
    };
    this.worker.onerror = (event) => {
      for (const waiting of this.waiting.values()) waiting.reject(new EngineError(event.message || "the engine stopped"));
      this.waiting.clear();
    };
  }

  call<T>(method: string, parameters: Record<string, unknown>): Promise<T> {
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.worker.postMessage({ id, request: JSON.stringify({ method, ...parameters }) });
    });
  }
}

/** The engine of the process that serves the page. */
export class ProcessEngine implements Engine {
  readonly home = "process";
  constructor(private token: string) {}

  async call<T>(method: string, parameters: Record<string, unknown>): Promise<T> {
    let response: Response;
    try {
      response = await fetch("api/call", {
        method: "POST",
        headers: { "content-type": "application/json", "kiln-token": this.token },
        body: JSON.stringify({ method, ...parameters }),
      });
    } catch {
      throw new EngineError("kiln ui has ended: start it again");
    }
    if (response.status === 401) throw new EngineError("the address lacks its token: open the one that kiln ui printed");
    const answer = await response.json();
    if (!response.ok && !answer.error) throw new EngineError(`kiln ui answered ${response.status}`);
    if (answer.error) throw new EngineError(answer.error.message);
    return answer;
  }
}
