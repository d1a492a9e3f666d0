package lsp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

// Bounds on what an editor may send.
const (
	maxMessage   = 32 << 20 // bytes
	maxHeader    = 4 << 10
	maxDocuments = 64
	maxText      = 64 << 20 // bytes of all documents together
)

// stream frames messages as the protocol does, in a header with Content-Length. jsonrpc2 has such a
// codec, which takes any length.
type stream struct {
	r     *bufio.Reader
	w     io.WriteCloser
	write sync.Mutex
}

// ReadObject reads one message.
func (s *stream) ReadObject(v any) error {
	length, left := -1, maxHeader
	for {
		line, err := s.r.ReadSlice('\n')
		if left -= len(line); errors.Is(err, bufio.ErrBufferFull) || left < 0 {
			return errors.New("the header of a message is too long")
		}
		if err != nil {
			return err
		}
		name, value, ok := strings.Cut(strings.TrimRight(string(line), "\r\n"), ":")
		if name == "" {
			break
		}
		if ok && strings.EqualFold(name, "Content-Length") {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 31)
			if err != nil || n > maxMessage {
				return fmt.Errorf("a message of %q bytes; at most %d are read",
					strings.TrimSpace(value), maxMessage)
			}
			length = int(n)
		}
	}
	if length < 0 {
		return errors.New("a message without Content-Length")
	}
	text, err := io.ReadAll(io.LimitReader(s.r, int64(length)))
	if err != nil {
		return err
	}
	if len(text) < length {
		return io.ErrUnexpectedEOF
	}
	return json.Unmarshal(text, v)
}

// WriteObject writes one message.
func (s *stream) WriteObject(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	s.write.Lock()
	defer s.write.Unlock()
	_, err = fmt.Fprintf(s.w, "Content-Length: %d\r\n\r\n%s", len(text), text)
	return err
}

// Close ends the stream.
func (s *stream) Close() error { return s.w.Close() }
