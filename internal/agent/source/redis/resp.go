package redis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"
)

// maxElement is the largest number of bytes that an element of a list may have: what Redis allows.
const maxElement = 512 << 20

// redisError is an error that the server has answered.
type redisError string

func (e redisError) Error() string { return string(e) }

// respConn speaks RESP2, as all versions of Redis, Valkey and KeyDB do.
type respConn struct {
	c    net.Conn
	r    *bufio.Reader
	b    []byte
	wait time.Duration // for an answer
}

// do sends a command and reads its answer: an int64, a string, or nil.
func (c *respConn) do(args ...string) (any, error) {
	if err := c.send(args); err != nil {
		return nil, err
	}
	typ, text, err := c.head()
	if err != nil {
		return nil, err
	}
	switch typ {
	case '+':
		return text, nil
	case ':':
		return strconv.ParseInt(text, 10, 64)
	}
	return nil, errNoAnswer
}

// elements sends a command whose answer is a list, and hands on its elements one by one, each valid
// until element returns. One that is longer than most is nil. n is how many there were.
func (c *respConn) elements(most int, element func([]byte) bool, args ...string) (n int,
	err error) {
	if err := c.send(args); err != nil {
		return 0, err
	}
	typ, text, err := c.head()
	if err != nil {
		return 0, err
	}
	all, err := strconv.Atoi(text)
	if typ != '*' || err != nil {
		return 0, errNoAnswer
	}
	for ; n < all; n++ {
		if err := c.c.SetDeadline(time.Now().Add(c.wait)); err != nil {
			return n, err
		}
		typ, text, err := c.head()
		if err != nil {
			return n, err
		}
		size, err := strconv.Atoi(text)
		if typ != '$' || err != nil || size < 0 || size > maxElement {
			return n, errNoAnswer
		}
		var line []byte
		if size <= most {
			c.b = slices.Grow(c.b[:0], size+2)[:size+2]
			_, err = io.ReadFull(c.r, c.b)
			line = c.b[:size]
		} else {
			_, err = io.CopyN(io.Discard, c.r, int64(size)+2)
		}
		if err != nil {
			return n, err
		}
		if !element(line) {
			return n, errClosed
		}
	}
	return n, nil
}

// errClosed is that nobody wants more.
var errClosed = errors.New("closed")

// errNoAnswer says that an answer does not follow the protocol of Redis.
var errNoAnswer = errors.New("this is no answer of Redis")

// send sends a command.
func (c *respConn) send(args []string) error {
	if err := c.c.SetDeadline(time.Now().Add(c.wait)); err != nil {
		return err
	}
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	_, err := c.c.Write(b)
	return err
}

// head reads the first line of a value. An error that the server has answered is a redisError.
func (c *respConn) head() (typ byte, text string, err error) {
	line, err := c.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull), err == nil && (len(line) < 3 ||
		line[len(line)-2] != '\r'):
		return 0, "", errNoAnswer
	case err != nil:
		return 0, "", err
	}
	typ, text = line[0], string(line[1:len(line)-2])
	if typ == '-' {
		return 0, "", redisError(text)
	}
	return typ, text, nil
}
