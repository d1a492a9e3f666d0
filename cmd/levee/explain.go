package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"levee/internal/dataplane/judge"
	"levee/internal/packet"
)

const explainLong = `Tell the story of one packet: the headers that were found in it, each rule
that was looked at with the first term that does not hold, and what decided. The packet is an
Ethernet frame without frame check sequence, in hexadecimal (blanks, line ends and colons are
ignored; "-" reads it from standard input), or packet --n of a capture. With --link l3 it begins
with the IP header.

Dynamic sets are empty, unless --entry puts something into them.`

const explainExample = `  levee explain edge.levee --packet "020000000002 020000000001 0806 0001..."
  levee explain edge.levee --pcap attack.pcap --n 17
  levee explain edge.levee --pcap attack.pcap --n 17 --entry abusers=203.0.113.0/24`

type explainFlags struct {
	packet, pcap string
	link         string
	n            int
	json         bool
	entries      []string
}

func newExplain(e *env) *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:     "explain FILE (--packet HEX | --pcap P --n N)",
		Short:   "Show step by step how one packet is judged",
		Long:    explainLong,
		Example: explainExample,
		Args:    wantArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.explain(cmd, args[0], &f)
		},
	}
	cmd.Flags().StringVar(&f.packet, "packet", "",
		"the frame in hexadecimal, or - for standard input")
	cmd.Flags().StringVar(&f.pcap, "pcap", "", "a capture, or - for standard input")
	cmd.Flags().IntVar(&f.n, "n", 1, "which packet of --pcap, counted from 1")
	entryFlag(cmd, &f.entries)
	linkFlag(cmd, &f.link)
	jsonFlag(cmd, &f.json)
	return cmd
}

func (e *env) explain(cmd *cobra.Command, file string, f *explainFlags) error {
	switch {
	case f.packet == "" && f.pcap == "":
		return usagef(cmd, "--packet or --pcap is missing")
	case f.packet != "" && f.pcap != "":
		return usagef(cmd, "--packet and --pcap exclude each other")
	case f.n < 1:
		return usagef(cmd, "--n %d: packets are counted from 1", f.n)
	case (file == stdinName) && (f.packet == stdinName || f.pcap == stdinName):
		return usagef(cmd, "only one of FILE and packet can be standard input")
	}
	link, err := parseLink(cmd, f.link)
	if err != nil {
		return err
	}
	p, entries, err := e.policyWith(cmd, file, link, f.entries)
	if err != nil {
		return err
	}
	frame, err := e.explainFrame(cmd, link, f)
	if err != nil {
		return err
	}
	j, err := judge.NewOn(p, link, judge.Oracle)
	if err != nil {
		return err
	}
	if err := j.Add(entries...); err != nil {
		return err
	}
	tr := j.Explain(frame)
	if f.json {
		return e.printJSON(newStory(p, &tr, f.n))
	}
	printTrace(e.stdout, &tr, "")
	return nil
}

// maxHex bounds the text of one packet on standard input; a frame has at most 65,549 bytes, and a
// dump with offsets takes about four characters for each.
const maxHex = 1 << 20

func (e *env) explainFrame(cmd *cobra.Command, link packet.Link,
	f *explainFlags) ([]byte, error) {
	if f.pcap != "" {
		frame, err := e.nthFrame(f.pcap, f.n)
		if err == nil {
			if frame, err = link.Carry(frame); err != nil {
				err = fmt.Errorf("packet %d is %w", f.n, err)
			}
		}
		return frame, err
	}
	text := f.packet
	if text == stdinName {
		b, err := io.ReadAll(io.LimitReader(e.stdin, maxHex+1))
		if err != nil {
			return nil, fmt.Errorf("read the packet from standard input: %w", err)
		}
		text = string(b)
	}
	if len(text) > maxHex {
		return nil, fmt.Errorf("the packet has more than %d characters, no frame is that long",
			maxHex)
	}
	frame, err := packet.ParseHex(text)
	if err != nil {
		return nil, usagef(cmd, "--packet: %v", err)
	}
	return frame, nil
}
