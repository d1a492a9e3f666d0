package main

import (
	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/status"
	"levee/internal/host/atomicfile"
	"levee/internal/openmetrics"
	"levee/internal/openmetrics/exporter"
)

const metricsLong = `Print what monitoring reads, as OpenMetrics: packets and bytes by rule,
entries of dynamic sets, trials, and what is in force where, for every interface.

--write puts it into a file in one step, in the text format of Prometheus, for the textfile
collector of node_exporter; a timer runs it. --listen serves it over HTTP at /metrics until a
signal: at a port of the loopback address, at an address that you name, or at unix:PATH. There
is no password: at other addresses than loopback everybody who reaches the port can read it.

A rule is named by its identity, as counters are when the policy is replaced: "label:NAME" with
a label, else "text:RULE#1".`

const metricsExample = `  sudo levee metrics
  sudo levee metrics --write /var/lib/prometheus/node-exporter/levee.prom
  sudo levee metrics --listen 9469`

type metricsFlags struct {
	status        statusFlags
	write, listen string
}

func newMetrics(e *env) *cobra.Command {
	var f metricsFlags
	cmd := &cobra.Command{
		Use:     "metrics",
		Short:   "Print or serve what Prometheus reads, by rule and set",
		Long:    metricsLong,
		Example: metricsExample,
		Args:    cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.write != "" && f.listen != "":
				return cli.Usagef(cmd, "--write and --listen exclude each other")
			case f.status.all && f.status.dev != "":
				return cli.Usagef(cmd, "--all and --dev exclude each other")
			case f.listen != "":
				network, address, err := exporter.Address(f.listen)
				if err != nil {
					return cli.Usagef(cmd, "--listen: %v", err)
				}
				return e.serveMetrics(&f, network, address)
			case f.write != "":
				text, err := e.metrics(&f, openmetrics.Text)
				if err != nil {
					return err
				}
				return atomicfile.Write(f.write, text, 0o644)
			}
			text, err := e.metrics(&f, openmetrics.OpenMetrics)
			if err != nil {
				return err
			}
			_, err = e.Stdout.Write(text)
			return err
		},
	}
	cli.DevFlag(cmd, &f.status.dev, "only this interface")
	cmd.Flags().BoolVar(&f.status.all, "all", false, "of all network namespaces")
	cmd.Flags().StringVar(&f.write, "write", "", "into this file, for node_exporter")
	cmd.Flags().StringVar(&f.listen, "listen", "",
		"serve it: PORT, ADDRESS:PORT or unix:PATH")
	return cmd
}

// metrics returns the text of what runs where now.
func (e *env) metrics(f *metricsFlags, format openmetrics.Format) ([]byte, error) {
	rep, err := e.readStatus(&f.status)
	if err != nil {
		return nil, err
	}
	return openmetrics.Append(nil, format, status.Metrics(rep, f.status.all)), nil
}

// serveMetrics answers over HTTP until a signal.
func (e *env) serveMetrics(f *metricsFlags, network, address string) error {
	if _, err := e.readStatus(&f.status); err != nil {
		return err
	}
	ctx, stop := e.Signals()
	defer stop()
	l, err := exporter.Listen(network, address)
	if err != nil {
		return err
	}
	if network == "tcp" {
		address = "http://" + address + "/metrics"
	}
	e.Sayf("serving %s, until Ctrl-C", address)
	return exporter.Serve(ctx, l, func(format openmetrics.Format) ([]byte, error) {
		return e.metrics(f, format)
	})
}
