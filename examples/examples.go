// Package examples carries the policies that the commands use themselves, so that the binary works
// without the repository. It holds data only.
package examples

import _ "embed"

// Demo is demo.levee, the policy of `levee lab demo` and `levee bench ladder`.
//
//go:embed demo.levee
var Demo []byte

// Service is service.levee, which `levee bench service` has beside Demo.
//
//go:embed service.levee
var Service []byte

// File names of these.
const (
	DemoName    = "demo.levee"
	ServiceName = "service.levee"
)
