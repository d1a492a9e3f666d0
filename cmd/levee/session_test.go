package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"time"
)

// longest ends the commands of a story whose test was killed. A busy machine
// takes more than a minute for a story.
const longest = 10 * time.Minute

// sshd is the command `sshd ADDRESS:PORT` of the stories: a process of the name of an SSH server
// that accepts connections and holds them until it is killed, or for longer than a story takes.
func sshd() {
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "sshd:", err)
		os.Exit(1)
	}
	time.AfterFunc(longest, func() { os.Exit(1) })
	for {
		c, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		go io.Copy(io.Discard, c) // until the other end goes
	}
}

// over is the command `over ADDRESS:PORT [PROGRAM [ARG...]]` of the stories: it runs the program
// while it holds a TCP connection to the address, as the session of somebody who is logged in does.
// Without a program it holds it until it is killed or the other end goes, or for longer than any
// story takes.
func over() {
	c, err := net.DialTimeout("tcp", os.Args[1], longest)
	if err != nil {
		fmt.Fprintln(os.Stderr, "over:", err)
		os.Exit(1)
	}
	if len(os.Args) == 2 {
		if err := c.SetReadDeadline(time.Now().Add(longest)); err == nil {
			io.Copy(io.Discard, c)
		}
		return
	}
	cmd := exec.Command(os.Args[2], os.Args[3:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	c.Close()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "over:", err)
		os.Exit(1)
	}
}
