package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestARefusedFlagSaysWhyWithoutAValue: it said that it needs an argument.
func TestARefusedFlagSaysWhyWithoutAValue(t *testing.T) {
	for _, args := range [][]string{{"--shadow"}, {"--shadow", "x"}} {
		cmd := &cobra.Command{Use: "levee"}
		RefuseFlag(cmd, "shadow", "there is none")
		nameArgs(cmd)
		err := cmd.ParseFlags(args)
		if err == nil || !strings.Contains(flagError(cmd, err).Error(), "there is none") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
