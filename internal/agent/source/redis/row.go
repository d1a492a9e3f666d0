package redis

import (
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"strings"

	"levee/internal/agent/source/inlet"
	"levee/internal/host/access"
)

// Words of options.
const (
	listWord     = "list"
	userWord     = "user"
	passwordWord = "password"
	caWord       = "ca"
)

// Row is the row.
var Row = inlet.Row{
	Name: "redis",
	At: inlet.Value{What: "an address, such as 127.0.0.1:6379, or the path of a socket",
		Form: `redis "127.0.0.1:6379" list "suricata"`},
	Options: []inlet.Option{
		{Word: listWord, Required: true,
			Value: inlet.Value{What: "the key of a list", Form: `list "suricata"`}},
		{Word: userWord, Value: inlet.Value{What: "the name of a user"}},
		{Word: passwordWord, Value: inlet.Value{What: "the path of a file with the password",
			Form: `password "/etc/levee/redis.password"`, Path: true}},
		{Word: caWord, Value: inlet.Value{What: "the path of a file with certificates",
			Form: `ca "/etc/levee/redis-ca.pem"`, Path: true}},
	},
	Check: check,
	Server: func(p *inlet.Place) string {
		host, _, _ := net.SplitHostPort(strings.TrimPrefix(p.At, overTLS))
		return host
	},
	Advise: func(p *inlet.Place, err error) string {
		if filepath.IsAbs(p.At) && errors.Is(err, fs.ErrPermission) {
			return access.Read(p.At, err)
		}
		return "look whether Redis runs, and takes who asks"
	},
	Open: func(p *inlet.Place, _ inlet.Opening) (inlet.Inlet, error) {
		return newRedis(p, redisWait), nil
	},
}

// overTLS is before the address of a Redis that is reached over TLS.
const overTLS = "rediss://"

// check looks where Redis is, and by what it is known.
func check(p *inlet.Place, wrong func(of, hint, text string)) {
	address, encrypted := strings.CutPrefix(p.At, overTLS)
	host, _, err := net.SplitHostPort(address)
	_, vouched := p.Options[caWord]
	switch {
	case encrypted && (err != nil || host == "" || strings.ContainsAny(address, "/@?#")):
		wrong("", `write: redis "rediss://redis.example:6379"; a user and a password stand `+
			"behind the list.", "%q is not rediss://, a host and a port")
	case !encrypted && err != nil && !filepath.IsAbs(address):
		wrong("", `write: redis "127.0.0.1:6379", or the path of a socket, or `+
			`"rediss://redis.example:6379" for TLS.`,
			"%q is no address with a port, and no path")
	case !encrypted && vouched:
		wrong(caWord, "write rediss:// before the address, or leave it out.",
			"without TLS there is no certificate")
	}
	if p.Options[listWord] == "" {
		wrong(listWord, `write: list "suricata".`, "the key is empty")
	}
	_, user := p.Options[userWord]
	if _, password := p.Options[passwordWord]; user && !password {
		wrong(userWord, `write: password "/etc/levee/redis.password" behind it.`,
			"a user needs a password")
	}
}
