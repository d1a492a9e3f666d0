package talk

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"levee/internal/packet/a2s"
)

// hexed returns bytes that are written in hex, with spaces.
func hexed(text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		panic(err) // a constant
	}
	return b
}

// forged returns a line of a flood.
func forged(payload []byte, more string) string {
	return fmt.Sprintf("payload hex %q %s", hex.EncodeToString(payload), more)
}

// drawn returns bytes of no meaning, n of them.
func drawn(n int) []byte { return bytes.Repeat([]byte{0x5a}, n) }

// noMessage is a packet that is none of RakNet, WireGuard or OpenVPN, whose types are others.
var noMessage = forged(hexed("7f 5a5a5a5a 5a5a5a5a"), "len 64")

// at tells whether b has want at an offset.
func at(b []byte, offset int, want []byte) bool {
	return len(b) >= offset+len(want) && bytes.Equal(b[offset:offset+len(want)], want)
}

// A2S: the service answers a query by a number, and the repeated query with that number by the
// data. A client that receives another number sends that one, up to as many times as python-a2s.
// Players send packets of a session. https://developer.valvesoftware.com/wiki/Server_queries
var (
	// Protocol, name, map, folder, game; ID, players, room, bots; dedicated, Linux, open, no
	// cheats; version.
	a2sAnswer = slices.Concat(hexed("ffffffff 49 11"),
		[]byte("A server\x00a map\x00folder\x00a game\x00"), hexed("0000 00 10 00"),
		[]byte("dl\x00\x001.0.0.0\x00"), hexed("00"))
	a2sAnswers = map[byte][]byte{a2s.Info: a2sAnswer,
		a2s.Player: hexed("ffffffff 44 00"), a2s.Rules: hexed("ffffffff 45 0000")} // none
	sourceSession = hexed("01000000 00000000")
	// Of a session, a join with a number of nobody, and a query that no cookie answers.
	sourceStray = []string{forged(sourceSession, "len 64"),
		forged(slices.Concat(hexed("ffffffff 6b 18000000 03000000"), drawn(8)), "len 64"),
		forged(hexed("ffffffff 57"), "")}
	games = &Service{
		Name: "source-engine", What: "ask what the server is, by A2S", Port: 27015,
		Forged: []string{forged(a2s.Query(a2s.Info), "")},
		Stray:  sourceStray,
		answer: func(k key, from netip.AddrPort, msg []byte) []byte {
			want := binary.LittleEndian.Uint32(k.value(from, 4))
			switch number, ok := a2s.Echo(msg); {
			case !a2s.IsQuery(msg) && at(msg, 0, hexed("ffffffff")):
				return nil
			case !a2s.IsQuery(msg):
				return msg // of a session
			case ok && number == want:
				return a2sAnswers[msg[4]]
			}
			return a2s.Answer(want)
		},
		join: func(c *talk) error {
			query := a2s.Query(a2s.Info)
			for range 1 + a2sNumbers {
				answer, err := c.ask(query, func([]byte) bool { return true })
				if err != nil || at(answer, 0, a2sAnswer) {
					return err
				}
				number, ok := a2s.Number(answer)
				if !ok {
					return fmt.Errorf("a query is answered by %x", answer)
				}
				query = a2s.Query(a2s.Info, number)
			}
			return errors.New("a query is answered by one number after the other")
		},
		goOn: func(c *talk) error { return c.echoed(sourceSession) },
	}
)

// GoldSrc: a request for a number, the number in digits, a request to join with it, and its answer.
// The client says the first again after cl_resend, which is 6 seconds where nobody has set it.
// https://github.com/dreamstalker/rehlds (rehlds/engine/sv_main.cpp)
var (
	goldFirst = []byte("\xff\xff\xff\xffgetchallenge steam\n")
	goldTold  = []byte("\xff\xff\xff\xffA00000000 ")
	goldJoin  = []byte("\xff\xff\xff\xffconnect 48 ")
	goldTaken = []byte("\xff\xff\xff\xffB ")
	goldsrc   = &Service{
		Name: "goldsrc", What: "ask for a number and join", Port: 27015,
		Forged: []string{forged(goldFirst, "")},
		Stray:  sourceStray,
		again:  6 * time.Second,
		answer: func(k key, from netip.AddrPort, msg []byte) []byte {
			digits := strconv.AppendUint(nil,
				uint64(binary.LittleEndian.Uint32(k.value(from, 4))), 10)
			switch {
			case at(msg, 0, goldFirst):
				return slices.Concat(goldTold, digits, []byte(" 3 90071992547409920m 1\n\x00"))
			case at(msg, 0, slices.Concat(goldJoin, digits, []byte(" "))):
				return slices.Concat(goldTaken, []byte("1 \""), []byte(from.String()),
					[]byte("\" 0 10211\x00"))
			}
			return games.answer(k, from, msg)
		},
		join: func(c *talk) error {
			answer, err := c.ask(goldFirst, func(b []byte) bool { return at(b, 0, goldTold) })
			if err != nil {
				return err
			}
			digits, _, _ := bytes.Cut(answer[len(goldTold):], []byte(" "))
			_, err = c.ask(slices.Concat(goldJoin, digits, []byte(` "\prot\3" "\name\a"`+"\n")),
				func(b []byte) bool { return at(b, 0, goldTaken) })
			return err
		},
		goOn: games.goOn,
	}
)

// a2sNumbers is the number of numbers that python-a2s takes, one after the other.
const a2sNumbers = 5

// echoed sends a packet of a session that the server sends back.
func (c *talk) echoed(begins []byte) error {
	msg := slices.Concat(begins, c.id[:], binary.BigEndian.AppendUint32(nil, c.sent.Add(1)),
		drawn(20))
	_, err := c.ask(msg, func(b []byte) bool { return at(b, 0, msg) })
	return err
}

// RakNet: ping, then two requests, the second with the cookie of the first one's answer.
var (
	rakMagic = hexed("00ffff00fefefefefdfdfdfd12345678")
	rakGUID  = drawn(8)
	rakPing  = func(ms int64) []byte {
		clock := binary.BigEndian.AppendUint64([]byte{1}, uint64(ms))
		return slices.Concat(clock, rakMagic, rakGUID)
	}
	rakFirst   = slices.Concat([]byte{5}, rakMagic, []byte{11}, make([]byte, 1446))
	rakForged  = forged(slices.Concat([]byte{5}, rakMagic, []byte{11}), "len 512")
	rakSession = hexed("84 000000 60")
	rakAddress = hexed("04 3f57fefe 4abc")
	raknet     = &Service{
		Name: "raknet", What: "ping and open a connection", Port: 19132,
		// Of pings one of each half that the profile makes of them.
		Forged: []string{forged(rakPing(0), "len 512"), rakForged, forged(rakPing(8), "len 512"),
			rakForged},
		Stray: []string{forged(rakSession, "len 64"),
			forged(slices.Concat([]byte{7}, rakMagic, drawn(4)), "len 64"), noMessage},
		again: 500 * time.Millisecond,
		answer: func(k key, from netip.AddrPort, msg []byte) []byte {
			value := k.value(from, 4)
			switch {
			case at(msg, 0, []byte{1}) && at(msg, 9, rakMagic):
				return slices.Concat([]byte{0x1c}, msg[1:9], drawn(8), rakMagic,
					[]byte("\x00\x16MCPE;A server;0;1.0;0;9"))
			case at(msg, 0, []byte{5}) && at(msg, 1, rakMagic):
				return slices.Concat([]byte{6}, rakMagic, drawn(8), []byte{1}, value,
					hexed("05d4"))
			case at(msg, 0, []byte{7}) && at(msg, 1, rakMagic) && at(msg, 17, value):
				return slices.Concat([]byte{8}, rakMagic, drawn(8), rakAddress, hexed("05d400"))
			case len(msg) > 0 && msg[0]&0x80 != 0:
				return msg
			}
			return nil
		},
		join: func(c *talk) error {
			_, err := c.askAnew(func() []byte { return rakPing(time.Now().UnixMilli()) },
				func(b []byte) bool { return at(b, 0, []byte{0x1c}) })
			if err != nil {
				return err
			}
			answer, err := c.ask(rakFirst, func(b []byte) bool {
				return at(b, 0, []byte{6}) &&
					len(b) >= 30
			})
			if err != nil {
				return err
			}
			_, err = c.ask(slices.Concat([]byte{7}, rakMagic, answer[26:30], []byte{0}, rakAddress,
				hexed("05d4"), c.id[:]), func(b []byte) bool { return at(b, 0, []byte{8}) })
			return err
		},
		goOn: func(c *talk) error { return c.echoed(rakSession) },
	}
)

// QUIC: an Initial of 1,200 bytes, the server's answer with its connection ID, and packets to that
// (RFC 9000 sections 7.2 and 17.2). Contents are not encrypted.
var (
	quicLong    = hexed("c0 00000001")
	quicInitial = func(source []byte) []byte {
		b := slices.Concat(quicLong, []byte{8}, drawn(8), []byte{byte(len(source))}, source,
			hexed("00 449e"))
		return append(b, drawn(1200-len(b))...)
	}
	quic = &Service{
		Name: "quic", What: "open a connection of QUIC", Port: 443,
		Forged: []string{forged(quicInitial(drawn(8))[:40], "len 1228")},
		Stray: []string{forged(slices.Concat([]byte{0x40}, drawn(8)), "len 64"),
			forged(make([]byte, 9), "len 64")},
		again: time.Second, // RFC 9002 section 6.2.2: twice an RTT of 333 ms, and more
		answer: func(k key, from netip.AddrPort, msg []byte) []byte {
			value := k.value(from, 8)
			switch {
			case at(msg, 0, quicLong) && len(msg) >= 1200 && at(msg, 5, []byte{8}) && msg[14] == 8:
				return slices.Concat(quicLong, msg[14:23], []byte{8}, value, drawn(1000))
			case at(msg, 6, value), at(msg, 1, value):
				return msg
			}
			return nil
		},
		join: func(c *talk) error {
			answer, err := c.ask(quicInitial(c.id[:]), func(b []byte) bool {
				return at(b, 6, c.id[:]) && len(b) > 100
			})
			if err != nil {
				return err
			}
			c.told = slices.Clone(answer[15:23])
			return c.echoed(slices.Concat(hexed("e0 00000001 08"), c.told, []byte{8}))
		},
		goOn: func(c *talk) error { return c.echoed(slices.Concat([]byte{0x40}, c.told)) },
	}
)

// WireGuard: a handshake, its answer with the server's index, and data to that. The MACs are
// missing: this server takes each handshake.
// https://www.wireguard.com/protocol/
var (
	wgHandshake = func(index []byte) []byte {
		return slices.Concat(hexed("01000000"), index, drawn(140))
	}
	wireguard = &Service{
		Name: "wireguard", What: "make a handshake and send data", Port: 51820,
		Forged: []string{forged(wgHandshake(drawn(4)), "")},
		Stray: []string{forged(slices.Concat(hexed("04000000"), drawn(4)), "len 64"),
			forged(slices.Concat(hexed("02000000"), drawn(8)), "len 120"), noMessage},
		again: 5 * time.Second, // REKEY_TIMEOUT
		answer: func(k key, from netip.AddrPort, msg []byte) []byte {
			value := k.value(from, 4)
			switch {
			case at(msg, 0, hexed("01000000")) && len(msg) == 148:
				return slices.Concat(hexed("02000000"), value, msg[4:8], drawn(80))
			case at(msg, 0, hexed("04000000")) && at(msg, 4, value):
				return msg
			}
			return nil
		},
		join: func(c *talk) error {
			answer, err := c.ask(wgHandshake(c.id[:4]), func(b []byte) bool {
				return at(b, 0, hexed("02000000")) && at(b, 8, c.id[:4])
			})
			if err != nil {
				return err
			}
			c.told = slices.Clone(answer[4:8])
			return c.goOn(c)
		},
		goOn: func(c *talk) error {
			return c.echoed(slices.Concat(hexed("04000000"), c.told, make([]byte, 8)))
		},
	}
)

// OpenVPN without a key: a reset, the server's with its identifier, which the acknowledgement names
// (the protocol's page in the sources of OpenVPN, doc/doxygen/doc_protocol_overview.h).
var (
	openvpnData = hexed("48 000000")
	openvpn     = &Service{
		Name: "openvpn", What: "reset, acknowledge and send data", Port: 1194,
		Forged: []string{forged(slices.Concat([]byte{0x38}, drawn(8), make([]byte, 5)), "")},
		Stray: []string{forged(openvpnData, "len 64"),
			forged(slices.Concat([]byte{0x20}, drawn(8)), "len 64"), noMessage},
		again: 2 * time.Second,
		answer: func(k key, from netip.AddrPort, msg []byte) []byte {
			value := k.value(from, 8)
			switch {
			case at(msg, 0, []byte{0x38}) && len(msg) >= 14:
				return slices.Concat([]byte{0x40}, value, hexed("01 00000000"), msg[1:9],
					make([]byte, 4))
			case at(msg, 0, []byte{0x20}) && at(msg, 14, value), at(msg, 0, []byte{0x48}):
				return msg
			}
			return nil
		},
		join: func(c *talk) error {
			reset := slices.Concat([]byte{0x38}, c.id[:], make([]byte, 5))
			answer, err := c.ask(reset, func(b []byte) bool { return at(b, 14, c.id[:]) })
			if err != nil {
				return err
			}
			// The first packet of TLS, which acknowledges the reset.
			return c.echoed(slices.Concat([]byte{0x20}, c.id[:], hexed("01 00000000"),
				answer[1:9], hexed("00000001")))
		},
		goOn: func(c *talk) error { return c.echoed(openvpnData) },
	}
)

// TeamSpeak 3: two questions of the client, the second with 16 bytes of the first one's answer, and
// packets with a MAC of their own. The puzzle that the second answer has is not computed, nor what
// is behind it. Clients repeat what nobody answers after a second.
// https://github.com/ReSpeak/tsdeclarations (ts3protocol.md)
var (
	tsMark  = []byte("TS3INIT1")
	tsFirst = slices.Concat(tsMark, hexed("0065 0000 88 0d6b5bc9 00 5e0b0c0d"), drawn(4),
		make([]byte, 8))
	tsTold    = slices.Concat(tsMark, hexed("0065 88 01"))
	tsPuzzle  = slices.Concat(tsMark, hexed("0065 88 03"), drawn(232))
	tsSession = slices.Concat(drawn(8), hexed("0001 0001 02"))
	teamspeak = &Service{
		Name: "teamspeak3", What: "begin a handshake and talk", Port: 9987,
		Forged: []string{forged(tsFirst, "")},
		Stray:  []string{forged(tsSession, "len 64")},
		again:  time.Second,
		answer: func(k key, from netip.AddrPort, msg []byte) []byte {
			value := k.value(from, 16)
			switch {
			case at(msg, 0, tsFirst[:18]):
				return slices.Concat(tsTold, value, drawn(4))
			case at(msg, 0, tsMark) && at(msg, 17, []byte{2}) && at(msg, 18, value):
				return tsPuzzle
			case at(msg, 0, tsMark):
				return nil
			}
			return msg
		},
		join: func(c *talk) error {
			answer, err := c.ask(tsFirst, func(b []byte) bool {
				return at(b, 0, tsTold) && len(b) >= len(tsTold)+16
			})
			if err != nil {
				return err
			}
			_, err = c.ask(slices.Concat(tsFirst[:17], []byte{2},
				answer[len(tsTold):len(tsTold)+16], drawn(4)),
				func(b []byte) bool { return at(b, 0, tsPuzzle[:12]) })
			return err
		},
		goOn: func(c *talk) error { return c.echoed(tsSession) },
	}
)
