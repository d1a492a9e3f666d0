package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// complete is a measurement that says whether it has all figures that it was asked for.
type complete interface {
	comparable // with nil, which is no report
	measurement
	Complete() bool
}

// measured runs a measurement until it ends or a signal comes, and prints what there is. Figures that are missing
// make the exit status 1.
func measured[R complete](e *env, out *benchOutput, run func(ctx context.Context, progress func(doing string, done, total int)) (R, error)) error {
	ctx, stop := e.signals()
	defer stop()
	progress := e.timed()
	rep, err := run(ctx, progress.step)
	progress.clear()
	var none R
	if rep == none {
		return err
	}
	if err = e.printBench(rep, err, out); err == nil && !rep.Complete() {
		return errNo
	}
	return err
}

// durationFlag reads the duration of a flag into to; none leaves it as it is.
func durationFlag(cmd *cobra.Command, name, text string, to *time.Duration) error {
	if !cmd.Flags().Changed(name) {
		return nil
	}
	d, err := parseDuration(text)
	if err != nil {
		return usagef(cmd, "--%s: %v", name, err)
	}
	*to = d
	return nil
}

// ratesFlag reads the packets a second of a flag.
func ratesFlag(cmd *cobra.Command, name string, words []string) ([]float64, error) {
	var rates []float64
	for _, w := range words {
		v, err := parseRate(w)
		if err != nil {
			return nil, usagef(cmd, "--%s: %v", name, err)
		}
		rates = append(rates, v)
	}
	return rates, nil
}

// percentsFlag reads the percentages of a flag.
func percentsFlag(cmd *cobra.Command, name string, words []string) ([]float64, error) {
	var shares []float64
	for _, w := range words {
		v, err := parsePercent(w)
		if err != nil {
			return nil, usagef(cmd, "--%s: %v", name, err)
		}
		shares = append(shares, v)
	}
	return shares, nil
}

// roundsFlag refuses a number of rounds that was given and is none: 0 means the usual number to the measurements.
func roundsFlag(cmd *cobra.Command, n int) error {
	if cmd.Flags().Changed("rounds") && n < 1 {
		return usagef(cmd, "--rounds %d: a number above 0", n)
	}
	return nil
}
