// Command talks is what runs in a container of scripts/wrap/container: as long as it lives it sends
// datagrams to ports 9 and 10, and says how many could not be sent.
package main

import (
	"fmt"
	"net"
	"os"
	"time"
)

func main() {
	var to []net.Conn
	for _, port := range []string{"9", "10"} {
		c, err := net.Dial("udp4", "127.0.0.1:"+port)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		to = append(to, c)
	}
	name := []byte(os.Getenv("NAME"))
	for range time.Tick(10 * time.Millisecond) {
		for _, c := range to {
			_, _ = c.Write(name) // a policy may forbid it, and nobody may listen
		}
	}
}
