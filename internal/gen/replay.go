package gen

import (
	"context"
	"errors"
)

// Replay is a capture to send.
type Replay struct{}

func runReplay(ctx context.Context, c Config, dev device) (Report, error) {
	return Report{}, errors.New("replay is not there yet")
}
