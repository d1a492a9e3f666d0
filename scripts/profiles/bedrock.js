// A server or a client of Minecraft Bedrock by bedrock-protocol: serve|join ADDRESS PORT.
const bedrock = require('bedrock-protocol')
const [role, host, port] = process.argv.slice(2)
const options = { host, port: Number(port), offline: true, raknetBackend: 'raknet-native' }
const fail = e => { console.error(String(e.message || e)); process.exit(1) }

async function join () {
  for (let tries = 1; ; tries++) { // as the list of servers in the game does
    try {
      await bedrock.ping(options)
      break
    } catch (e) {
      if (tries === 10) throw e
    }
  }
  const client = bedrock.createClient({ ...options, username: 'levee', connectTimeout: 20000 })
  client.on('join', () => { console.log('joined'); process.exit(0) })
  client.on('error', fail)
}

if (role === 'serve') {
  const server = bedrock.createServer({ ...options, maxPlayers: 20 })
  server.on('connect', client => client.on('join',
    () => client.write('play_status', { status: 'login_success' })))
  console.log('ready')
  process.stdin.resume().on('end', () => process.exit(0))
} else {
  setTimeout(fail, 30000, 'nobody lets it in')
  join().catch(fail)
}
