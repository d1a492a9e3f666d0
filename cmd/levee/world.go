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
	// interfaces returns the interfaces that fit names and patterns. With some one match is enough;
	// else each name has to exist.
	interfaces func(names []string, some bool) ([]string, error)
	// link returns the first header of an interface's packets.
	link func(dev string) (packet.Link, error)
	// sessions returns the sessions whose packets arrive on an interface.
	sessions func(dev string) ([]session.Session, error)
}

// systemEnv returns the environment of a real process.
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
