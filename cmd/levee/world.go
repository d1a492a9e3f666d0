package main

import (
	"levee/internal/cli"
	"levee/internal/dataplane"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/lockout"
	"levee/internal/host/session"
	"levee/internal/packet"
)

// env is the environment of levee's commands: that of every program here, and what the machine says
// of its interfaces.
type env struct {
	*cli.Env
	// interfaces are those that names and patterns fit, which may be some only, or have to be all.
	interfaces func(names []string, some bool) ([]string, error)
	// link is the header that packets of an interface have first.
	link func(dev string) (packet.Link, error)
	// sessions are those whose packets arrive on an interface.
	sessions func(dev string) ([]session.Session, error)
}

// systemEnv is the environment of a real process.
func systemEnv() *env {
	return &env{
		Env:        cli.System(),
		interfaces: dataplane.Interfaces,
		link:       attach.LinkLayer,
		sessions:   session.On,
	}
}

// gate keeps policies out of force that would cut somebody off.
func (e *env) gate() *lockout.Gate {
	return &lockout.Gate{Link: e.link, Sessions: e.sessions, Say: e.Sayf}
}
