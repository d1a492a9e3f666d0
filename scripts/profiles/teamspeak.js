// A server or a client of TeamSpeak 3 by @honeybbq/teamspeak-client: serve|join ADDRESS PORT. The
// package has no server: this one is written by its description of the protocol, with its ciphers,
// as far as a client that has joined is answered. It has no licence, which only TeamSpeak gives
// out, so the handshake is the older one, without.
const { createHmac, randomBytes } = require('node:crypto')
const dgram = require('node:dgram')
const { Client } = require('@honeybbq/teamspeak-client')
const { Crypt, EAX, generateIdentity } = require('@honeybbq/teamspeak-client/crypto')
const [role, host, port] = process.argv.slice(2)
const fail = e => { console.error(String(e.message || e)); process.exit(1) }

const MARK = Buffer.from('TS3INIT1')
const COMMAND = 2; const ACK = 6; const INIT = 8
const NEW_PROTOCOL = 0x20; const UNENCRYPTED = 0x80
const LEVEL = 1000 // squarings that a client computes

// header is that of a packet of the server, behind its MAC.
function header (id, type) {
  return Buffer.from([id >> 8, id & 255, type])
}

function serve () {
  const key = randomBytes(16)
  const identity = generateIdentity(8)
  const sessions = new Map()
  const socket = dgram.createSocket('udp4')
  const modulus = Buffer.concat([Buffer.from([0xc0]), randomBytes(62), Buffer.from([1])])
  const number = b => BigInt('0x' + b.toString('hex'))

  // begin answers the packets before there is a session. Nothing is kept of who sends them.
  function begin (msg, from, name) {
    const told = createHmac('sha256', key).update(name).digest().subarray(0, 16)
    const data = msg.subarray(13)
    const say = (...parts) => socket.send(
      Buffer.concat([MARK, header(101, INIT | UNENCRYPTED), ...parts]), from.port, from.address)
    switch (data[4]) {
      case 0:
        return say(Buffer.from([1]), told, Buffer.from(data.subarray(9, 13)).reverse())
      case 2: {
        if (!data.subarray(5, 21).equals(told)) return
        const level = Buffer.alloc(4)
        level.writeUInt32BE(LEVEL)
        return say(Buffer.from([3]), Buffer.alloc(48), told, modulus, level, Buffer.alloc(100))
      }
      case 4: {
        let x = number(Buffer.from(told))
        for (let i = 0; i < LEVEL; i++) x = x * x % number(modulus)
        const words = wordsOf(data.subarray(301).toString())
        if (number(data.subarray(237, 301)) !== x || !words.omega || sessions.has(name)) return
        const s = { crypt: new Crypt(identity), sent: 0, from }
        const beta = randomBytes(10).toString('base64')
        sessions.set(name, s)
        command(s, `clientinitiv alpha=${words.alpha} beta=${beta} ` +
          `omega=${identity.publicKeyBase64()}`)
        s.crypt.initCrypto(words.alpha, beta, words.omega)
      }
    }
  }

  // wordsOf are the values of a command.
  function wordsOf (text) {
    return Object.fromEntries(text.split(' ').map(w => [w.split('=', 1)[0],
      w.slice(w.indexOf('=') + 1)]))
  }

  // packet sends what a session is told. Until there are keys it is encrypted by public ones.
  function packet (s, type, id, text, dummy = !s.crypt.cryptoInitComplete) {
    const head = header(id, type)
    const [k, nonce] = s.crypt.getKeyNonce(true, id, 0, type, dummy)
    const [cipher, mac] = new EAX(k).encrypt(nonce, head, Buffer.from(text))
    socket.send(Buffer.concat([mac.subarray(0, 8), head, cipher]), s.from.port, s.from.address)
  }

  function command (s, text) {
    packet(s, COMMAND | NEW_PROTOCOL, s.sent++, text)
  }

  // go takes a packet of a session: it acknowledges commands, and answers them.
  function go (s, msg) {
    const head = msg.subarray(8, 13)
    const id = msg.readUInt16BE(8)
    const type = msg[12]
    if ((type & 15) !== COMMAND) return
    let text
    try {
      const [k, nonce] = s.crypt.getKeyNonce(false, id, 0, type, false)
      text = Buffer.from(new EAX(k).decrypt(nonce, head, msg.subarray(13), msg)).toString()
    } catch {
      return
    }
    packet(s, ACK, id, Buffer.from([id >> 8, id & 255]))
    if (text.startsWith('clientinit ')) command(s, 'initserver virtualserver_name=lab aclid=1')
    const code = wordsOf(text).return_code
    if (code) command(s, `error id=0 msg=ok return_code=${code}`)
  }

  socket.on('message', (msg, from) => {
    const name = `${from.address}:${from.port}`
    if (msg.length < 13) return
    if (msg.subarray(0, 8).equals(MARK)) return begin(msg, from, name)
    const s = sessions.get(name)
    if (s) go(s, msg)
  })
  socket.bind(Number(port), host, () => console.log('ready'))
  process.stdin.resume().on('end', () => process.exit(0))
}

async function join () {
  const client = new Client(generateIdentity(8), `${host}:${port}`, 'levee')
  await client.connect()
  await client.waitConnected(AbortSignal.timeout(25000))
  await client.execCommand('whoami', 5000)
  console.log('joined')
  process.exit(0)
}

if (role === 'serve') serve()
else join().catch(fail)
