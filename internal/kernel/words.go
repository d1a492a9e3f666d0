package kernel

import (
	"errors"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What a driver says of its refusal comes beside the number of the error (NETLINK_EXT_ACK), to
// whoever asks for it.
func init() { nl.EnableErrorMessageReporting = true }

// Words returns what the kernel has said beside the number of an error of netlink, "" if nothing.
func Words(err error) string {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return ""
	}
	words, ok := strings.CutPrefix(err.Error(), errno.Error()+": ")
	if !ok {
		return ""
	}
	return words
}
