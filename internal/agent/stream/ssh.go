package stream

import (
	"bytes"
	"crypto/md5" // of which HASSH and JA3 are made
	"encoding/binary"
	"encoding/hex"
	"strings"
)

var ssh = Protocol{
	Name:   "ssh",
	What:   "the version that a client of SSH names, and what it offers",
	Protos: []uint8{TCP},
	Ports:  []uint16{22},
	Fields: []string{"ssh.client.proto_version", "ssh.client.software_version",
		"ssh.client.hassh.hash", "ssh.client.hassh.string"},
	New: func(uint8) Parser { return &sshParser{} },
}

// Bounds of RFC 4253: 255 bytes for the version (section 4.2) and 35,000 for a packet (section
// 6.1). Limit is lower than the latter.
const (
	sshVersionBytes = 255
	sshKexInit      = 20
)

// sshParser reads the version (RFC 4253, section 4.2), and SSH_MSG_KEXINIT (section 7.1).
type sshParser struct {
	held     []byte
	proto    string
	software string
	hassh    string // what is hashed; "": not known
}

func (p *sshParser) Held() int { return len(p.held) }

// End is that a version is a record: some clients wait for the server before they say more.
func (p *sshParser) End() bool { return p.software != "" }

func (p *sshParser) Feed(b []byte) Answer {
	p.held = append(p.held, b...)
	if p.software == "" {
		if a := p.version(); a != Done {
			return a
		}
	}
	return p.offers()
}

func (p *sshParser) version() Answer {
	const begins = "SSH-"
	if n := min(len(begins), len(p.held)); string(p.held[:n]) != begins[:n] {
		return Unknown
	}
	line, rest, whole := bytes.Cut(p.held, []byte{'\n'})
	switch {
	case !whole && len(p.held) >= sshVersionBytes, len(line) >= sshVersionBytes:
		return Unknown
	case !whole:
		return More
	}
	text := strings.TrimSuffix(string(line[len(begins):]), "\r")
	proto, software, _ := strings.Cut(text, "-")
	if at := strings.IndexAny(software, " \r"); at >= 0 { // comments, and what no server takes
		software = software[:at]
	}
	if proto == "" || software == "" {
		return Unknown
	}
	p.proto, p.software = proto, software
	p.held = append(p.held[:0], rest...)
	return Done
}

// offers reads the first packet. What is none leaves the version as the record.
func (p *sshParser) offers() Answer {
	if p.proto != "2.0" && p.proto != "1.99" {
		return Done
	}
	const header = 5 // the length of the packet, and that of the padding
	if len(p.held) < header+1 {
		return More
	}
	length := int64(binary.BigEndian.Uint32(p.held))
	if length > Limit || p.held[header] != sshKexInit {
		return Done
	}
	end := 4 + int(length)
	if len(p.held) < end {
		return More
	}
	const cookie = 16
	at := header + 1 + cookie
	var lists [8]string // of key exchange, host keys, and three pairs: to the server, to the client
	for i := range lists {
		if at+4 > end {
			return Done
		}
		n := int64(binary.BigEndian.Uint32(p.held[at:]))
		at += 4
		if n > int64(end-at) {
			return Done
		}
		lists[i] = string(p.held[at : at+int(n)])
		at += int(n)
	}
	p.hassh = strings.Join([]string{lists[0], lists[2], lists[4], lists[6]}, ";")
	return Done
}

func (p *sshParser) Record() map[string]any {
	client := map[string]any{"proto_version": p.proto, "software_version": p.software}
	if p.hassh != "" {
		client["hassh"] = map[string]any{"hash": md5Hex(p.hassh), "string": p.hassh}
	}
	return map[string]any{"ssh": map[string]any{"client": client}}
}

func md5Hex(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}
