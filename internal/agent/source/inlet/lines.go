package inlet

import (
	"bufio"
	"bytes"
	"io"

	"levee/internal/agent/follow"
)

// firstBytes is the buffer of a reader, which grows with its lines.
const firstBytes = 64 << 10

// ReadLines hands on the lines of a stream until it ends, or line returns false. A line that is
// longer than follow.MaxLine is skipped. What has no end at the end is a line.
func ReadLines(from io.Reader, tooLong func(), line func([]byte) bool) error {
	r := bufio.NewScanner(from)
	r.Buffer(make([]byte, 0, firstBytes), follow.MaxLine+1)
	skip := false
	r.Split(func(data []byte, end bool) (advance int, token []byte, err error) {
		i := bytes.IndexByte(data, '\n')
		switch {
		case i >= 0 && skip:
			skip = false
			return i + 1, nil, nil
		case i >= 0:
			return i + 1, data[:i], nil
		case skip:
			return len(data), nil, nil
		case len(data) > follow.MaxLine:
			tooLong()
			skip = true
			return len(data), nil, nil
		case end && len(data) > 0:
			return len(data), data, nil
		}
		return 0, nil, nil
	})
	for r.Scan() {
		if b := bytes.TrimSuffix(r.Bytes(), []byte("\r")); len(b) > 0 && !line(b) {
			return nil
		}
	}
	return r.Err()
}
