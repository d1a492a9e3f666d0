// Command levee-lab measures levee and gives it networks to be tried in: the commands bench, lab,
// gen and calc of levee, which starts it for them. It is a program of its own so that the one that
// runs as root for as long as a machine does has nothing in it that draws, compares or floods.
package main

import (
	"os"

	"levee/cmd/levee-lab/commands"
)

func main() { os.Exit(commands.Main()) }
