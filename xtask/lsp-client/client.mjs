// Talks to `kiln lsp` as editors do, with the library that VS Code's own clients use, and prints what comes back.
//
//     node client.mjs KILN DIRECTORY
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import protocol from 'vscode-languageserver-protocol/node.js'

const [kiln, directory] = process.argv.slice(2)
const server = spawn(kiln, ['lsp', '--stdio'], { stdio: ['pipe', 'pipe', 'inherit'] })
const connection = protocol.createProtocolConnection(
  new protocol.StreamMessageReader(server.stdout),
  new protocol.StreamMessageWriter(server.stdin),
)
const waiting = new Map()
connection.onNotification(protocol.PublishDiagnosticsNotification.type, (found) => {
  waiting.get(found.uri)?.(found.diagnostics)
})
connection.listen()

/** Opens a text and gives what the server finds in it. */
function open(name, text) {
  const uri = pathToFileURL(join(directory, name)).href
  const found = new Promise((resolve) => waiting.set(uri, resolve))
  connection.sendNotification(protocol.DidOpenTextDocumentNotification.type, {
    textDocument: { uri, languageId: 'yaml', version: 1, text },
  })
  return found.then((diagnostics) => ({ uri, diagnostics }))
}

/** The position of a word in a text, some characters behind its beginning. */
function position(text, word, behind = 1) {
  const before = text.slice(0, text.indexOf(word) + behind)
  const lines = before.split('\n')
  return { line: lines.length - 1, character: lines.at(-1).length }
}

const started = await connection.sendRequest(protocol.InitializeRequest.type, {
  processId: process.pid,
  rootUri: pathToFileURL(directory).href,
  capabilities: { textDocument: { publishDiagnostics: { relatedInformation: true } } },
})
await connection.sendNotification(protocol.InitializedNotification.type, {})
console.log(`server: ${started.serverInfo.name}`)

const broken = readFileSync(join(directory, 'broken.yaml'), 'utf8')
const wrong = await open('broken.yaml', broken)
const mistake = wrong.diagnostics.find((found) => found.message.startsWith('unknown field'))
console.log(`diagnostic: ${mistake.message.replace('\n', ' / ')}`)
const actions = await connection.sendRequest(protocol.CodeActionRequest.type, {
  textDocument: { uri: wrong.uri },
  range: mistake.range,
  context: { diagnostics: [mistake] },
})
console.log(`quick fix: ${actions[0].title}`)
const [edit] = actions[0].edit.changes[wrong.uri]
const lines = broken.split('\n')
const line = lines[edit.range.start.line]
lines[edit.range.start.line] =
  line.slice(0, edit.range.start.character) + edit.newText + line.slice(edit.range.end.character)
console.log(`fixed line: ${lines[edit.range.start.line].trim()}`)

const policy = readFileSync(join(directory, 'p/policy.yaml'), 'utf8')
const right = await open('p/policy.yaml', policy)
console.log(`problems of the started policy: ${right.diagnostics.length}`)
const hover = await connection.sendRequest(protocol.HoverRequest.type, {
  textDocument: { uri: right.uri },
  position: position(policy, 'failureAction'),
})
console.log(`hover: ${hover.contents.value.split('\n')[0]}`)
const variable = await connection.sendRequest(protocol.HoverRequest.type, {
  textDocument: { uri: right.uri },
  position: position(policy, 'request.object', 10),
})
console.log(`hover: ${variable.contents.value.split('\n')[0]}`)

const half = policy + '    ex'
const writing = await open('half.yaml', half)
const list = await connection.sendRequest(protocol.CompletionRequest.type, {
  textDocument: { uri: writing.uri },
  position: position(half, '\n    ex', 7),
})
console.log(`completion has exclude: ${list.items.some((item) => item.label === 'exclude')}`)

const cel = [
  'apiVersion: policies.kyverno.io/v1',
  'kind: ValidatingPolicy',
  'metadata: {name: v}',
  'spec:',
  '  variables:',
  "  - {name: most, expression: '5'}",
  '  validations:',
  '  - expression: object.spec.replicas < variables.most',
  '',
].join('\n')
const expression = await open('cel.yaml', cel)
const definition = await connection.sendRequest(protocol.DefinitionRequest.type, {
  textDocument: { uri: expression.uri },
  position: position(cel, 'variables.most', 11),
})
console.log(`definition: line ${definition.range.start.line + 1}`)
const value = await connection.sendRequest(protocol.HoverRequest.type, {
  textDocument: { uri: expression.uri },
  position: position(cel, 'variables.most', 11),
})
console.log(`hover: ${value.contents.value.split('\n').filter((line) => line !== '').join(' ')}`)

const formatted = await connection.sendRequest(protocol.DocumentFormattingRequest.type, {
  textDocument: { uri: (await open('format.yaml', 'a:\n    b:  1 # why\n')).uri },
  options: { tabSize: 2, insertSpaces: true },
})
console.log(`formatted: ${JSON.stringify(formatted[0].newText)}`)

const app = await open('bad/kustomization.yaml', 'resources: [no.yaml]\n')
console.log(`kustomization: ${app.diagnostics.length} problem`)

await connection.sendRequest(protocol.ShutdownRequest.type)
const ended = new Promise((resolve) => server.on('exit', resolve))
await connection.sendNotification(protocol.ExitNotification.type)
console.log(`exit code: ${await ended}`)
connection.dispose()
