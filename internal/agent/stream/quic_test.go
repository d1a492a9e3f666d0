package stream

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// initial seals an Initial of a client, with so much padding that the packet has 1,200 bytes.
func initial(t testing.TB, version uint32, id, token []byte, number uint32, frames []byte) []byte {
	t.Helper()
	return sealed(t, quicKeysOf(quicFormOf(version), id), version, id, token, number, frames)
}

// sealed seals it with keys that may be of another ID.
func sealed(t testing.TB, k *quicKeys, version uint32, id, token []byte, number uint32,
	frames []byte) []byte {
	t.Helper()
	const numberBytes = 4
	b := []byte{0xc0 | quicFormOf(version).initial<<4 | numberBytes - 1}
	b = binary.BigEndian.AppendUint32(b, version)
	b = append(append(b, byte(len(id))), id...)
	b = append(b, 0)
	b = append(b, byte(len(token)))
	b = append(b, token...)
	frames = append(bytes.Clone(frames),
		make([]byte, max(0, quicLeastBytes-len(b)-2-numberBytes-quicTagBytes-len(frames)))...)
	b = binary.BigEndian.AppendUint16(b, 0x4000|uint16(numberBytes+len(frames)+quicTagBytes))
	at := len(b)
	b = binary.BigEndian.AppendUint32(b, number)
	nonce := bytes.Clone(k.iv)
	for i := range numberBytes {
		nonce[len(nonce)-numberBytes+i] ^= b[at+i]
	}
	b = k.aead.Seal(b, nonce, frames, b)
	var mask [16]byte
	k.header.Encrypt(mask[:], b[at+4:at+4+quicSample])
	b[0] ^= mask[0] & 0x0f
	for i := range numberBytes {
		b[at+i] ^= mask[1+i]
	}
	return b
}

// cryptoFrame is a part of a handshake.
func cryptoFrame(at int, data []byte) []byte {
	out := binary.BigEndian.AppendUint16([]byte{quicCrypto}, 0x4000|uint16(at))
	out = binary.BigEndian.AppendUint16(out, 0x4000|uint16(len(data)))
	return append(out, data...)
}

// handshakeOf is the ClientHello of testHello without records.
func handshakeOf() []byte { return testHello(1 << 13)[recordHeader:] }

// TestTheInitialsOfRFC9001AndRFC9369: appendix A.2 of each has the packet that a client sends.
func TestTheInitialsOfRFC9001AndRFC9369(t *testing.T) {
	frame, err := hex.DecodeString("" +
		"060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e8" +
		"6804fe3a47f06a2b69484c00000413011302010000c000000010000e00000b6578616d706c652e636f6dff01" +
		"000100000a00080006001d0017001800100007000504616c706e000500050100000000003300260024001d00" +
		"209370b2c9caa47fbabaf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b0003020304000d0010" +
		"000e0403050306030203080408050806002d00020101001c00024001003900320408ffffffffffffffff0504" +
		"8000ffff07048000ffff0801100104800075300901100f088394c8f03e51570806048000ffff")
	if err != nil {
		t.Fatal(err)
	}
	id := []byte("\x83\x94\xc8\xf0\x3e\x51\x57\x08")
	for _, of := range []struct {
		version      uint32
		begins, ends string
	}{
		{1, "c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11d242b123dc9b",
			"e221af44860018ab0856972e194cd934"},
		{quicV2, "d76b3343cf088394c8f03e5157080000449ea0c95e82ffe67b6abcdb4298b485",
			"a18b2faa745b6fe189cf772a9f84cbfc"},
	} {
		packet := initial(t, of.version, id, nil, 2, frame)
		got := hex.EncodeToString(packet)
		if !strings.HasPrefix(got, of.begins) || !strings.HasSuffix(got, of.ends) {
			t.Fatalf("version %x: %s\nends in %s", of.version, got[:len(of.begins)],
				got[len(got)-len(of.ends):])
		}
		p := &quicParser{}
		if a := p.Feed(packet); a != Done || p.read.sni != "example.com" ||
			!strings.HasPrefix(p.read.ja4('q'), "q13d0211an_") {
			t.Errorf("version %x: answer %d, %+v", of.version, a, p.read)
		}
	}
}

// says gives datagrams of one flow to a table.
func says(k *Protocol, datagrams [][]byte, is Proof) (lines []string, r *Reader, unproven int) {
	table, r, told := reads(k)
	r.Unproven = func([]byte) { unproven++ }
	table.Proves = func(_ *Key, _, n uint32) Proof {
		if n != uint32(len(datagrams)) {
			return Waits
		}
		return is
	}
	for i, d := range datagrams {
		if d != nil {
			table.Segment(datagram(i, d))
		}
	}
	table.Prove()
	table.Expire(begun.Add(Patience))
	if table.held != 0 || len(table.flows) != 0 {
		panic(fmt.Sprint(table.held, " bytes of ", len(table.flows), " flows are held"))
	}
	return *told, r, unproven
}

func datagram(number int, data []byte) *Segment {
	return &Segment{At: begun, Dev: "eth0", Src: client,
		Dst: netip.AddrPortFrom(server.Addr(), 443), Proto: UDP,
		Data: data, First: 77, Seq: uint32(number)}
}

// TestAHelloOfQUICInAnyOrder of its parts: in frames, in packets, in datagrams, some twice, of each
// version.
func TestAHelloOfQUICInAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	hello := handshakeOf()
	for version, name := range map[uint32]string{1: "1", quicV2: "6b3343cf", 0xff00001d: "ff00001d",
		0xff000022: "ff000022"} {
		for run := range 100 {
			var frames [][]byte
			for at := 0; at < len(hello); {
				n := min(len(hello)-at, 1+r.IntN(700))
				if run == 0 {
					n = min(len(hello)-at, 1000)
				}
				frames = append(frames, cryptoFrame(at, hello[at:at+n]))
				if r.IntN(4) == 0 {
					frames = append(frames, []byte{quicPing, quicACK, 0, 0, 0, 0},
						[]byte{quicACKWithECN, 5, 0, 1, 2, 1, 1, 3, 4, 5}, frames[len(frames)-1])
				}
				at += n
			}
			if run > 0 {
				r.Shuffle(len(frames), func(i, j int) {
					frames[i], frames[j] = frames[j], frames[i]
				})
			}
			id := []byte{byte(run), 2, 3, 4, 5, 6, 7, 8}
			keys := quicKeysOf(quicFormOf(version), id)
			var datagrams [][]byte
			for i := 0; len(frames) > 0; i++ {
				var some []byte
				for len(frames) > 0 && len(some)+len(frames[0]) < 1100 {
					some, frames = append(some, frames[0]...), frames[1:]
				}
				to := id
				if i > 1 { // the server has said its own, and the keys stay
					to = []byte("server")
				}
				datagrams = append(datagrams, sealed(t, keys, version, to, nil, uint32(i), some))
			}
			lines, reader, _ := says(&quic, datagrams, Proven)
			want := `"quic":{"ja3":{"hash":"`
			if len(lines) != 1 || !strings.Contains(lines[0], want) ||
				!strings.Contains(lines[0], `"ja4":"q13d0105h2_`) ||
				!strings.Contains(lines[0], `"sni":"shop.example","version":"`+name+`"}`) ||
				!strings.Contains(lines[0], `"proto":"UDP"`) {
				t.Fatalf("version %s, run %d of %d datagrams: %q, %d unknown", name, run,
					len(datagrams), lines, reader.Unknown)
			}
		}
	}
}

// TestNothingIsKnownOfQUICThatTwoMaySend: whoever forges address and port of a client says nothing
// in its name, before or after it. A datagram that is lost may have been another's.
func TestNothingIsKnownOfQUICThatTwoMaySend(t *testing.T) {
	hello := handshakeOf()
	first := initial(t, 1, []byte("client's"), nil, 0, cryptoFrame(0, hello[:1000]))
	rest := initial(t, 1, []byte("client's"), nil, 1, cryptoFrame(1000, hello[1000:]))
	other := bytes.Replace(hello, []byte("shop.example"), []byte("evil.example"), 1)
	forged := initial(t, 1, []byte("attacker"), nil, 0, cryptoFrame(0, other[:1000]))
	more := initial(t, 1, []byte("attacker"), nil, 1, cryptoFrame(1000, other[1000:]))
	differs := initial(t, 1, []byte("client's"), nil, 1, cryptoFrame(0, other[:1000]))
	token := initial(t, 1, []byte("retried"), []byte("token"), 1, cryptoFrame(0, hello[:1000]))
	short := append([]byte{0x40}, make([]byte, 1300)...)
	all := append([][]byte{first, rest}, slices.Repeat([][]byte{first}, MostDatagrams-2)...)
	for name, c := range map[string]struct {
		datagrams [][]byte
		is        Proof
		records   int
		unknown   uint64
		unproven  int
	}{
		"a client":                  {[][]byte{first, rest}, Proven, 1, 0, 0},
		"a client that sends more":  {[][]byte{first, rest, first, short}, Proven, 1, 0, 0},
		"behind a Retry":            {[][]byte{first, token, rest}, Proven, 0, 1, 0},
		"not proven":                {[][]byte{first, rest}, Waits, 0, 0, 1},
		"nothing proves anybody":    {[][]byte{first, rest}, NoProof, 0, 0, 1},
		"a forger first":            {[][]byte{forged, more, first, rest}, Proven, 0, 1, 0},
		"a forger behind":           {[][]byte{first, rest, forged, more}, Proven, 0, 1, 0},
		"other bytes":               {[][]byte{first, differs, rest}, Proven, 0, 1, 0},
		"one lost":                  {[][]byte{first, nil, rest}, Proven, 0, 1, 0},
		"the last lost":             {[][]byte{first, rest, nil}, Proven, 0, 0, 1},
		"not whole":                 {[][]byte{first}, Proven, 0, 1, 0},
		"too short for a client":    {[][]byte{first[:1199]}, Proven, 0, 1, 0},
		"no Initial":                {[][]byte{short}, Proven, 0, 1, 0},
		"as many as there may be":   {all, Proven, 1, 0, 0},
		"more than there may be":    {append(all, rest), Proven, 0, 1, 0},
		"of what is no such packet": {[][]byte{make([]byte, 1200)}, Proven, 0, 1, 0},
	} {
		lines, r, unproven := says(&quic, c.datagrams, c.is)
		if len(lines) != c.records || r.Unknown != c.unknown || unproven != c.unproven {
			t.Errorf("%s: %d records, %d unknown, %d not proven: %q", name, len(lines), r.Unknown,
				unproven, lines)
		}
	}
}

// TestAClientBehindARetry says the same again, with the token, and keys of the server's ID.
func TestAClientBehindARetry(t *testing.T) {
	hello := handshakeOf()
	var datagrams [][]byte
	for _, c := range []struct{ id, token string }{{"client's", ""}, {"retried!", "token"}} {
		for i, at := range []int{0, 1000} {
			datagrams = append(datagrams, initial(t, 1, []byte(c.id), []byte(c.token), uint32(i),
				cryptoFrame(at, hello[at:min(len(hello), at+1000)])))
		}
	}
	if lines, r, _ := says(&quic, datagrams, Proven); len(lines) != 1 {
		t.Errorf("%q, %d unknown", lines, r.Unknown)
	}
}

// TestAQueryOverUDP is a datagram, and one of TCP has its length in front.
func TestAQueryOverUDP(t *testing.T) {
	query := testQuery(0)
	lines, _, _ := says(&dnsRow, [][]byte{query, query}, Proven)
	if len(lines) != 1 || !strings.Contains(lines[0], `"rrname":"www.shop.example"`) {
		t.Errorf("%q", lines)
	}
	answer := bytes.Clone(query)
	answer[2] |= 0x80
	for what, d := range map[string][]byte{"an answer": answer, "half of one": query[:20],
		"nothing": {}} {
		if lines, r, _ := says(&dnsRow, [][]byte{d}, Proven); len(lines) != 0 || r.Unknown != 1 {
			t.Errorf("%s: %q, %d unknown", what, lines, r.Unknown)
		}
	}
}

// TestADatagramCostsWhatOneClientMayAsk: 1,457 bytes of packets with an ID each had keys made for
// 47 of them, which took 240 us of the agent in the place of 5.
func TestADatagramCostsWhatOneClientMayAsk(t *testing.T) {
	hello := handshakeOf()
	good := initial(t, 1, []byte("client's"), nil, 0, cryptoFrame(0, hello[:1000]))
	closed := func(id byte) []byte {
		return append([]byte{0xc0, 0, 0, 0, 1, 1, id, 0, 0, 0x40, 20}, make([]byte, 20)...)
	}
	var many []byte
	for i := range 47 {
		many = append(many, closed(byte(i))...)
	}
	cost := func(d []byte) float64 {
		return testing.AllocsPerRun(10, func() { (&quicParser{}).Feed(d) })
	}
	for what, d := range map[string][]byte{"an ID each": many,
		"one ID": bytes.Repeat(closed(1), 47)} {
		if one, all := cost(good), cost(d); all > one {
			t.Errorf("packets with %s: %.0f allocations, %.0f of a client", what, all, one)
		}
	}
	p := &quicParser{}
	if a := p.Feed(append(closed(1), good...)); a != Unknown || p.keys != nil {
		t.Errorf("a packet behind one with another ID counts: answer %d", a)
	}
}

// TestPiecesOfAHelloAreFew: each byte by itself took 40 of memory, of which one was counted.
func TestPiecesOfAHelloAreFew(t *testing.T) {
	var frames []byte
	for at := range mostPieces {
		frames = append(frames, cryptoFrame(2*at, []byte{clientHello})...)
	}
	p := &quicParser{}
	if a := p.Feed(initial(t, 1, nil, nil, 0, frames)); a != More ||
		p.Held() < 40*mostPieces {
		t.Fatalf("answer %d, %d bytes are held", a, p.Held())
	}
	one := cryptoFrame(2*mostPieces, []byte{clientHello})
	if a := p.Feed(initial(t, 1, nil, nil, 1, one)); a != Unknown {
		t.Errorf("answer %d to one piece more", a)
	}
}

// FuzzDatagrams: parsers of datagrams never fail, and keep no more than came, and what pieces take.
func FuzzDatagrams(f *testing.F) {
	hello := handshakeOf()
	f.Add([]byte("12345678"), cryptoFrame(0, hello[:1000]), cryptoFrame(1000, hello[1000:]))
	f.Add([]byte{}, testQuery(0), []byte{quicACKWithECN, 5, 0, 1, 2, 1, 1, 3, 4, 5})
	d := dtlsHello("shop.example", "cookie", 7)
	f.Add([]byte{}, dtlsFragment(clientHello, 0, d, 0, 20),
		dtlsFragment(clientHello, 0, d, 10, len(d)))
	f.Add([]byte{1}, cryptoFrame(3, []byte("ab")), cryptoFrame(1, []byte("xaby")))
	f.Fuzz(func(t *testing.T, id, one, two []byte) {
		id, one, two = id[:min(len(id), quicMostID)], one[:min(len(one), 4000)],
			two[:min(len(two), 4000)]
		// As they come, and as frames that are sealed.
		sealed := [][]byte{initial(t, 1, id, nil, 0, one), initial(t, 1, id, nil, 1, two)}
		for _, datagrams := range [][][]byte{{one, two}, sealed} {
			for _, k := range Protocols {
				p, came := k.New(UDP), 0
				for _, d := range datagrams {
					came += len(d)
					a := p.Feed(d)
					if p.Held() > came+(mostPieces+1)*pieceBytes {
						t.Fatalf("%s holds %d bytes of %d", k.Name, p.Held(), came)
					}
					if a == Unknown {
						break
					}
					if a == Done && len(p.Record()) == 0 {
						t.Fatalf("%s: an empty record", k.Name)
					}
				}
			}
		}
	})
}
