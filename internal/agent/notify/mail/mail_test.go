package mail

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/notify/way"
	"levee/internal/agent/pubsub"
)

// postbox takes one letter by SMTP.
func postbox(t *testing.T) (address string, letter <-chan string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	out := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		r := bufio.NewReader(c)
		fmt.Fprint(c, "220 mail\r\n")
		var all strings.Builder
		for data := false; ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			all.WriteString(line)
			switch {
			case data && line == ".\r\n":
				data = false
				fmt.Fprint(c, "250 taken\r\n")
			case data:
			case line == "DATA\r\n":
				data = true
				fmt.Fprint(c, "354 go on\r\n")
			case line == "QUIT\r\n":
				fmt.Fprint(c, "221 bye\r\n")
				out <- all.String()
				return
			default:
				fmt.Fprint(c, "250 ok\r\n")
			}
		}
	}()
	return l.Addr().String(), out
}

func TestMailHasNoHeaderThatAnEventChose(t *testing.T) {
	server, letter := postbox(t)
	p := way.Place{To: "ops@example.net", Server: server, From: "levee@example.net"}
	m := way.NewMessage(pubsub.Alarm, "flood\r\nBcc: all@example.net\r\n\r\nä\n.\n", time.Now())
	if err := Way.Send(t.Context(), &p, m); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-letter:
		header, _, _ := strings.Cut(got, "\r\n\r\n")
		if strings.Contains(header, "\nBcc") || !strings.Contains(got,
			"RCPT TO:<ops@example.net>") ||
			!strings.Contains(got, "=C3=A4") || !strings.Contains(header, "Auto-Submitted") {
			t.Errorf("%s", got)
		}
	case <-time.After(time.Minute):
		t.Error("no letter came")
	}
}
