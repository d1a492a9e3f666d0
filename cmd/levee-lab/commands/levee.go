package commands

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// findLevee looks for the program that is measured, beside one that is given and in PATH: packages
// have this one elsewhere.
func findLevee(self string) (string, error) {
	if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), "levee")); err == nil {
		return path, nil
	}
	path, err := exec.LookPath("levee")
	if err != nil {
		return "", fmt.Errorf("find levee, whose agent is measured: %w; put its binary beside %s, "+
			"or into PATH", err, self)
	}
	return path, nil
}
