// Command handed answers on the socket that it was handed, as scripts/wrap/handed.py does.
package main

import (
	"fmt"
	"net"
	"os"
)

func main() {
	l, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_, _ = c.Write([]byte("hello\n")) // who has gone gets nothing
		c.Close()
	}
}
