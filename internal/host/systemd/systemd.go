// Package systemd is the protocol between a process and the service manager that started it. In go
// states, out comes whether and how often the manager wants to hear of it. It must never wait for
// the manager, nor fail where there is none.
package systemd

import (
	"errors"
	"net"
	"os"
	"strconv"
	"time"
)

// Notify tells the service manager of a process that it has started, if it waits for that
// (sd_notify(3)).
func Notify(state string) error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	if socket[0] == '@' { // of the abstract namespace
		socket = "\x00" + socket[1:]
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	_, err = c.Write([]byte(state))
	return errors.Join(err, c.Close())
}

// Watchdog returns how often the service manager wants to hear of this process
// (sd_Watchdog_enabled(3)).
func Watchdog() time.Duration {
	us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 63)
	if err != nil || us <= 0 {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}
