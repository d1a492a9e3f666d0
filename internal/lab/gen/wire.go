package gen

// wire takes frames from user space to a device, in batches.
type wire interface {
	// batch is the most frames between two flushes.
	batch() int
	// buffer is the memory for the next frame of the batch, which must not be full; it has the
	// longest frame's length.
	buffer() ([]byte, error)
	// push adds the first n bytes of the buffer to the batch.
	push(n int)
	// flush sends the batch and adds what became of it to the report: Sent, of which Refused by the
	// receiver, or Errors.
	flush(r *Report) error
	// finish waits until the kernel has taken what was flushed.
	finish(r *Report) error
	// what describes the path, for reports.
	what() string
	close()
}
