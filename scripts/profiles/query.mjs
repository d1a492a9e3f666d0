// Asks a game server what it is and who plays, by gamedig: ADDRESS PORT. It is imported from the
// directory in which this runs.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const found = createRequire(process.cwd() + '/')
const { GameDig } = await import(pathToFileURL(found.resolve('gamedig')))
const [host, port] = process.argv.slice(2)
const state = await GameDig.query({
  type: 'protocol-valve', host, port: Number(port), givenPortOnly: true, socketTimeout: 3000
})
console.log('joined', state.name)
