// A server or a client of Minecraft Java Edition by minecraft-protocol: serve|join ADDRESS PORT.
const minecraft = require('minecraft-protocol')
const [role, host, port] = process.argv.slice(2)
const options = { host, port: Number(port), version: '1.20.1' }
const fail = e => { console.error(String(e.message || e)); process.exit(1) }
if (role === 'serve') {
  const server = minecraft.createServer({ ...options, 'online-mode': false })
  server.on('playerJoin', client => client.end('welcome'))
  server.on('listening', () => console.log('ready'))
  process.stdin.resume().on('end', () => process.exit(0))
} else {
  setTimeout(fail, 25000, 'nobody lets it in')
  minecraft.ping(options, e => {
    if (e) fail(e)
    const client = minecraft.createClient({ ...options, username: 'levee' })
    client.on('success', () => { console.log('joined'); process.exit(0) })
    client.on('error', fail)
  })
}
